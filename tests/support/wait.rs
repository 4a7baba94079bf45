//! Waiting for another process, within a time limit.

use std::time::Duration;

use anyhow::Context as _;

/// Pause between two looks at another process.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time for any step of a test within its own process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Awaits a future, for at most [`PATIENCE`].
///
/// # Panics
/// The future takes longer.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("took too long")
}

/// Calls `look` again and again until it returns a value, for at most `within`; `what` names the value in the failure.
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let looking = async {
        // The other process tells nobody, so it is looked at in turns.
        let mut turns = tokio::time::interval(LOOK);
        loop {
            turns.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    tokio::time::timeout(within, looking).await.with_context(|| format!("{what}: not within {within:?}"))
}
