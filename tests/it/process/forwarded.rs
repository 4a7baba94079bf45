//! `dump`, `watch` and `status` as an operator uses them on a running replica: through a forwarder of plain TCP such as
//! `kubectl port-forward`, and inside the pod, where the daemon's own options give its address.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tempfile::TempDir;

use super::{Finished, Served, Watcher, bulrush, finish, pool};
use crate::daemon::Daemon;

/// Forwards connections from a port of its own to a server, byte by byte.
struct Forwarder {
    /// The forwarder's address.
    at: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Connections are accepted and closed at once: the forwarder is there, the pod behind it is not.
    dead: AtomicBool,
    /// Bytes from the server that pass before the forwarder dies; 0: it does not die.
    cut_after: AtomicU64,
}

impl Forwarder {
    fn to(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let at = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = state.clone();
        // The thread ends with the process: threads may outlive their test.
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if shared.dead.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                let (Ok(near_in), Ok(far_out)) = (near.try_clone(), far.try_clone()) else { continue };
                thread::spawn(move || drop(std::io::copy(&mut &near_in, &mut &far_out)));
                let state = shared.clone();
                thread::spawn(move || answers(&far, &near, &state));
            }
        });
        Ok(Self { at, state })
    }

    /// Lets the forwarder die after this number of bytes from the server.
    fn cut_after(&self, bytes: u64) {
        self.state.cut_after.store(bytes, Ordering::SeqCst);
    }

    fn address(&self) -> String {
        self.at.to_string()
    }
}

/// Forwards the server's bytes until the forwarder dies.
fn answers(mut far: &TcpStream, mut near: &TcpStream, state: &State) {
    let mut buffer = [0; 512];
    let mut carried = 0_u64;
    while let Ok(count @ 1..) = far.read(&mut buffer) {
        carried += count as u64;
        let limit = state.cut_after.load(Ordering::SeqCst);
        if near.write_all(&buffer[..count]).is_err() || (limit > 0 && carried >= limit) {
            state.dead.store(limit > 0, Ordering::SeqCst);
            break;
        }
    }
    for side in [near, far] {
        drop(side.shutdown(Shutdown::Both));
    }
}

/// A folder with many keys.
fn many() -> anyhow::Result<Served> {
    let served = Served::new()?;
    let pools: Vec<String> =
        (0..500).map(|n| pool(&format!("p{n}"), &format!("10.{}.{}.0/24", 8 + n / 250, n % 250))).collect();
    served.write("pool.yaml", &pools.join("---\n"))?;
    Ok(served)
}

fn dump(arguments: &[&str]) -> anyhow::Result<Finished> {
    finish(bulrush().arg("dump").args(arguments))
}

#[test]
fn dump_watch_and_status_work_through_a_forwarder() -> anyhow::Result<()> {
    let served = many()?;
    let daemon = served.daemon(&[])?;
    let (sync, health) = (Forwarder::to(daemon.sync)?, Forwarder::to(daemon.health)?);
    let direct = dump(&["--server", &daemon.sync.to_string(), "--syncer", "felix"])?.expect_code(0)?.out;
    ensure!(direct.lines().count() >= 500, "{direct}");
    for protocol in ["native", "calico", "calico-plain"] {
        let forwarded = dump(&["--server", &sync.address(), "--syncer", "felix", "--protocol", protocol])?;
        ensure!(forwarded.expect_code(0)?.out == direct, "{protocol}: the forwarder changes nothing");
    }
    let watcher = Watcher::spawn_to(&["--server", &sync.address()])?;
    watcher.wait_for("in-sync")?;
    served.write("more.yaml", &pool("more", "10.99.0.0/16"))?;
    watcher.wait_for("/pool/10.99.0.0-16")?;
    let status = finish(bulrush().args(["status", "--server", &health.address()]))?.expect_code(0)?.out;
    ensure!(status.contains("in-sync") && status.contains("bulrush-cli"), "{status}");
    Ok(())
}

