//! The daemon under test: a process with a configuration file, observed by its status page and by the kernel.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bulrush::status::{Snapshot, Syncer};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::daemon::http_get;
use crate::proc;
use crate::real_etcd::free_port;

/// Longest time until a daemon is in sync; a debug build on a busy machine is slow.
const SYNC_WITHIN: Duration = Duration::from_secs(180);
/// Pause between two looks at the status: also how exact the time until in sync is.
const LOOK: Duration = Duration::from_millis(10);
/// Most starts with other ports, if a port was taken between choosing and starting.
const PORT_ATTEMPTS: u32 = 5;

/// A running daemon. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Moment just before its start.
    started: Instant,
    /// Address for agents.
    pub(crate) sync: SocketAddr,
    health: SocketAddr,
    /// Holds its configuration and its log.
    folder: TempDir,
}

/// A daemon that has just come in sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Seconds since its start.
    pub(crate) seconds: f64,
    /// CPU seconds so far.
    pub(crate) cpu_secs: f64,
}

impl Server {
    /// Starts `program`, or the daemon just built. `global` is lines for the section of the whole program, `sections` are the further ones.
    pub(crate) fn start(program: Option<&Path>, global: &str, sections: &str) -> anyhow::Result<Self> {
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_bulrush")));
        let folder = tempfile::tempdir()?;
        let loopback = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (sync, health) = (loopback(), loopback());
        let config = folder.path().join("bulrush.cfg");
        fs::write(
            &config,
            format!(
                "[global]\nServerHost = 127.0.0.1\nServerPort = {}\nHealthEnabled = true\nHealthHost = 127.0.0.1\nHealthPort = {}\n\
                 LogSeverityScreen = warning\nLogFilePath = none\nLogSeverityFile = none\nLogSeveritySys = none\n{global}\n{sections}\n",
                sync.port(),
                health.port()
            ),
        )?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("TYPHA_") {
                command.env_remove(name);
            }
        }
        command.arg("--config-file").arg(config).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        Ok(Self { child, started, sync, health, folder })
    }

    /// Starts it, and waits until the syncer is as `fits` says. Starts it again on other ports if a port was taken.
    pub(crate) async fn start_until(
        program: Option<&Path>,
        (global, sections): (&str, &str),
        syncer: &str,
        fits: impl Fn(&Syncer) -> bool,
    ) -> anyhow::Result<(Self, Start)> {
        for _ in 0..PORT_ATTEMPTS {
            let mut server = Self::start(program, global, sections)?;
            if let Some(start) = server.wait_for(syncer, &fits).await? {
                return Ok((server, start));
            }
            ensure!(server.log().contains("in use"), "the daemon ended right after its start:\n{}", server.log());
        }
        bail!("the daemon found a port in use {PORT_ATTEMPTS} times");
    }

    /// Waits until the syncer is in sync and as `fits` says. `None`: the process has ended instead.
    async fn wait_for(&mut self, syncer: &str, fits: impl Fn(&Syncer) -> bool) -> anyhow::Result<Option<Start>> {
        loop {
            let found = self.status().ok().and_then(|status| status.syncers.into_iter().find(|it| it.name == syncer));
            if found.as_ref().is_some_and(|syncer| syncer.status == "in-sync" && fits(syncer)) {
                let seconds = self.started.elapsed().as_secs_f64();
                return Ok(Some(Start { seconds, cpu_secs: self.cpu_secs() }));
            }
            if self.child.try_wait()?.is_some() {
                return Ok(None);
            }
            ensure!(
                self.started.elapsed() < SYNC_WITHIN,
                "the syncer {syncer} is not in sync within {SYNC_WITHIN:?}: {found:#?}\nlog:\n{}",
                self.log()
            );
            sleep(LOOK).await;
        }
    }

    fn status(&self) -> anyhow::Result<Snapshot> {
        let (code, page) = http_get(self.health, "/status")?;
        ensure!(code == 200, "/status answers {code}: {page}");
        Ok(serde_json::from_str(&page)?)
    }

    /// CPU seconds so far.
    pub(crate) fn cpu_secs(&self) -> f64 {
        proc::cpu_secs(self.child.id())
    }

    /// Resident memory now, in MiB.
    pub(crate) fn rss_mib(&self) -> f64 {
        proc::rss_mib(self.child.id())
    }

    /// Peak of resident memory, in MiB.
    pub(crate) fn peak_mib(&self) -> f64 {
        proc::peak_mib(self.child.id())
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
