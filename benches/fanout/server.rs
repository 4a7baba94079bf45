//! The server under test: the daemon just built, another program with the same settings, or one that runs already.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::time::Instant;

use crate::real_etcd::free_port;

/// How long a server may take until it listens, and until it is in sync.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(120);

/// A server under test: a child of ours, or somebody else's.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) pid: u32,
    pub(crate) started: Instant,
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
    /// One that runs already.
    pub(crate) fn running(address: &str, pid: u32) -> anyhow::Result<Self> {
        let address = address.to_socket_addrs()?.next().context("resolve --server")?;
        Ok(Self { address, pid, child: None, started: Instant::now(), _folder: None })
    }

    /// Starts `program`, or the daemon just built, with these variables and Typha's settings for a free port and no logs.
    pub(crate) fn start(program: Option<&Path>, environment: &[(String, String)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = free_port();
        let program = program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_bulrush")));
        let started = Instant::now();
        let child = Command::new(program)
            .arg("--config-file")
            .arg(folder.path().join("none.cfg"))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env("TYPHA_SERVERPORT", port.to_string())
            .env("TYPHA_LOGSEVERITYSCREEN", "WARNING")
            .env("TYPHA_LOGFILEPATH", "none")
            .env("TYPHA_LOGSEVERITYSYS", "none")
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Self { address, pid: child.id(), child: Some(child), started, _folder: Some(folder) })
    }

    /// Waits until it accepts connections.
    pub(crate) async fn wait_listening(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while tokio::net::TcpStream::connect(self.address).await.is_err() {
            ensure!(Instant::now() < deadline, "nothing listens on {}", self.address);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }
}
