//! Measures the whole road, from a change written to the datastore (etcd or a Kubernetes API server) to the last agent that
//! has it.
//!
//! ```text
//! cargo bench --bench fanout                                  # 502 agents, 10,000 endpoints, 200 changes/s, beside the floor
//! cargo bench --bench fanout -- --clients 2002 --rate 200
//! cargo bench --bench fanout -- --scenario start --endpoints 100000
//! cargo bench --bench fanout -- --scenario idle --clients 2000
//! cargo bench --bench fanout -- --kubernetes --endpoints 2000     # pods in a real API server; --scenario start as well
//! cargo bench --bench fanout -- --kubernetes --scenario start --endpoints 30000 --reflector    # beside kube-rs' reflector
//! cargo bench --bench fanout -- --program PATH                                      # another program, as if it were ours
//! cargo bench --bench fanout -- --server 127.0.0.1:5473 --server-pid 4242 --etcd http://127.0.0.1:2379   # any server
//! ```
//!
//! The figures are ratios within one run (against bare `send()` of as many bytes) and latencies on this machine, load
//! generator included. Results are one JSON object on standard output and a readable table on standard error.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::large_futures,
    reason = "a tool, not an API: it ends with a panic or a message"
)]

mod data;
mod floor;
mod kubernetes;
mod load;
mod probe;
mod proc;
mod reflector;
mod relay;
mod server;
mod store;

#[path = "../../tests/support/apiserver/mod.rs"]
mod apiserver;
#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod real_etcd;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use tokio::sync::watch;
use tokio::time::Instant;

use reflector::Reading;
use relay::Relay;
use server::{START_LIMIT, Server};
use store::Store;

/// Settling time between connecting the agents and the first change, so that their snapshots are not measured.
const SETTLE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Scenario {
    /// Changes at a steady rate while agents are connected, beside the floor.
    Churn,
    /// From exec to the first agent in sync.
    Start,
    /// Memory per idle connection.
    Idle,
}

#[derive(Debug, Parser)]
#[command(about = "Measures a sync server from etcd to its agents")]
struct Args {
    /// What to measure.
    #[arg(long, value_enum, default_value = "churn")]
    scenario: Scenario,
    /// Agents that only count bytes.
    #[arg(long, default_value_t = 500)]
    clients: usize,
    /// Agents that decode and time.
    #[arg(long, default_value_t = 2)]
    probes: usize,
    /// Endpoints in etcd, or pods in Kubernetes; nodes and policies follow in proportion.
    #[arg(long, default_value_t = 10_000)]
    endpoints: usize,
    /// The server reads a Kubernetes API server, which is started for it, instead of etcd.
    #[arg(long, conflicts_with_all = ["etcd", "server"])]
    kubernetes: bool,
    /// With `--kubernetes --scenario start`: run a plain kube-rs reflector over Kubernetes' own kinds beside it.
    #[arg(long, requires = "kubernetes")]
    reflector: bool,
    /// Changes written per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Seconds of changes.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Drive this server instead of starting the one just built. It must read the etcd given with --etcd.
    #[arg(long)]
    server: Option<String>,
    /// Start this program instead of the one just built. It is given Typha's variables.
    #[arg(long, conflicts_with = "server")]
    program: Option<PathBuf>,
    /// Process id of the server given with --server, for CPU and memory.
    #[arg(long)]
    server_pid: Option<u32>,
    /// Use this etcd instead of starting one.
    #[arg(long)]
    etcd: Option<String>,
    /// A small run that only shows that everything works.
    #[arg(long)]
    quick: bool,
    /// Internal: be the floor server.
    #[arg(long, hide = true, num_args = 4, value_names = ["CLIENTS", "BYTES", "RATE", "MESSAGES"])]
    be_floor: Option<Vec<u32>>,
    /// Internal: be the reflector, with this kubeconfig.
    #[arg(long, hide = true)]
    be_reflector: Option<PathBuf>,
    /// Internal: how the reflector reads.
    #[arg(long, hide = true, value_enum, default_value = "pages")]
    reading: Reading,
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn server(&self, store: &Store, relay: Option<&Relay>) -> anyhow::Result<Server> {
        match &self.server {
            Some(address) => {
                let pid = self.server_pid.context("--server needs --server-pid, to read CPU and memory")?;
                Server::running(address, pid)
            }
            None => Server::start(self.program.as_deref(), &store.environment(relay)),
        }
    }

