//! Memory of an idle connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bulrush::calico::release::Release;
use bulrush::calico::syncers::FELIX;
use bulrush::model::SyncStatus;
use bulrush::status::Snapshot;
use bulrush::syncclient::Identity;
use bulrush::syncclient::session::calico::CalicoSession;
use bulrush::syncclient::session::{Incoming, Session as _};
use bytes::BytesMut;

use super::Served;
use crate::daemon::{Daemon, PATIENCE, eventually, http_get};

/// Connections made before the measurement: the first ones fill memory that all share.
const FIRST: usize = 100;
/// Measured connections: enough to make other changes of the program's memory small.
const MORE: usize = 2_000;
/// Memory that an idle connection may cost: the target of docs/performance.md. It is 3.0 to 3.2 KiB, also without optimisation.
const BOUND: u64 = 4 << 10;
/// Descriptors for other tests that run beside this one in this process.
const SPARED: u64 = 1_500;
/// Time in which unused memory is given back: three times `dirty_decay_ms`, which is a second.
const DECAY: Duration = Duration::from_secs(3);

/// Connects, sends a hello in Calico's protocol, and reads until in-sync.
fn connect(server: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let identity = Identity {
        agent: "idle".to_owned(),
        version: String::new(),
        syncer: FELIX,
        prefixes: Vec::new(),
        dialect: Release::Master,
    };
    let mut session = CalicoSession::new(identity, true, 1);
    let (mut out, mut input, mut buffer) = (BytesMut::new(), BytesMut::new(), [0; 4096]);
    session.start(&mut out);
    loop {
        stream.write_all(&out.split())?;
        let read = stream.read(&mut buffer)?;
        ensure!(read > 0, "the daemon closed the connection");
        input.extend_from_slice(&buffer[..read]);
        while let Some(heard) = session.on_input(&mut input, &mut out)? {
            if heard == Incoming::Status(SyncStatus::InSync) {
                return Ok(stream);
            }
        }
    }
}

/// Waits until the daemon has `count` clients, all up to date.
fn all_rest(daemon: &Daemon, count: usize) -> anyhow::Result<()> {
    eventually("all clients rest", || {
        let page = http_get(daemon.health, "/status?clients=all").ok()?.1;
        let status: Snapshot = serde_json::from_str(&page).ok()?;
        let resting = status.clients.iter().filter(|client| client.state == "following" && client.lag_updates == 0);
        (status.clients.len() == count && resting.count() == count).then_some(())
    })
    .with_context(|| daemon.log())
}

/// Allocated memory of the daemon, once it gives back no more.
fn settled(daemon: &Daemon) -> anyhow::Result<u64> {
    let (mut lowest, mut since) = (u64::MAX, Instant::now());
    eventually("the daemon's memory settles", || {
        let now = daemon.memory().ok()?;
        if now < lowest {
            (lowest, since) = (now, Instant::now());
        }
        (since.elapsed() >= DECAY).then_some(lowest)
    })
}

#[test]
fn an_idle_connection_costs_little_memory() -> anyhow::Result<()> {
    let limit = rlimit::increase_nofile_limit(u64::MAX)?;
    let needed = (FIRST + MORE) as u64 + SPARED;
    ensure!(limit >= needed, "{limit} open files are allowed, the test needs {needed}: raise the limit (ulimit -n)");
    let served = Served::new()?;
    // The test answers no pings, and the machine may be slow.
    let daemon = served.daemon(&[("ServerPongTimeoutSecs", "3600")])?;

    let mut held = Vec::with_capacity(FIRST + MORE);
    for _ in 0..FIRST {
        held.push(connect(daemon.sync)?);
    }
    all_rest(&daemon, FIRST)?;
    let before = settled(&daemon)?;
    for _ in 0..MORE {
        held.push(connect(daemon.sync)?);
    }
    all_rest(&daemon, FIRST + MORE)?;
    let mut each = 0;
    let little = eventually("memory used for connecting is given back", || {
        each = daemon.memory().ok()?.saturating_sub(before) / MORE as u64;
        (each <= BOUND).then_some(())
    });
    little.with_context(|| format!("{each} bytes for an idle connection, more than {BOUND}"))
}
