//! Tells the kinds that meet patterns, after every reload that changes them.

use std::sync::Arc;

use futures_util::stream::{self, Stream};
use tokio::sync::watch;

use super::shared::Shared;
use super::status::FileStatus;
use crate::datastore::inlet::Error;
use crate::datastore::pattern::{KindsNow, Pattern};

/// The kinds now, once something was loaded, and again whenever they are others. A folder that is held at first is an error for
/// each reason that there is. Never ends.
pub(super) fn kinds(shared: Arc<Shared>, patterns: Vec<Pattern>) -> impl Stream<Item = Result<KindsNow, Error>> {
    let asker = Asker { status: shared.status.subscribe(), shared, patterns, told: None, said: None };
    stream::unfold(asker, |mut asker| async move { Some((asker.next().await, asker)) })
}

/// Somebody who asks for kinds.
struct Asker {
    shared: Arc<Shared>,
    patterns: Vec<Pattern>,
    status: watch::Receiver<FileStatus>,
    /// The kinds that were told last.
    told: Option<KindsNow>,
    /// The reason that was told last why there are none yet.
    said: Option<String>,
}

impl Asker {
    async fn next(&mut self) -> Result<KindsNow, Error> {
        loop {
            let (loaded, held) = {
                let status = self.status.borrow_and_update();
                (status.version > 0, status.held.clone())
            };
            if loaded {
                let now = self.shared.folder().kinds(&self.patterns);
                if self.told.as_ref() != Some(&now) {
                    self.told = Some(now.clone());
                    return Ok(now);
                }
            } else if held != self.said {
                self.said.clone_from(&held);
                if let Some(reason) = held {
                    let doing = format!("look for kinds in folder {}", self.shared.config.path.display());
                    return Err(Error::Retry { doing, reason });
                }
            }
            if self.status.changed().await.is_err() {
                // The sender is in what we share, so that this cannot happen; and nothing would ever change.
                std::future::pending::<()>().await;
            }
        }
    }
}
