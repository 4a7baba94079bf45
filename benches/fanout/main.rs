//! Measures the whole road, from a change written to etcd to the last agent that has it.
//!
//! ```text
//! cargo bench --bench fanout                                  # 502 agents, 10,000 endpoints, 200 changes/s, beside the floor
//! cargo bench --bench fanout -- --clients 2002 --rate 200
//! cargo bench --bench fanout -- --scenario start --endpoints 100000
//! cargo bench --bench fanout -- --scenario idle --clients 2000
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
#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod etcd;
mod floor;
mod load;
mod probe;
mod proc;

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, ValueEnum};
use etcd_client::Client;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the server may take to be in sync.
const START_LIMIT: Duration = Duration::from_secs(120);
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
    /// Endpoints in etcd; nodes and policies follow in proportion.
    #[arg(long, default_value_t = 10_000)]
    endpoints: usize,
    /// Changes written to etcd per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Seconds of changes.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Drive this server instead of starting the one just built. It must read the etcd given with --etcd.
    #[arg(long)]
    server: Option<String>,
    /// Process id of that server, for CPU and memory.
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
    /// Given by `cargo bench`; means nothing here.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A server under test: ours, as a child, or somebody else's.
struct Server {
    address: SocketAddr,
    pid: u32,
    child: Option<Child>,
    started: Instant,
    _folder: Option<tempfile::TempDir>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start_server(args: &Args, etcd: &str) -> anyhow::Result<Server> {
    if let Some(address) = &args.server {
        let address = address.to_socket_addrs()?.next().context("resolve --server")?;
        let pid = args.server_pid.context("--server needs --server-pid, to read CPU and memory")?;
        return Ok(Server { address, pid, child: None, started: Instant::now(), _folder: None });
    }
    let folder = tempfile::tempdir()?;
    let port = etcd::free_port();
    let started = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_bulrush"))
        .arg("--config-file")
        .arg(folder.path().join("none.cfg"))
        .env("TYPHA_DATASTORETYPE", "etcdv3")
        .env("TYPHA_ETCDENDPOINTS", etcd)
        .env("TYPHA_SERVERPORT", port.to_string())
        .env("TYPHA_LOGSEVERITYSCREEN", "WARNING")
        .env("TYPHA_LOGFILEPATH", "none")
        .env("TYPHA_LOGSEVERITYSYS", "none")
        .stdout(Stdio::null())
        .spawn()
        .context("start bulrush")?;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Ok(Server { address, pid: child.id(), child: Some(child), started, _folder: Some(folder) })
}

async fn wait_listening(address: SocketAddr) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while tokio::net::TcpStream::connect(address).await.is_err() {
        ensure!(Instant::now() < deadline, "nothing listens on {address}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
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

async fn churn(args: &Args, etcd_url: &str, etcd: &mut Client) -> anyhow::Result<serde_json::Value> {
    let size = data::Size::of(args.endpoints);
    data::fill(etcd, size).await?;
    let server = start_server(args, etcd_url)?;
    wait_listening(server.address).await?;
    let mut probes = start_probes(args.probes.max(1), server.address);
    probes.wait("first sync", START_LIMIT, |seen| seen.in_sync).await?;
    let agents = load::Agents::start(server.address, args.clients, probe::greeting("agent", true), probe::pong())?;
    tokio::time::sleep(SETTLE).await;

    let changes = args.rate * args.seconds;
    *probes.written.lock().expect("not poisoned") = vec![None; changes as usize + 1];
    let (cpu_before, bytes_before) = (proc::cpu_secs(server.pid), agents.counts.bytes.load(Ordering::Relaxed));
    let messages_before: u64 = probes.seen.iter().map(|seen| seen.borrow().messages).sum();
    let began = Instant::now();
    write_changes(etcd, &probes.written, changes, args.rate, size).await?;
    let expected = changes as usize;
    probes.wait("the last change", Duration::from_secs(30), move |seen| seen.latencies_ms.len() >= expected).await?;
    let wall = began.elapsed().as_secs_f64();
    // The counting agents may still have the last round in their socket buffers.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cpu = proc::cpu_secs(server.pid) - cpu_before;
    let bytes = agents.counts.bytes.load(Ordering::Relaxed) - bytes_before;
    let rss = proc::rss_kib(server.pid);
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
        "scenario": "churn", "clients": clients, "endpoints": args.endpoints, "rate": args.rate, "seconds": wall,
        "p50_ms": quantile(&latencies, 0.5), "p99_ms": quantile(&latencies, 0.99), "max_ms": quantile(&latencies, 1.0),
        "server_cpu_secs": cpu, "server_rss_mib": rss as f64 / 1024.0,
        "bytes_per_client": bytes_per_client, "messages_per_client": messages_per_client,
        "server_us_per_client_change": per_change, "floor_us_per_client_change": floor_per_change,
        "ratio_to_floor": per_change / floor_per_change,
    }))
}

