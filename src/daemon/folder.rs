//! Reports the state of a folder that is the datastore to health and metrics.

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::datastore::file::FileStatus;
use crate::health::{HealthReport, HealthReporter, REPORT_INTERVAL};
use crate::metrics::FolderMetrics;

/// The reporter's name: readiness only.
pub(super) const REPORTER: &str = "folder";

/// Reports every change, and at intervals without one, until it is cancelled or the folder is no longer followed.
///
/// # Cancel safety
/// May be dropped at any time.
pub(super) async fn report(
    mut status: watch::Receiver<FileStatus>,
    reporter: HealthReporter,
    metrics: FolderMetrics,
    cancel: CancellationToken,
) {
    let reporting = async {
        loop {
            {
                let status = status.borrow_and_update();
                metrics.errors.set(i64::try_from(status.error_count).unwrap_or(i64::MAX));
                metrics.held.set(i64::from(status.held.is_some()));
                reporter.report(health(&status));
            }
            if let Ok(Err(_)) = timeout(REPORT_INTERVAL, status.changed()).await {
                return;
            }
        }
    };
    cancel.run_until_cancelled(reporting).await;
}

/// Ready once something was loaded: later errors take nothing away from agents.
fn health(status: &FileStatus) -> HealthReport {
    let detail = match (&status.held, status.errors.first()) {
        (Some(held), _) => format!("held: {held}"),
        (None, Some(first)) if status.error_count > 1 => format!("{first}; and {} more", status.error_count - 1),
        (None, Some(first)) => first.to_string(),
        (None, None) => String::new(),
    };
    HealthReport { live: true, ready: status.version > 0, detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::Registry;

    use super::*;
    use crate::datastore::file::FileError;
    use crate::health::{HealthAggregator, REPORT_TIMEOUT, Reports};

    fn broken(file: &str) -> FileError {
        FileError { file: file.to_owned(), line: Some(3), reason: "odd".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn health_and_metrics_follow_the_folder() {
        let (sender, receiver) = watch::channel(FileStatus::default());
        let (aggregator, registry) = (HealthAggregator::new(), Registry::new());
        let (metrics, cancel) = (FolderMetrics::new(&registry), CancellationToken::new());
        let reporter = aggregator.register(REPORTER, Reports::Ready, REPORT_TIMEOUT);
        let task = tokio::spawn(report(receiver, reporter, metrics.clone(), cancel.clone()));
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
}
