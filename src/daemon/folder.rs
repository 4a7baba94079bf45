//! Reports the state of folders that are datastores to health and metrics.
//!
//! Metrics are sums over all folders; each folder has a reporter of its own, and the status shows each by itself.

use prometheus::Registry;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::stores::StoreView;
use crate::config::GLOBAL;
use crate::datastore::file::FileStatus;
use crate::health::{HealthAggregator, HealthReport, HealthReporter, REPORT_INTERVAL, REPORT_TIMEOUT, Reports};
use crate::metrics::FolderMetrics;
use crate::tasks::TaskRegistry;

/// The name of the reporter for the folder of the global datastore; the others have their datastore's name behind it. They
/// report readiness only.
const REPORTER: &str = "folder";

fn reporter(datastore: &str) -> String {
    if datastore == GLOBAL { REPORTER.to_owned() } else { format!("{REPORTER}-{datastore}") }
}

/// Starts a task for each folder that reports its state. `counts`: whether the process is ready only with the datastore of this name.
pub(super) fn report_all(
    views: &[StoreView],
    counts: impl Fn(&str) -> bool,
    health: &HealthAggregator,
    registry: &Registry,
    tasks: &TaskRegistry,
    stop: &CancellationToken,
) {
    let mut metrics = None;
    for view in views {
        let Some(files) = view.files.clone() else { continue };
        let name = reporter(&view.name);
        let folder = Reported {
            reporter: health.register(&name, Reports::Ready, REPORT_TIMEOUT),
            counts: counts(&view.name),
            metrics: metrics.get_or_insert_with(|| FolderMetrics::new(registry)).clone(),
            share: (0, 0),
        };
        tasks.spawn(format!("{name}-report"), folder.report(files, stop.clone()));
    }
}

/// A folder that is reported.
struct Reported {
    reporter: HealthReporter,
    /// The process is ready only with this folder.
    counts: bool,
    metrics: FolderMetrics,
    /// Its part of the sums that the metrics are: errors, and whether it is held.
    share: (i64, i64),
}

impl Reported {
    fn tell(&mut self, status: &FileStatus) {
        let share = (i64::try_from(status.error_count).unwrap_or(i64::MAX), i64::from(status.held.is_some()));
        let before = std::mem::replace(&mut self.share, share);
        self.metrics.errors.add(share.0 - before.0);
        self.metrics.held.add(share.1 - before.1);
        self.reporter.report(health(status, self.counts));
    }

    /// Reports every change, and at intervals without one, until it is cancelled or the folder is no longer followed.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    async fn report(mut self, mut status: watch::Receiver<FileStatus>, cancel: CancellationToken) {
        let reporting = async {
            loop {
                self.tell(&status.borrow_and_update());
                if let Ok(Err(_)) = timeout(REPORT_INTERVAL, status.changed()).await {
                    return;
                }
            }
        };
        cancel.run_until_cancelled(reporting).await;
    }
}

/// Ready once something was loaded, if that counts: later errors take nothing away from agents.
fn health(status: &FileStatus, counts: bool) -> HealthReport {
    let detail = match (&status.held, status.errors.first()) {
        (Some(held), _) => format!("held: {held}"),
        (None, Some(first)) if status.error_count > 1 => format!("{first}; and {} more", status.error_count - 1),
        (None, Some(first)) => first.to_string(),
        (None, None) => String::new(),
    };
    HealthReport { live: true, ready: status.version > 0 || !counts, detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::datastore::file::FileError;

    fn broken(file: &str) -> FileError {
        FileError { file: file.to_owned(), line: Some(3), reason: "odd".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn health_and_metrics_follow_the_folder() {
        let (sender, receiver) = watch::channel(FileStatus::default());
        let (aggregator, registry) = (HealthAggregator::new(), Registry::new());
        let (metrics, cancel) = (FolderMetrics::new(&registry), CancellationToken::new());
        let reporter = aggregator.register(REPORTER, Reports::Ready, REPORT_TIMEOUT);
        let folder = Reported { reporter, counts: true, metrics: metrics.clone(), share: (0, 0) };
        let task = tokio::spawn(folder.report(receiver, cancel.clone()));
        let held = FileStatus { held: Some("a.yaml:3: odd".to_owned()), ..FileStatus::default() };
        let errors = vec![broken("a.yaml"), broken("b.yaml")];
        let bad = FileStatus { version: 1, error_count: 2, errors, ..FileStatus::default() };
        let good = FileStatus { version: 2, ..FileStatus::default() };
        for (status, ready, detail, numbers) in [
            (held, false, "held: a.yaml:3: odd", (0, 1)),
            (bad, true, "a.yaml:3: odd; and 1 more", (2, 0)),
            (good, true, "| -", (0, 0)),
        ] {
            sender.send_replace(status);
            // Much longer than a report counts.
            tokio::time::sleep(Duration::from_secs(100)).await;
            let summary = aggregator.summary();
            assert_eq!(summary.ready, ready, "{}", summary.table);
            assert!(summary.table.contains(detail), "{}", summary.table);
            assert_eq!((metrics.errors.get(), metrics.held.get()), numbers);
        }
        cancel.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn several_folders_have_reporters_of_their_own_and_add_up() {
        let (aggregator, registry) = (HealthAggregator::new(), Registry::new());
        let metrics = FolderMetrics::new(&registry);
        let held = FileStatus { held: Some("a.yaml:3: odd".to_owned()), error_count: 2, ..FileStatus::default() };
        let loaded = FileStatus { version: 1, error_count: 3, ..FileStatus::default() };
        let mut folders = [(GLOBAL, true), ("git", false)].map(|(name, counts)| Reported {
            reporter: aggregator.register(&reporter(name), Reports::Ready, REPORT_TIMEOUT),
            counts,
            metrics: metrics.clone(),
            share: (0, 0),
        });
        for (global, git, ready, numbers) in [
            (&held, &held, false, (4, 2)),
            (&loaded, &held, true, (5, 1)),
            (&loaded, &loaded, true, (6, 0)),
            (&held, &loaded, false, (5, 1)),
        ] {
            folders[0].tell(global);
            folders[1].tell(git);
            let summary = aggregator.summary();
            assert_eq!(summary.ready, ready, "{}", summary.table);
            assert!(["folder ", "folder-git "].iter().all(|name| summary.table.contains(name)), "{}", summary.table);
            assert_eq!((metrics.errors.get(), metrics.held.get()), numbers);
        }
    }
}