async fn write_changes(
    etcd: &Client,
    written: &probe::Written,
    changes: u32,
    rate: u32,
    size: data::Size,
) -> anyhow::Result<()> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    // Ticks that the machine missed are made up for, so that the rate holds; the clock of a change starts at its put.
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut puts = tokio::task::JoinSet::new();
    for number in 1..=changes as usize {
        tick.tick().await;
        let mut etcd = etcd.clone();
        let endpoint = number.wrapping_mul(7919) % size.endpoints;
        let value = data::endpoint_value(endpoint, number as u64, size);
        written.lock().expect("not poisoned")[number] = Some(Instant::now());
        puts.spawn(async move { etcd.put(data::endpoint_key(endpoint, size), value, None).await.map(drop) });
        while let Some(put) = puts.try_join_next() {
            put?.context("write a change to etcd")?;
        }
    }
    while let Some(put) = puts.join_next().await {
        put?.context("write a change to etcd")?;
    }
    Ok(())
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

async fn start(args: &Args, etcd_url: &str, etcd: &mut Client) -> anyhow::Result<serde_json::Value> {
    data::fill(etcd, data::Size::of(args.endpoints)).await?;
    let server = start_server(args, etcd_url)?;
    wait_listening(server.address).await?;
    let mut probes = start_probes(1, server.address);
    probes.wait("first sync", START_LIMIT, |seen| seen.in_sync).await?;
    let wall = server.started.elapsed().as_secs_f64();
    let (cpu, peak, rss) = (proc::cpu_secs(server.pid), proc::peak_kib(server.pid), proc::rss_kib(server.pid));
    let keys = probes.seen[0].borrow().keys;
    Ok(serde_json::json!({
        "scenario": "start", "endpoints": args.endpoints, "keys": keys, "seconds": wall, "server_cpu_secs": cpu,
        "server_peak_mib": peak as f64 / 1024.0, "server_rss_mib": rss as f64 / 1024.0,
    }))
}

async fn idle(args: &Args, etcd_url: &str, etcd: &mut Client) -> anyhow::Result<serde_json::Value> {
    data::fill(etcd, data::Size::of(args.endpoints)).await?;
    let server = start_server(args, etcd_url)?;
    wait_listening(server.address).await?;
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
        "scenario": "idle", "clients": open, "endpoints": args.endpoints, "server_rss_mib": after as f64 / 1024.0,
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
    if args.quick {
        (args.clients, args.endpoints, args.rate, args.seconds) = (20, 500, 50, 2);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let own;
        let url = if let Some(url) = &args.etcd {
            url.clone()
        } else {
            own = etcd::Etcd::start().await;
            own.url()
        };
        let mut client =
            Client::connect([url.clone()], None).await.with_context(|| format!("connect to etcd at {url}"))?;
        let result = match args.scenario {
            Scenario::Churn => churn(&args, &url, &mut client).await?,
            Scenario::Start => start(&args, &url, &mut client).await?,
            Scenario::Idle => idle(&args, &url, &mut client).await?,
        };
        print(&result);
        anyhow::Ok(())
    })
}
