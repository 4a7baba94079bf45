//! Signals to a daemon with connected clients: drain, end at once, reload, heap profile.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;
use tokio::time::Instant;

use super::{Served, Watcher, pool, text_of};
use crate::daemon::{Daemon, eventually, http_get};

/// A shutdown time longer than any test.
const NEVER: &str = "3000";
/// Longest time for an end at once, on a busy machine: less than the shutdown times in these tests.
const AT_ONCE: Duration = Duration::from_secs(4);
/// Switches jemalloc's sampling on.
const SAMPLING: (&str, &str) = ("MALLOC_CONF", "prof:true,prof_active:true,lg_prof_sample:19");

fn phase(daemon: &Daemon) -> Option<String> {
    let (_, page) = http_get(daemon.health, "/status").ok()?;
    let status: Value = serde_json::from_str(&page).ok()?;
    status["phase"].as_str().map(str::to_owned)
}

fn wait_for_log(daemon: &Daemon, text: &str) -> anyhow::Result<()> {
    let seen = || daemon.log().contains(text).then_some(());
    eventually(&format!("the log says {text:?}"), seen).map_err(|error| error.context(daemon.log()))
}

/// Sends the daemon a signal, and fails unless it ends at once.
fn ends_at_once(daemon: &mut Daemon) -> anyhow::Result<()> {
    let began = Instant::now();
    daemon.end()?;
    ensure!(began.elapsed() < AT_ONCE, "it ended after {:?}, not at once:\n{}", began.elapsed(), daemon.log());
    Ok(())
}

#[test]
fn the_first_signal_drains_and_ends_with_0() -> anyhow::Result<()> {
    for signal in ["TERM", "INT"] {
        let served = Served::new()?;
        let mut daemon = served.daemon(&[("ShutdownConnectionDropIntervalMaxSecs", "0.05")])?;
        let watchers: Vec<Watcher> = (0..3).map(|_| Watcher::start(&daemon, &[])).collect::<anyhow::Result<_>>()?;
        daemon.signal(signal)?;
        ensure!(daemon.wait()?.code() == Some(0), "{signal}: {}", daemon.log());
        for watcher in watchers {
            watcher.wait_for("shutting down gracefully")?;
        }
        let log = daemon.log();
        ensure!(log.contains("told to end: draining") && log.trim_end().contains("ended"), "{signal}: {log}");
        ensure!(!log.contains("ERROR") && !log.contains("panicked"), "{signal}: {log}");
    }
    Ok(())
}

#[test]
fn the_second_signal_ends_at_once_with_0() -> anyhow::Result<()> {
    let served = Served::new()?;
    let options = [("ShutdownTimeoutSecs", NEVER), ("ShutdownConnectionDropIntervalMaxSecs", NEVER)];
    let mut daemon = served.daemon(&options)?;
    let _watchers: Vec<Watcher> = (0..3).map(|_| Watcher::start(&daemon, &[])).collect::<anyhow::Result<_>>()?;
    daemon.signal("TERM")?;
    eventually("the daemon drains", || phase(&daemon).filter(|phase| phase == "draining"))?;
    ensure!(daemon.metric("typha_connections_active")? > 0.0, "clients are left:\n{}", daemon.log());
    ends_at_once(&mut daemon)
}

#[test]
fn a_daemon_without_clients_ends_at_once() -> anyhow::Result<()> {
    let served = Served::new()?;
    let mut daemon = served.daemon(&[("ShutdownTimeoutSecs", NEVER)])?;
    ends_at_once(&mut daemon)
}

#[test]
fn a_hang_up_reads_the_folder_again() -> anyhow::Result<()> {
    let served = Served::new()?;
    // With this quiet time, file events cause no reload during the test.
    let daemon = served.daemon(&[("FileQuietSecs", NEVER)])?;
    let watcher = Watcher::start(&daemon, &[])?;
    for (signal, net) in [("HUP", "10.2.0.0"), ("USR1", "10.3.0.0")] {
        served.write(&format!("{signal}.yaml"), &pool(&signal.to_lowercase(), &format!("{net}/16")))?;
        daemon.signal(signal)?;
        watcher.wait_for(&format!("+ /calico/v1/ipam/v4/pool/{net}-16"))?;
    }
    Ok(())
}

/// The profiles in a folder.
fn profiles(served: &Served) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(served.scratch.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            found.push(path);
        }
    }
    Ok(found)
}

#[test]
fn each_user_signal_writes_one_heap_profile() -> anyhow::Result<()> {
    let served = Served::new()?;
    let path = served.scratch.path().join("heap-<timestamp>.pb.gz");
    let daemon = served.daemon_in(&[("DebugMemoryProfilePath", text_of(&path))], &[SAMPLING])?;
    for count in 1..=2 {
        daemon.signal("USR1")?;
        let written = || (daemon.log().matches("wrote a heap profile").count() >= count).then_some(());
        eventually("a heap profile is written", written).map_err(|error| error.context(daemon.log()))?;
    }
    let written = daemon.log().matches("wrote a heap profile").count();
    ensure!(written == 2, "two signals, {written} profiles:\n{}", daemon.log());
    let files = profiles(&served)?;
    ensure!(!files.is_empty(), "{}", daemon.log());
    for file in files {
        ensure!(fs::read(&file)?.starts_with(&[0x1f, 0x8b]), "{} is no gzip", file.display());
    }
    Ok(())
}

#[test]
fn a_heap_profile_without_sampling_is_explained_and_harmless() -> anyhow::Result<()> {
    let served = Served::new()?;
    let path = served.scratch.path().join("heap.pb.gz");
    let daemon = served.daemon(&[("DebugMemoryProfilePath", text_of(&path))])?;
    daemon.signal("USR1")?;
    wait_for_log(&daemon, "heap profiling is off")?;
    ensure!(profiles(&served)?.is_empty(), "{}", daemon.log());
    ensure!(http_get(daemon.health, "/readiness")?.0 == 200, "it goes on");
    Ok(())
}

#[test]
fn a_client_finds_the_daemon_again_after_a_restart() -> anyhow::Result<()> {
    let served = Served::new()?;
    let mut daemon = served.daemon(&[])?;
    let watcher = Watcher::start(&daemon, &[])?;
    let sync = daemon.sync;
    daemon.end()?;
    served.write("second.yaml", &pool("second", "10.2.0.0/16"))?;
    served.remove("pool.yaml")?;
    let options = [("DatastoreType", "file"), ("DatastorePath", text_of(served.data.path()))];
    let _restarted = Daemon::start_at(served.scratch.path(), &options, sync)?;
    watcher.wait_for("+ /calico/v1/ipam/v4/pool/10.2.0.0-16")?;
    watcher.wait_for("- /calico/v1/ipam/v4/pool/10.1.0.0-16")?;
    Ok(())
}
