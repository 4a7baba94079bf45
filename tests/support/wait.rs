//! Waiting for what another process does: bounded, and named when it does not come.

use std::time::Duration;

use anyhow::Context as _;

/// Pause between two looks at another process.
const LOOK: Duration = Duration::from_millis(20);

/// Looks again and again until there is something to return, at most for so long; `what` names it in the failure.
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(within, looking).await.with_context(|| format!("{what}: not within {within:?}"))
}
