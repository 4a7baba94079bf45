//! What a connection costs that has nothing to do.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bulrush::model::SyncStatus;
use bulrush::model::SyncerType;
use bulrush::model::release::Release;
use bulrush::status::Snapshot;
use bulrush::syncclient::Identity;
use bulrush::syncclient::session::calico::CalicoSession;
use bulrush::syncclient::session::{Incoming, Session as _};
use bytes::BytesMut;

use super::Served;
use crate::daemon::{Daemon, PATIENCE, eventually, http_get};

/// Connections from before the measurement: what the first ones bring about is there for all.
const FIRST: usize = 100;
/// Connections that are measured: enough that the program's own ups and downs are small beside them.
const MORE: usize = 2_000;
/// Memory that an idle connection may cost: the target of docs/performance.md. It is 3.0 to 3.2 KiB, also without optimisation.
const BOUND: u64 = 4 << 10;
/// Descriptors of this process for other tests that run beside this one.
const SPARED: u64 = 1_500;
/// Memory that is no longer used is given back within a second (`dirty_decay_ms`), and this is three of them.
const DECAY: Duration = Duration::from_secs(3);

/// Connects, says hello in Calico's protocol, and listens until it is told to be in sync.
fn connect(server: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let identity = Identity {
        agent: "idle".to_owned(),
        version: String::new(),
        syncer: SyncerType::Felix,
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

/// Waits until the daemon has so many clients, each of which has all there is.
fn all_rest(daemon: &Daemon, count: usize) -> anyhow::Result<()> {
    eventually("all clients rest", || {
        let page = http_get(daemon.health, "/status?clients=all").ok()?.1;
        let status: Snapshot = serde_json::from_str(&page).ok()?;
        let resting = status.clients.iter().filter(|client| client.state == "following" && client.lag_updates == 0);
        (status.clients.len() == count && resting.count() == count).then_some(())
    })
    .with_context(|| daemon.log())
}

/// What the daemon has allocated once it gives nothing back any more.
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
    // Nobody answers pings here, and the machine may be slow.
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
    let little = eventually("what connecting took for a while is given back", || {
        each = daemon.memory().ok()?.saturating_sub(before) / MORE as u64;
        (each <= BOUND).then_some(())
    });
    little.with_context(|| format!("{each} bytes for an idle connection, and at most {BOUND} should be"))
}
