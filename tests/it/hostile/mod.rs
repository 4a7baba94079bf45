//! Bounds under hostile clients: the real daemon on a real etcd that keeps changing, many honest readers, and beside them
//! clients that do not read, read slowly, or never finish their handshake.
//!
//! Memory stays within the formula for operators, every honest reader ends with etcd's content,
//! and every cut client is cut for a reason that is logged and counted.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use self::readers::Reader;
use self::source::Source;
use crate::daemon::Daemon;

mod handshakes;
mod readers;
mod slow;
mod source;
mod throttle;
mod unfinished;

/// Memory that a connection may cost.
const PER_CONNECTION: u64 = 3 << 10;
/// Longest time for any step, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Encoded history that a feed may keep: far less than by default, so that slow readers fall behind it within a test.
const MAX_LAG_BYTES: u64 = 256 << 10;
/// The wire formats that readers use, each with a feed of its own.
const WIRES: u64 = 2;

/// A daemon beside its etcd.
struct World {
    source: Source,
    daemon: Daemon,
    /// Peak of the daemon's memory, as of the last look.
    peak: u64,
    _folder: TempDir,
}

impl World {
    /// A filled etcd, and a daemon with these options that is in sync with it. `None`: etcd is left out, the test returns.
    async fn new(options: &[(&str, &str)]) -> anyhow::Result<Option<Self>> {
        let Some(source) = Source::new().await? else { return Ok(None) };
        let folder = TempDir::new()?;
        let (endpoints, max_lag) = (source.url(), MAX_LAG_BYTES.to_string());
        let mut all =
            vec![("DatastoreType", "etcdv3"), ("EtcdEndpoints", &*endpoints), ("ServerMaxLagBytes", &*max_lag)];
        all.extend(options);
        let daemon = Daemon::start(folder.path(), &all)?;
        daemon.wait_ready()?;
        Ok(Some(Self { source, daemon, peak: 0, _folder: folder }))
    }

    /// Goes on changing etcd until `holds` returns true, and checks after every few changes that the history is within its bound.
    async fn churn_until(&mut self, what: &str, mut holds: impl FnMut(&Daemon) -> bool) -> anyhow::Result<()> {
        let (daemon, peak) = (&self.daemon, &mut self.peak);
        let churning = self.source.churn_until(|| {
            let held = daemon.metric("bulrush_feed_bytes{syncer=\"felix\"}")?;
            ensure!(held <= (WIRES * MAX_LAG_BYTES) as f64, "{held} bytes of history are held");
            *peak = daemon.peak_memory()?.max(*peak);
            Ok(holds(daemon))
        });
        let churned = tokio::time::timeout(PATIENCE, churning).await;
        churned
            .with_context(|| format!("{what}: not within {PATIENCE:?}"))
            .and_then(|outcome| outcome)
            .with_context(|| daemon.log())
    }

    /// Fails unless these readers, and a new one, end with etcd's content.
    async fn all_end_right(&self, readers: &[Reader]) -> anyhow::Result<()> {
        let fresh = Reader::start(self.daemon.sync, "fresh", 0)?;
        let expected = fresh.until("etcd's content", |held| held.in_sync && self.source.is_held(&held.values)).await;
        let expected = expected.with_context(|| self.daemon.log())?;
        for reader in readers {
            let same = reader.until("the same", |held| held.in_sync && held.values == expected).await;
            same.with_context(|| self.daemon.log())?;
        }
        Ok(())
    }

    /// Fails if the daemon's memory ever was above the formula for this number of connections (docs/operations.md, *Sizing*).
    fn memory_was_bounded(&mut self, connections: u64) -> anyhow::Result<()> {
        self.memory_was_bounded_beside(connections, 0)
    }

    /// The same with `others` bytes for parts that the manual lists separately.
    fn memory_was_bounded_beside(&mut self, connections: u64, others: u64) -> anyhow::Result<()> {
        self.peak = self.daemon.peak_memory()?.max(self.peak);
        let known = (20 << 20) + self.source.keys() * 1536 + connections * PER_CONNECTION + WIRES * MAX_LAG_BYTES;
        let bound = known + others;
        ensure!(self.peak <= bound, "{} bytes were in use, and at most {bound} should be", self.peak);
        Ok(())
    }

    /// Number of connections that were closed for a reason.
    fn closed(daemon: &Daemon, reason: &str) -> f64 {
        daemon.metric(&format!("bulrush_connections_closed_total{{reason=\"{reason}\"}}")).unwrap_or_default()
    }
}