    async fn store(&self) -> anyhow::Result<Store> {
        if self.kubernetes {
            Store::kubernetes(self.endpoints).await
        } else {
            Store::etcd(self.etcd.as_deref(), self.endpoints).await
        }
    }
}

struct Probes {
    written: probe::Written,
    seen: Vec<watch::Receiver<probe::Seen>>,
    tasks: tokio::task::JoinSet<anyhow::Result<()>>,
}

fn start_probes(n: usize, server: SocketAddr) -> Probes {
    let written = probe::Written::default();
    let mut tasks = tokio::task::JoinSet::new();
    let seen = (0..n)
        .map(|i| {
            let (sender, receiver) = watch::channel(probe::Seen::default());
            tasks.spawn(probe::follow(server, format!("probe-{i}"), written.clone(), sender));
            receiver
        })
        .collect();
    Probes { written, seen, tasks }
}

impl Probes {
    async fn wait(&mut self, what: &str, limit: Duration, done: impl Fn(&probe::Seen) -> bool) -> anyhow::Result<()> {
        for seen in &mut self.seen {
            tokio::select! {
                done = tokio::time::timeout(limit, seen.wait_for(&done)) => { done.with_context(|| format!("{what}: not within {limit:?}"))??; }
                ended = self.tasks.join_next() => bail!("{what}: a probe ended: {ended:?}"),
            }
        }
        Ok(())
    }
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

async fn churn(args: &Args, store: &Store) -> anyhow::Result<serde_json::Value> {
    let server = args.server(store, None)?;
    server.wait_listening().await?;
    let mut probes = start_probes(args.probes.max(1), server.address);
    probes.wait("first sync", START_LIMIT, |seen| seen.in_sync).await?;
    let agents = load::Agents::start(server.address, args.clients, probe::greeting("agent", true), probe::pong())?;
    if let Store::Kubernetes(cluster) = store {
        cluster.warm_up().await?;
    }
    tokio::time::sleep(SETTLE).await;

    let changes = args.rate * args.seconds;
    *probes.written.lock().expect("not poisoned") = vec![None; changes as usize + 1];
    let (cpu_before, bytes_before) = (proc::cpu_secs(server.pid), agents.counts.bytes.load(Ordering::Relaxed));
    let reads_before = agents.counts.reads.load(Ordering::Relaxed);
    let messages_before: u64 = probes.seen.iter().map(|seen| seen.borrow().messages).sum();
    let began = Instant::now();
    let mut writes_ms = write_changes(store, &probes.written, changes, args.rate).await?;
    writes_ms.sort_by(f64::total_cmp);
    let expected = changes as usize;
    probes.wait("the last change", Duration::from_secs(30), move |seen| seen.latencies_ms.len() >= expected).await?;
    let wall = began.elapsed().as_secs_f64();
    // The counting agents may still have the last round in their socket buffers.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cpu = proc::cpu_secs(server.pid) - cpu_before;
    let bytes = agents.counts.bytes.load(Ordering::Relaxed) - bytes_before;
    let reads = agents.counts.reads.load(Ordering::Relaxed) - reads_before;
    let (rss, peak) = (proc::rss_kib(server.pid), proc::peak_kib(server.pid));
    let lost = agents.counts.lost.load(Ordering::Relaxed);
    ensure!(lost == 0, "the server closed {lost} of {} agents", args.clients);
    let messages: u64 = probes.seen.iter().map(|seen| seen.borrow().messages).sum::<u64>() - messages_before;
    let messages_per_client = messages as f64 / probes.seen.len() as f64;
    let mut latencies: Vec<f64> = probes.seen.iter().flat_map(|seen| seen.borrow().latencies_ms.clone()).collect();
    latencies.sort_by(f64::total_cmp);
    drop((agents, probes, server));

    let bytes_per_client = bytes as f64 / args.clients.max(1) as f64;
    let clients = args.clients + args.probes.max(1);
    // The floor sends as many bytes in as many messages as there were changes.
    let message_bytes = (bytes_per_client / f64::from(changes)).round() as u32;
    let floor_cpu = run_floor(args.clients as u32, message_bytes, args.rate, changes).await?;
    let per_change = cpu * 1e6 / (f64::from(changes) * clients as f64);
    let floor_per_change = floor_cpu * 1e6 / (f64::from(changes) * args.clients.max(1) as f64);
    Ok(serde_json::json!({
        "scenario": "churn", "datastore": store.name(), "clients": clients, "endpoints": args.endpoints,
        "rate": args.rate, "seconds": wall,
        "p50_ms": quantile(&latencies, 0.5), "p99_ms": quantile(&latencies, 0.99), "max_ms": quantile(&latencies, 1.0),
        "write_p50_ms": quantile(&writes_ms, 0.5), "write_p99_ms": quantile(&writes_ms, 0.99),
        "server_cpu_secs": cpu, "server_rss_mib": rss as f64 / 1024.0, "server_peak_mib": peak as f64 / 1024.0,
        "bytes_per_client": bytes_per_client, "messages_per_client": messages_per_client,
        "reads_per_client": reads as f64 / args.clients.max(1) as f64,
        "server_us_per_client_change": per_change, "floor_us_per_client_change": floor_per_change,
        "ratio_to_floor": per_change / floor_per_change,
    }))
}

/// Writes the changes at a steady rate. Returns how long each write took until it was answered, in milliseconds.
async fn write_changes(store: &Store, written: &probe::Written, changes: u32, rate: u32) -> anyhow::Result<Vec<f64>> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    // Ticks that the machine missed are made up for, so that the rate holds; the clock of a change starts with its write.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut writes = tokio::task::JoinSet::new();
    let mut took = Vec::new();
    for number in 1..=changes as usize {
        tick.tick().await;
        let change = store.change(number);
        let began = Instant::now();
        written.lock().expect("not poisoned")[number] = Some(began);
        writes.spawn(async move { change.await.map(|()| began.elapsed().as_secs_f64() * 1e3) });
        while let Some(write) = writes.try_join_next() {
            took.push(write??);
        }
    }
    while let Some(write) = writes.join_next().await {
        took.push(write??);
    }
    Ok(took)
}

