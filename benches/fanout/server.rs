//! The server under test: the daemon just built, another program with the same settings, or a running server.

use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

use crate::proc;
use crate::real_etcd::free_port;
use crate::tls::{self, Tls};

/// Longest time until a server listens, and until it is in sync.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(120);

/// Limit of connections: more than a bench makes.
const MOST_CONNECTIONS: usize = 1_000_000;

/// A server under test: a child of ours, or another process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// TLS of agents with it, if used.
    pub(crate) tls: Option<Tls>,
    pub(crate) started: Instant,
    /// Process id. Unknown for a server elsewhere: then CPU time and memory are left out.
    pub(crate) pid: Option<u32>,
    child: Option<Child>,
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

impl Server {
    /// A server that runs already.
    pub(crate) fn running(address: &str, pid: Option<u32>, tls: Option<Tls>) -> anyhow::Result<Self> {
        let resolved = address.to_socket_addrs().with_context(|| format!("resolve --server {address}"))?.next();
        let address = resolved.with_context(|| format!("--server {address} has no address"))?;
        Ok(Self { address, tls, started: Instant::now(), pid, child: None, _folder: None })
    }

    /// Starts `program`, or the daemon just built, with these variables and Typha's settings for a free port, and
    /// warnings and errors written to `log`.
    pub(crate) fn start(
        program: Option<&Path>,
        environment: &[(String, String)],
        with_tls: bool,
        log: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = free_port();
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_bulrush")));
        let (tls, tls_environment) = if with_tls {
            let (tls, environment) = tls::issue(folder.path())?;
            (Some(tls), environment)
        } else {
            (None, Vec::new())
        };
        let log = match log {
            Some(path) => File::create(path).with_context(|| format!("create {}", path.display()))?.into(),
            None => Stdio::null(),
        };
        let started = Instant::now();
        let child = Command::new(program)
            .arg("--config-file")
            .arg(folder.path().join("none.cfg"))
            .envs(environment.iter().chain(&tls_environment).map(|(name, value)| (name, value)))
            .env("TYPHA_SERVERPORT", port.to_string())
            // Above this limit servers close connections, in favour of other servers. Here is no other.
            .env("TYPHA_MAXCONNECTIONSUPPERLIMIT", MOST_CONNECTIONS.to_string())
            .env("TYPHA_LOGSEVERITYSCREEN", "WARNING")
            .env("TYPHA_LOGFILEPATH", "none")
            .env("TYPHA_LOGSEVERITYSYS", "none")
            .stdout(log)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self { address, tls, started, pid: Some(child.id()), child: Some(child), _folder: Some(folder) })
    }

    /// Waits until it accepts connections. False if it has ended instead, for example because its port was taken.
    pub(crate) async fn listens(&mut self) -> anyhow::Result<bool> {
        let deadline = Instant::now() + START_LIMIT;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            if let Some(child) = &mut self.child
                && child.try_wait()?.is_some()
            {
                return Ok(false);
            }
            ensure!(Instant::now() < deadline, "nothing listens on {}", self.address);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(true)
    }

    /// CPU seconds so far.
    pub(crate) fn cpu_secs(&self) -> Option<f64> {
        self.pid.map(proc::cpu_secs)
    }

    /// Resident memory now, in MiB.
    pub(crate) fn rss_mib(&self) -> Option<f64> {
        self.pid.map(proc::rss_mib)
    }

    /// Peak of resident memory, in MiB.
    pub(crate) fn peak_mib(&self) -> Option<f64> {
        self.pid.map(proc::peak_mib)
    }
}
