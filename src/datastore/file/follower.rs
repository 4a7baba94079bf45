//! Watches: the reloads after a version, one batch each.

use std::sync::Arc;
use std::time::SystemTime;

use futures_util::stream::{self, Stream};
use tokio::sync::watch;

use super::folder::Change;
use super::shared::Shared;
use crate::datastore::inlet::{Error, WatchBatch};
use crate::datastore::selection::Selection;
use crate::model::{AsOf, Revision};

/// The batches of a watch. Ends without an error when the folder is followed no longer.
pub(super) fn batches(
    shared: Arc<Shared>,
    selection: Selection,
    from: Revision,
) -> impl Stream<Item = Result<WatchBatch, Error>> {
    let follower = Follower {
        vouched: shared.vouched.subscribe(),
        shared,
        selection,
        position: from,
        pending: Vec::new(),
        vouched_at: None,
        fresh: true,
    };
    stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next().await {
            Some(Ok(batch)) => Some((Ok(batch), Some(follower))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    })
}

/// A watch of one selection.
struct Follower {
    shared: Arc<Shared>,
    selection: Selection,
    position: Revision,
    vouched: watch::Receiver<Option<SystemTime>>,
    /// Reloads that are not handed on yet, newest first.
    pending: Vec<(u64, Arc<[Change]>)>,
    /// The moment that `pending` leads up to.
    vouched_at: Option<SystemTime>,
    /// The log was not looked at since the start or the last wake-up.
    fresh: bool,
}

impl Follower {
    fn as_of(&self) -> Option<AsOf> {
        self.vouched_at.map(|at| AsOf { revision: self.position.clone(), at })
    }

    /// `None`: the datastore was shut down.
    async fn next(&mut self) -> Option<Result<WatchBatch, Error>> {
        loop {
            if let Some((version, changes)) = self.pending.pop() {
                let events = changes.iter().filter_map(|change| change.event(&self.selection)).collect();
                self.position = Revision::from(version.to_string());
                let as_of = if self.pending.is_empty() { self.as_of() } else { None };
                return Some(Ok(WatchBatch { events, revision: self.position.clone(), as_of }));
            }
            if self.fresh {
                self.fresh = false;
                self.vouched.mark_unchanged();
                self.vouched_at = self.shared.vouched_at();
                let position = self.position.parse::<u64>().ok();
                let after = position.and_then(|position| self.shared.folder().changes_after(position));
                let Some(mut after) = after else {
                    let doing = format!("watch {} in folder {}", self.selection, self.shared.config.path.display());
                    let reason = "this version is too old, or of another run".to_owned();
                    return Some(Err(Error::Relist { doing, revision: self.position.clone(), reason }));
                };
                if after.is_empty() {
                    let as_of = self.as_of();
                    if as_of.is_some() {
                        return Some(Ok(WatchBatch { events: Vec::new(), revision: self.position.clone(), as_of }));
                    }
                } else {
                    after.reverse();
                    self.pending = after;
                    continue;
                }
            }
            if self.vouched.changed().await.is_err() {
                return None;
            }
            self.fresh = true;
        }
    }
}