#[test]
fn a_forwarder_that_dies_half_way_is_reported_soon_and_in_words() -> anyhow::Result<()> {
    let served = many()?;
    let daemon = served.daemon(&[])?;
    for arguments in [&["--compression", "none"][..], &["--protocol", "calico-plain"]] {
        let forwarder = Forwarder::to(daemon.sync)?;
        forwarder.cut_after(20_000);
        let began = Instant::now();
        let end = dump(&[&["--server", &forwarder.address()], arguments].concat())?.expect_code(1)?;
        ensure!(end.out.is_empty(), "half of it is not printed: {}", end.out);
        for part in ["lost the connection", &forwarder.address(), "keys so far", "port-forward"] {
            ensure!(end.err.contains(part), "{part:?} is missing in: {}", end.err);
        }
        ensure!(began.elapsed() < Duration::from_secs(20), "after {:?}", began.elapsed());
    }
    let forwarder = Forwarder::to(daemon.health)?;
    forwarder.cut_after(100);
    let end = finish(bulrush().args(["status", "--server", &forwarder.address()]))?.expect_code(1)?;
    for part in ["cut before the answer was complete", &forwarder.address(), "port-forward"] {
        ensure!(end.err.contains(part), "{part:?} is missing in: {}", end.err);
    }
    Ok(())
}

#[test]
fn watch_goes_on_when_the_forwarder_is_back() -> anyhow::Result<()> {
    let served = many()?;
    let daemon = served.daemon(&[])?;
    let forwarder = Forwarder::to(daemon.sync)?;
    forwarder.cut_after(5_000);
    let watcher = Watcher::spawn_to(&["--server", &forwarder.address(), "--compression", "none"])?;
    watcher.wait_for("server closed the connection")?;
    forwarder.cut_after(0);
    forwarder.state.dead.store(false, Ordering::SeqCst);
    watcher.wait_for("in-sync")?;
    Ok(())
}

/// A command with the daemon's options, as another process of its pod has them.
fn inside(daemon: &Daemon, command: &str) -> std::process::Command {
    let mut process = bulrush();
    process.arg(command);
    for (name, value) in [
        ("SERVERHOST", daemon.sync.ip().to_string()),
        ("SERVERPORT", daemon.sync.port().to_string()),
        ("HEALTHENABLED", "true".to_owned()),
        ("HEALTHHOST", daemon.health.ip().to_string()),
        ("HEALTHPORT", daemon.health.port().to_string()),
    ] {
        process.env(format!("TYPHA_{name}"), value);
    }
    process
}

#[test]
fn inside_the_pod_no_address_is_needed() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let dumped = finish(&mut inside(&daemon, "dump"))?.expect_code(0)?.out;
    ensure!(dumped.contains("/calico/v1/ipam/v4/pool/10.1.0.0-16"), "{dumped}");
    let status = finish(&mut inside(&daemon, "status"))?.expect_code(0)?.out;
    ensure!(status.contains("in-sync"), "{status}");

    // The same from a file, with the port of the debug server.
    let folder = TempDir::new()?;
    let file = folder.path().join("typha.cfg");
    let text = format!(
        "ServerHost = {}\nServerPort = {}\nHealthEnabled = true\nHealthHost = {}\nHealthPort = {}\n",
        daemon.sync.ip(),
        daemon.sync.port(),
        daemon.health.ip(),
        daemon.health.port()
    );
    std::fs::write(&file, text)?;
    let file = super::text_of(&file);
    let same = dump(&["--config-file", file])?.expect_code(0)?.out;
    ensure!(same == dumped, "{same}");
    finish(bulrush().args(["status", "--config-file", file]))?.expect_code(0)?;

    // This server requires a certificate of agents, and none is given.
    let end = finish(inside(&daemon, "dump").env("TYPHA_SERVERKEYFILE", file))?.expect_code(64)?;
    ensure!(end.err.contains("wants TLS") && end.err.contains("--cert-file"), "{}", end.err);
    Ok(())
}
