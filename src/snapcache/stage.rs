//! The task that feeds a cache: reads the hand-over, joins all events there into one batch, publishes, reports health.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::SnapCache;
use crate::decoupler;
use crate::model::SyncStatus;

/// How often an idle cache gives a sign of life. Health reports of caches time out after 20 s.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// A sign of life of a cache's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHealth {
    /// The status of the newest crumb; the syncer is ready when this is in-sync.
    pub status: SyncStatus,
}

/// Runs a cache until it is cancelled, or until the previous stage is gone and all of its events are published.
///
/// `report` is called at the start, whenever the status changes, and every [`HEARTBEAT`] from this very task: if the
/// task hangs, the reports stop. It must not block.
pub async fn run(
    mut cache: SnapCache,
    mut from: decoupler::Receiver,
    mut report: impl FnMut(CacheHealth) + Send,
    cancel: CancellationToken,
) {
    let mut batch = Vec::new();
    let mut reported = cache.status();
    report(CacheHealth { status: reported });
    let mut beat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            // Before the data: a cache that is never idle must give signs of life, too.
            _ = beat.tick() => {
                report(CacheHealth { status: reported });
                cache.observe_age(SystemTime::now());
            }
            count = from.recv_batch(&mut batch, cache.max_batch_size()) => {
                if count == 0 {
                    return;
                }
                cache.apply(std::mem::take(&mut batch));
                let status = cache.status();
                if status != reported {
                    reported = status;
                    report(CacheHealth { status });
                }
            }
        }
    }
}
