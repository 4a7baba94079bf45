//! Changes at a steady rate while agents are connected, with hostile ones among them if asked for, beside the floor.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use super::floor;
use crate::args::Args;
use crate::changes;
use crate::hostile::{Company, Invitation};
use crate::load;
use crate::proc::CpuTimes;
use crate::report::{Report, quantile};
use crate::session::Session;
use crate::store::Store;

/// The counting agents may still have the last round in their socket buffers when the probes have it.
const LAST_ROUND: Duration = Duration::from_millis(300);

pub(super) async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let rate = args.churn_rate()?;
    ensure!(store.is_ours(), "changes need the server's datastore: give --etcd, or another --scenario");
    let session = Session::start(args, store, None).await?;
    // Half of the probes connect before the agents and half after them: a server may serve its clients always in the same order.
    let mut probes = session.probes(args.probes.div_ceil(2)).await?;
    let agents = session.mixed_agents(args.counting()).await?;
    probes.add(args.probes / 2).await?;
    if let Some(cluster) = store.cluster() {
        cluster.warm_up().await?;
    }
    agents.settled().await?;
    tokio::time::sleep(session.settle_time()).await;

    let changes = rate as usize * args.seconds as usize;
    changes::prepare(store, &probes.written, changes);
    let received_before = agents.received();
    let (bytes_before, reads_before) = (agents.shared.bytes.load(Relaxed), agents.shared.reads.load(Relaxed));
    let messages_before = probes.messages();
    let mut company = Company::start(Invitation {
        server: session.server.address,
        tls: session.server.tls.clone(),
        half_open: args.half_open,
        over: Duration::from_secs(u64::from(args.seconds)) / 2,
        storm: args.storm,
        snapshot: received_before.iter().copied().min().unwrap_or(1),
        greeting: session.greetings().swap_remove(0),
    })?;
    let cpu_before = CpuTimes::now(session.server.pid);
    let (server_before, began) = (session.server.cpu_secs(), Instant::now());
    let writes = changes::write(store, &probes.written, rate).await?;
    let overwritten = probes.arrived(store, changes).await?;
    let seconds = began.elapsed().as_secs_f64();
    let server_cpu = session.server.cpu_secs().zip(server_before).map(|(after, before)| after - before);
    let cpu = CpuTimes::now(session.server.pid);
    tokio::time::sleep(LAST_ROUND).await;

    let company = company.dismiss()?;
    agents.check()?;
    let (honest, live) = (agents.honest(), agents.live_since(&received_before));
    ensure!(live == honest, "only {live} of {honest} agents are connected and have received changes");
    let each = |sum: u64| sum as f64 / honest.max(1) as f64;
    let bytes_each = each(agents.shared.bytes.load(Relaxed) - bytes_before);
    let messages_each = (probes.messages() - messages_before) as f64 / probes.seen.len() as f64;
    let latencies = probes.latencies();

    let mut report = session.report("churn");
    report.set("rate", rate);
    report.set("seconds", seconds);
    for (name, q) in [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0)] {
        report.set(name, quantile(&latencies, q));
    }
    if let Some(cluster) = store.cluster() {
        report.set("writes", format!("{:?}", cluster.writes()).to_lowercase());
        report.set("pods", format!("{:?}", args.pods).to_lowercase());
    }
    report.set("write_p50_ms", quantile(&writes.took_ms, 0.5));
    report.set("write_p99_ms", quantile(&writes.took_ms, 0.99));
    report.set("changes_overwritten", overwritten);
    report.set("server_cpu_secs", server_cpu);
    report.set("server_rss_mib", session.server.rss_mib());
    report.set("server_peak_mib", session.server.peak_mib());
    report.set("cpu_by_process", cpu.by_process(&cpu_before));
    report.set("agents_cpu_secs", cpu.of_thread(&cpu_before, load::THREAD));
    report.set("connect_retries", agents.shared.retried.load(Relaxed));
    report.set("clients_live", live + probes.seen.len());
    let (slow, stuck) = session.hostile_agents();
    if slow + stuck > 0 {
        report.set("slow", slow);
        report.set("slow_rate", args.slow_rate);
        report.set("stuck", stuck);
        report.set("slow_and_stuck_cut", agents.shared.hostile_cut.load(Relaxed));
    }
    if let Some(company) = company.filter(|company| company.half_open > 0) {
        report.set("half_open", company.half_open);
        report.set("half_open_established", company.half_open_established);
        report.set("half_open_cut", company.half_open_cut);
    }
    if let Some(company) = company.filter(|company| company.storm > 0) {
        report.set("storm_rate", args.storm);
        report.set("storm_came", company.storm);
        report.set("storm_served", company.storm_served);
        report.set("storm_cut", company.storm_cut);
    }
    report.set("bytes_per_client", bytes_each);
    report.set("messages_per_client", messages_each);
    report.set("reads_per_client", each(agents.shared.reads.load(Relaxed) - reads_before));
    let of_server = |n: f64| server_cpu.map(|cpu| micros(cpu, n.max(1.0), args.clients));
    report.set("server_us_per_client_change", of_server(changes as f64));
    report.set("server_us_per_client_message", of_server(messages_each));
    drop((agents, probes, session));
    if !args.no_floor && honest > 0 {
        let measured = Measured { args, rate, changes, bytes_each, messages_each, server_cpu };
        report.merge(beside_the_floor(&measured).await?);
    }
    Ok(report)
}

/// Microseconds of CPU for each of `n` changes or messages to each of `clients`.
fn micros(cpu: f64, n: f64, clients: usize) -> f64 {
    cpu * 1e6 / (n * clients as f64)
}

/// The measurement that the floor is compared with.
struct Measured<'a> {
    args: &'a Args,
    rate: u32,
    changes: usize,
    bytes_each: f64,
    messages_each: f64,
    server_cpu: Option<f64>,
}

/// Two floors that send as many bytes to as many connections in the same time: one message per change, and
/// as many messages as the server sent.
async fn beside_the_floor(measured: &Measured<'_>) -> anyhow::Result<Report> {
    let (args, clients, mut report) = (measured.args, measured.args.counting(), Report::default());
    let changes = measured.changes as f64;
    let floor = floor::Shape::of(clients, measured.bytes_each, changes, f64::from(measured.rate)).run().await?;
    let per_change = micros(floor, changes, clients);
    report.set("floor_us_per_client_change", per_change);
    let messages = measured.messages_each.max(1.0);
    let rate = messages / f64::from(args.seconds);
    let floor = floor::Shape::of(clients, measured.bytes_each, messages, rate).run().await?;
    let per_message = micros(floor, messages, clients);
    report.set("floor_us_per_client_message", per_message);
    if let Some(cpu) = measured.server_cpu {
        report.set("ratio_to_floor", micros(cpu, changes, args.clients) / per_change);
        report.set("ratio_to_floor_per_message", micros(cpu, messages, args.clients) / per_message);
    }
    Ok(report)
}
