//! Snapshots to all agents at once: all are connected, then all greet at the same moment.
//!
//! Servers limit the number of silent connections, and accept no more beyond it. So agents are connected first only if they all
//! fit into the listening socket's queue, and only without TLS, whose handshake needs the server. Otherwise each agent greets
//! as soon as it is connected, and the time for connecting counts (`at_once` is false).
//!
//! A counting agent has a whole snapshot when it has received as many bytes as an agent that was alone with the server;
//! probes decode theirs and must get the same keys. With a rate, changes go on meanwhile, and a probe that
//! connected before times them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use crate::args::Args;
use crate::changes;
use crate::load::{Agents, Plan};
use crate::proc::CpuTimes;
use crate::report::{Report, quantile};
use crate::session::{Probes, Session};
use crate::store::Store;

/// Longest time for all snapshots.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes by which two whole snapshots may differ: the connection's number and the server's texts in its hello.
const SLACK: u64 = 64;
/// With TLS, snapshots may differ by one byte in 100, because the stream is cut into records differently.
const TLS_SLACK: u64 = 100;
/// Most agents that are connected before the first greeting: below the queue of a listening socket (4,096 on Linux).
const MOST_HELD: usize = 4_000;
/// Time of changes before the agents greet.
const CHURN_FIRST: Duration = Duration::from_secs(1);

/// Result of sending the snapshots.
struct Sent {
    /// Time until each agent had its snapshot, in seconds, in order.
    times: Vec<f64>,
    /// Time until the slowest probe had its snapshot, in seconds.
    probes: f64,
    server_cpu: Option<f64>,
    cpu: serde_json::Value,
}

pub(super) async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let session = Session::start(args, store, None).await?;
    let mut early = session.probes(1).await?;
    let (keys, probe_bytes) = {
        let seen = early.seen[0].borrow();
        (seen.keys, seen.in_sync_bytes)
    };
    // A server may keep a snapshot for a second, and the snapshot of its start is not whole yet.
    tokio::time::sleep(session.settle_time()).await;
    let alone = session.agents(1).await?;
    alone.settled().await?;
    let mut whole = alone.received()[0];
    if !args.tls {
        // Where changes go on, the lone agent has received some of them as well.
        whole = whole.min(probe_bytes);
    }
    drop(alone);
    let needed = whole.saturating_sub(if args.tls { whole / TLS_SLACK } else { SLACK }).max(1);

    let hold = !args.tls && args.counting() <= MOST_HELD;
    let plan = Plan { hold, needed: Some(needed), ..session.plan(args.counting()) };
    let rate = args.rate.unwrap_or(0);
    let changes = if store.is_ours() { (rate * args.seconds) as usize } else { 0 };
    let mut writes_ms = Vec::new();
    let (agents, probes, sent) = if changes == 0 {
        send(&session, plan).await?
    } else {
        changes::prepare(store, &early.written, changes);
        let written = early.written.clone();
        let (sent, writes) = tokio::join!(
            async {
                tokio::time::sleep(CHURN_FIRST).await;
                send(&session, plan).await
            },
            changes::write(store, &written, rate),
        );
        writes_ms = writes?.took_ms;
        sent?
    };
    let early_overwritten = if changes > 0 { early.arrived(store, changes).await? } else { 0 };
    // No agent may be cut right after its snapshot.
    agents.settled().await?;
    agents.check()?;
    for probe in &probes.seen {
        let has = probe.borrow().keys;
        ensure!(has >= keys, "a probe was told to be in sync with {has} of {keys} keys");
    }

    let received = agents.received();
    let mut report = session.report("snapshot");
    report.set("rate", rate);
    report.set("at_once", hold);
    report.set("keys", keys);
    report.set("seconds", sent.times.last().copied().unwrap_or(0.0).max(sent.probes));
    for (name, q) in [("agents_p50_secs", 0.5), ("agents_p99_secs", 0.99), ("agents_max_secs", 1.0)] {
        report.set(name, quantile(&sent.times, q));
    }
    report.set("probes_secs", sent.probes);
    report.set("server_cpu_secs", sent.server_cpu);
    report.set("cpu_by_process", sent.cpu);
    report.set("server_rss_mib", session.server.rss_mib());
    report.set("server_peak_mib", session.server.peak_mib());
    report.set("snapshot_bytes", whole);
    if changes == 0 {
        report.set("received_min_bytes", received.iter().min().copied());
        report.set("received_max_bytes", received.iter().max().copied());
    }
    report.set("received_mib", received.iter().sum::<u64>() as f64 / f64::from(1 << 20));
    report.set("connect_retries", agents.shared.retried.load(Relaxed));
    report.set("clients_live", agents.open() + probes.seen.len());
    if changes > 0 {
        let latencies = early.latencies();
        report.set("p50_ms", quantile(&latencies, 0.5));
        report.set("p99_ms", quantile(&latencies, 0.99));
        report.set("max_ms", quantile(&latencies, 1.0));
        report.set("write_p50_ms", quantile(&writes_ms, 0.5));
        report.set("write_p99_ms", quantile(&writes_ms, 0.99));
        report.set("changes_overwritten", early_overwritten);
    }
    Ok(report)
}

async fn send(session: &Session<'_>, plan: Plan) -> anyhow::Result<(Agents, Probes, Sent)> {
    let mut probes = session.held_probes(session.args.probes);
    let hold = plan.hold;
    let now = || (CpuTimes::now(session.server.pid), session.server.cpu_secs(), Instant::now());
    let mut before = now();
    if !hold {
        probes.introduce();
    }
    let agents = Agents::connect(plan).await?;
    if hold {
        before = now();
        agents.greet();
        probes.introduce();
    }
    let (cpu_before, server_before, began) = before;
    let (times, in_sync) = tokio::join!(agents.whole(LIMIT), probes.in_sync(LIMIT));
    let cpu = CpuTimes::now(session.server.pid).by_process(&cpu_before);
    in_sync?;
    let server_cpu = session.server.cpu_secs().zip(server_before).map(|(after, before)| after - before);
    let last = probes.seen.iter().filter_map(|seen| seen.borrow().in_sync_at).max().unwrap_or(began);
    let sent = Sent { times: times?, probes: last.duration_since(began).as_secs_f64(), server_cpu, cpu };
    Ok((agents, probes, sent))
}
