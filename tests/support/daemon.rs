//! The real daemon as a child process: started with options, observed over its own endpoints, stopped by its process id.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::real_etcd::free_port;
use crate::wait;

/// Longest time for any step, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Ports that were free a moment ago, all different, and none of them `taken`.
fn free_ports_beside<const N: usize>(taken: u16) -> [u16; N] {
    // All are held at once: the system may give the same port again.
    let _held = TcpListener::bind(("127.0.0.1", taken));
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind(("127.0.0.1", 0)).expect("loopback has free ports"));
    listeners.each_ref().map(|listener| listener.local_addr().expect("a bound socket has an address").port())
}

/// Waits until `done` returns a value; `what` names it in the failure. Blocks, also within a runtime: the wait has a thread of its own.
pub(crate) fn eventually<T: Send>(what: &str, mut done: impl FnMut() -> Option<T> + Send) -> anyhow::Result<T> {
    let waiting = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(wait::eventually(what, PATIENCE, async || done()))
    };
    std::thread::scope(|scope| scope.spawn(waiting).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// A running daemon. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
    /// Address for agents.
    pub(crate) sync: SocketAddr,
    /// Health and status endpoints.
    pub(crate) health: SocketAddr,
    /// Prometheus endpoint.
    pub(crate) metrics: SocketAddr,
}

impl Daemon {
    /// Starts the daemon with `TYPHA_` options, on free ports of loopback, and waits until its health endpoint answers.
    /// `folder` receives its log.
    pub(crate) fn start(folder: &Path, options: &[(&str, &str)]) -> anyhow::Result<Self> {
        Self::start_in(folder, options, &[])
    }

    /// The same with further variables in its environment.
    pub(crate) fn start_in(
        folder: &Path,
        options: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::launch(folder, options, environment, SocketAddr::from(([127, 0, 0, 1], free_port())))
    }

    /// The same at a given address for agents, as after a restart.
    pub(crate) fn start_at(folder: &Path, options: &[(&str, &str)], sync: SocketAddr) -> anyhow::Result<Self> {
        Self::launch(folder, options, &[], sync)
    }

    fn launch(
        folder: &Path,
        options: &[(&str, &str)],
        environment: &[(&str, &str)],
        sync: SocketAddr,
    ) -> anyhow::Result<Self> {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let [health, metrics] = free_ports_beside(sync.port()).map(loopback);
        let log = folder.join(format!("bulrush-{}.log", sync.port()));
        let file = File::options().create(true).append(true).open(&log).context("create the daemon's log")?;
        // A low limit of open files, as on many systems: the daemon has to raise it.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_bulrush"), "--config-file"]);
        // Missing, unless the test has written it.
        command.arg(folder.join("typha.cfg"));
        for (name, value) in [
            ("ServerHost", "127.0.0.1"),
            ("ServerPort", &sync.port().to_string()),
            ("HealthEnabled", "true"),
            ("HealthHost", "127.0.0.1"),
            ("HealthPort", &health.port().to_string()),
            ("PrometheusMetricsEnabled", "true"),
            ("PrometheusMetricsHost", "127.0.0.1"),
            ("PrometheusMetricsPort", &metrics.port().to_string()),
            ("LogFilePath", "none"),
            ("LogSeverityFile", "none"),
            ("LogSeveritySys", "none"),
            ("ShutdownTimeoutSecs", "5"),
        ]
        .iter()
        .chain(options)
        {
            command.env(format!("TYPHA_{}", name.to_uppercase()), value);
        }
        command.envs(environment.iter().copied());
        let child =
            command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn().context("start the daemon")?;
        let mut daemon = Self { child, log, sync, health, metrics };
        let up = eventually("the health endpoint answers", || {
            let exited = daemon.child.try_wait().ok().flatten();
            exited.map(Err).or_else(|| http_get(daemon.health, "/liveness").ok().map(Ok))
        });
        match up {
            Ok(Ok(_)) => Ok(daemon),
            Ok(Err(status)) => bail!("the daemon ended with {status}:\n{}", daemon.log()),
            Err(error) => bail!("{error}:\n{}", daemon.log()),
        }
    }

    /// Waits until it is ready, which is when all syncers are in sync.
    pub(crate) fn wait_ready(&self) -> anyhow::Result<()> {
        let ready = || http_get(self.health, "/readiness").ok().filter(|(code, _)| *code == 200).map(drop);
        eventually("the daemon is ready", ready).with_context(|| format!("log:\n{}", self.log()))
    }

    /// The value of a metric that has exactly this name and labels, for example `typha_cache_size{syncer="felix"}`.
    pub(crate) fn metric(&self, series: &str) -> anyhow::Result<f64> {
        let (_, page) = http_get(self.metrics, "/metrics")?;
        let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok());
        value.with_context(|| format!("{series} is not on the metrics page"))
    }

    /// Its whole log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Allocated memory now, in bytes: without the pages of the program itself, which only grow and are many in a
    /// build with debug information.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let [allocated] = self.in_status(["RssAnon:"])?;
        Ok(allocated)
    }

    /// Peak of allocated memory, in bytes.
    pub(crate) fn peak_memory(&self) -> anyhow::Result<u64> {
        let [peak, files, shared, allocated] = self.in_status(["VmHWM:", "RssFile:", "RssShmem:", "RssAnon:"])?;
        Ok(peak.saturating_sub(files + shared).max(allocated))
    }

    /// The kernel's figures of its memory under these names, all of the same moment, in bytes.
    fn in_status<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<[u64; N]> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let mut values = [0; N];
        for (value, name) in values.iter_mut().zip(names) {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
            let kib: u64 = line.split_whitespace().next().context("a number")?.parse()?;
            *value = kib << 10;
        }
        Ok(values)
    }

    /// Sends it a signal by name, for example `TERM`.
    pub(crate) fn signal(&self, name: &str) -> anyhow::Result<()> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status()?;
        anyhow::ensure!(status.success(), "kill -{name} {}: {status}", self.pid());
        Ok(())
    }

    /// Asks it to end, and waits until it has with status 0.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        self.signal("TERM")?;
        anyhow::ensure!(self.wait()?.code() == Some(0), "{}", self.log());
        Ok(())
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let status = eventually("the daemon ends", || self.child.try_wait().ok().flatten());
        status.with_context(|| format!("log:\n{}", self.log()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("log of the daemon:\n{}", self.log());
        }
    }
}

/// A process that does not outlive its test.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Asks it to end, and waits until it has.
    pub(crate) fn end(&mut self) -> anyhow::Result<Option<i32>> {
        Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status()?;
        let ended = eventually("the daemon ends", || self.0.try_wait().ok().flatten())?;
        Ok(ended.code())
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bare HTTP GET: status code and body.
pub(crate) fn http_get(server: SocketAddr, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer has a head")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("an HTTP answer has a status")?;
    Ok((code, body.to_owned()))
}
