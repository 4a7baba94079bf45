//! Liveness and readiness, put together from named reporters.
//!
//! Each stage that can get stuck registers under a name and reports at intervals. The process is *live* when every
//! reporter of liveness has reported so within its time-out, and *ready* when every reporter of readiness has. So the silence
//! of a stuck stage shows, a datastore that is away ends readiness only, and readiness means that all syncers are in sync.
//!
//! The caches and the server report; the health endpoint reads, on a thread of its own. A report takes a short lock and
//! waits for nothing else.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a report counts, for all of Typha's reporters.
pub const REPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two reports of a reporter: half of its time-out.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// The reporter makes progress.
    pub live: bool,
    /// The reporter can serve.
    pub ready: bool,
    /// A few words for the table; may be empty.
    pub detail: String,
}

/// The subjects of a reporter. On other subjects it has no influence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Liveness only.
    Live,
    /// Readiness only.
    Ready,
    /// Both.
    LiveAndReady,
}

impl Reports {
    fn live(self) -> bool {
        self != Self::Ready
    }

    fn ready(self) -> bool {
        self != Self::Live
    }
}

#[derive(Debug)]
struct Entry {
    reports: Reports,
    timeout: Duration,
    latest: HealthReport,
    at: Instant,
}

impl Entry {
    fn timed_out(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= self.timeout
    }
}

/// Puts the reports together. Clones share their reporters.
#[derive(Clone, Debug, Default)]
pub struct HealthAggregator {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
}

/// The state of the whole process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Every reporter of liveness is live.
    pub live: bool,
    /// There is a reporter of readiness, and every one is ready.
    pub ready: bool,
    /// A table of all reporters, sorted by name; empty without reporters.
    pub table: String,
}

/// Reports under one name.
#[derive(Clone, Debug)]
pub struct HealthReporter {
    name: String,
    aggregator: HealthAggregator,
}

impl HealthReporter {
    /// Reports. Takes a short lock; safe to call from async code.
    pub fn report(&self, report: HealthReport) {
        if let Some(entry) = self.aggregator.lock().get_mut(&self.name) {
            entry.latest = report;
            entry.at = Instant::now();
        }
    }

    /// Reports being live, and ready or not.
    pub fn report_live(&self, ready: bool) {
        self.report(HealthReport { live: true, ready, detail: String::new() });
    }
}

impl HealthAggregator {
    /// Without reporters: live, not ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a reporter, neither live nor ready until its first report, whose reports count for `timeout`.
    /// A name that is registered again starts afresh.
    #[must_use]
    pub fn register(&self, name: &str, reports: Reports, timeout: Duration) -> HealthReporter {
        let entry = Entry { reports, timeout, latest: HealthReport::default(), at: Instant::now() };
        self.lock().insert(name.to_owned(), entry);
        HealthReporter { name: name.to_owned(), aggregator: self.clone() }
    }

    /// The state now.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let now = Instant::now();
        let entries = self.lock();
        let mut summary = Summary { live: true, ready: false, table: String::new() };
        let mut all_ready = true;
        let mut rows = vec![["COMPONENT", "TIMEOUT", "LIVENESS", "READINESS", "DETAIL"].map(str::to_owned)];
        for (name, entry) in &*entries {
            let timed_out = entry.timed_out(now);
            if entry.reports.live() {
                summary.live &= entry.latest.live && !timed_out;
            }
            if entry.reports.ready() {
                summary.ready = true;
                all_ready &= entry.latest.ready && !timed_out;
            }
            let cell = |reported: bool, good: bool, what: &str| match (reported, timed_out) {
                (false, _) => "-".to_owned(),
                (true, true) => "timed out".to_owned(),
                (true, false) => format!("reporting {}{what}", if good { "" } else { "non-" }),
            };
            rows.push([
                name.clone(),
                format!("{}s", entry.timeout.as_secs_f64()),
                cell(entry.reports.live(), entry.latest.live, "live"),
                cell(entry.reports.ready(), entry.latest.ready, "ready"),
                if entry.latest.detail.is_empty() { "-".to_owned() } else { entry.latest.detail.clone() },
            ]);
        }
        summary.ready &= all_ready;
        if !entries.is_empty() {
            summary.table = boxed(&rows);
        }
        summary
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // A panic while the lock is held leaves at worst an old report, which its time-out uncovers.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rows with lines around them, the first row as the head.
fn boxed(rows: &[[String; 5]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = widths.iter().fold("+".to_owned(), |line, width| line + &"-".repeat(width + 2) + "+") + "\n";
    let mut out = line.clone();
    for (at, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(out, "| {cell:width$} ");
        }
        out.push_str("|\n");
        if at == 0 {
            out.push_str(&line);
        }
    }
    out.push_str(&line);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_costs_liveness_and_readiness_after_the_timeout() {
        let health = HealthAggregator::new();
        let cache = health.register("felix-cache", Reports::LiveAndReady, REPORT_TIMEOUT);
        assert!(!health.summary().live, "nothing reported yet");
        cache.report_live(true);
        let summary = health.summary();
        assert!(summary.live && summary.ready);
        tokio::time::advance(Duration::from_millis(19_999)).await;
        assert!(health.summary().live);
        tokio::time::advance(Duration::from_millis(1)).await;
        let summary = health.summary();
        assert!(!summary.live && !summary.ready);
        cache.report_live(true);
        assert!(health.summary().live, "it recovers with the next report");
    }

    #[tokio::test(start_paused = true)]
    async fn ready_only_when_all_syncers_are_and_live_while_the_datastore_is_away() {
        let health = HealthAggregator::new();
        let felix = health.register("felix-cache", Reports::LiveAndReady, REPORT_TIMEOUT);
        let bgp = health.register("bgp-cache", Reports::LiveAndReady, REPORT_TIMEOUT);
        let server = health.register("SyncServer", Reports::Live, REPORT_TIMEOUT);
        server.report_live(false);
        felix.report_live(true);
        bgp.report_live(false);
        let summary = health.summary();
        assert!(summary.live && !summary.ready);
        bgp.report_live(true);
        assert!(health.summary().ready, "what SyncServer says of readiness does not count");
        felix.report_live(false);
        assert!(health.summary().live && !health.summary().ready);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_names_every_reporter() {
        let health = HealthAggregator::new();
        assert_eq!(health.summary(), Summary { live: true, ready: false, table: String::new() });
        let felix = health.register("felix-cache", Reports::LiveAndReady, REPORT_TIMEOUT);
        let server = health.register("SyncServer", Reports::Live, REPORT_TIMEOUT);
        server.report_live(true);
        tokio::time::advance(REPORT_TIMEOUT).await;
        felix.report(HealthReport { live: true, ready: false, detail: "resync".to_owned() });
        insta::assert_snapshot!(health.summary().table, @r"
        +-------------+---------+----------------+---------------------+--------+
        | COMPONENT   | TIMEOUT | LIVENESS       | READINESS           | DETAIL |
        +-------------+---------+----------------+---------------------+--------+
        | SyncServer  | 20s     | timed out      | -                   | -      |
        | felix-cache | 20s     | reporting live | reporting non-ready | resync |
        +-------------+---------+----------------+---------------------+--------+
        ");
    }
}