/// CPU seconds that bare `send()` of the same bytes costs.
async fn run_floor(clients: u32, bytes: u32, rate: u32, messages: u32) -> anyhow::Result<f64> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--be-floor")
        .args([clients, bytes, rate, messages].map(|n| n.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the floor server")?;
    let mut lines = BufReader::new(child.stdout.take().context("floor's output")?).lines();
    let address: SocketAddr = lines.next().context("floor's address")??.parse()?;
    let agents = load::Agents::start(address, clients as usize, b"hello".to_vec(), b"pong".to_vec())?;
    let done = tokio::task::spawn_blocking(move || lines.next()).await?;
    ensure!(matches!(done, Some(Ok(line)) if line == "done"), "the floor server failed");
    let cpu = proc::cpu_secs(child.id());
    drop(child.stdin.take());
    drop(agents);
    child.wait()?;
    Ok(cpu)
}

/// One run from exec to the first agent in sync.
struct Started {
    keys: usize,
    seconds: f64,
    cpu_secs: f64,
    peak_kib: u64,
    rss_kib: u64,
}

async fn start_once(args: &Args, store: &Store, relay: Option<&Relay>) -> anyhow::Result<Started> {
    let server = args.server(store, relay)?;
    server.wait_listening().await?;
    let mut probes = start_probes(1, server.address);
    probes.wait("first sync", START_LIMIT, |seen| seen.in_sync).await?;
    let seconds = server.started.elapsed().as_secs_f64();
    let (cpu_secs, peak_kib, rss_kib) =
        (proc::cpu_secs(server.pid), proc::peak_kib(server.pid), proc::rss_kib(server.pid));
    let keys = probes.seen[0].borrow().keys;
    Ok(Started { keys, seconds, cpu_secs, peak_kib, rss_kib })
}

async fn start(args: &Args, store: &Store) -> anyhow::Result<serde_json::Value> {
    if matches!(store, Store::Kubernetes(_)) {
        // The API server's cache has just been filled; its clean-up is not to be measured.
        tokio::time::sleep(SETTLE).await;
    }
    let run = start_once(args, store, None).await?;
    let mut result = serde_json::json!({
        "scenario": "start", "datastore": store.name(), "endpoints": args.endpoints, "keys": run.keys,
        "seconds": run.seconds, "server_cpu_secs": run.cpu_secs,
        "server_peak_mib": run.peak_kib as f64 / 1024.0, "server_rss_mib": run.rss_kib as f64 / 1024.0,
    });
    let Store::Kubernetes(cluster) = store else { return Ok(result) };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    // Bytes are counted in runs of their own: the relay costs time.
    let relay = Relay::start(cluster.server.address())?;
    start_once(args, store, Some(&relay)).await?;
    result["read_mib"] = mib(relay.bytes()).into();
    if args.reflector {
        for (name, reading) in [("reflector", Reading::Pages), ("reflector_streams", Reading::Streams)] {
            let run = reflector::run(&cluster.kubeconfig(None), reading).await?;
            let relay = Relay::start(cluster.server.address())?;
            reflector::run(&cluster.kubeconfig(Some(&relay)), reading).await?;
            for (field, value) in [
                ("objects", run.objects as f64),
                ("seconds", run.seconds),
                ("cpu_secs", run.cpu_secs),
                ("peak_mib", run.peak_kib as f64 / 1024.0),
                ("rss_mib", run.rss_kib as f64 / 1024.0),
                ("read_mib", mib(relay.bytes())),
            ] {
                result[format!("{name}_{field}")] = value.into();
            }
        }
    }
    Ok(result)
}

async fn idle(args: &Args, store: &Store) -> anyhow::Result<serde_json::Value> {
    let server = args.server(store, None)?;
    server.wait_listening().await?;
    let mut probes = start_probes(1, server.address);
    probes.wait("first sync", START_LIMIT, |seen| seen.in_sync).await?;
    let rss = |server: &Server| proc::rss_kib(server.pid);
    // A first set of agents warms buffers and pools that are not per connection.
    let warm =
        load::Agents::start(server.address, args.clients / 10 + 1, probe::greeting("agent", true), probe::pong())?;
    tokio::time::sleep(SETTLE).await;
    let before = rss(&server);
    let agents = load::Agents::start(server.address, args.clients, probe::greeting("agent", true), probe::pong())?;
    tokio::time::sleep(SETTLE * 2).await;
    let after = rss(&server);
    let open = agents.counts.open.load(Ordering::Relaxed);
    drop(warm);
    Ok(serde_json::json!({
        "scenario": "idle", "datastore": store.name(), "clients": open, "endpoints": args.endpoints, "server_rss_mib": after as f64 / 1024.0,
        "kib_per_connection": (after as f64 - before as f64) / open.max(1) as f64,
    }))
}

fn print(result: &serde_json::Value) {
    if let Some(fields) = result.as_object() {
        for (name, value) in fields {
            match value.as_f64() {
                Some(number) if number.fract() != 0.0 => eprintln!("{name:>28}  {number:.3}"),
                _ => eprintln!("{name:>28}  {value}"),
            }
        }
    }
    println!("{result}");
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if let Some(floor) = &args.be_floor {
        let [clients, bytes, rate, messages] = floor[..] else { bail!("--be-floor takes four numbers") };
        return floor::serve(floor::Floor { clients: clients as usize, bytes: bytes as usize, rate, messages });
    }
    if let Some(kubeconfig) = args.be_reflector {
        return reflector::be(kubeconfig, args.reading);
    }
    if args.quick {
        (args.clients, args.endpoints, args.rate, args.seconds) = (20, 500, 50, 2);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = args.store().await?;
        let result = match args.scenario {
            Scenario::Churn => churn(&args, &store).await?,
            Scenario::Start => start(&args, &store).await?,
            Scenario::Idle => idle(&args, &store).await?,
        };
        print(&result);
        anyhow::Ok(())
    })
}
