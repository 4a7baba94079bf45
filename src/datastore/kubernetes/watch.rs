//! Watches: the changes of a kind from a revision on.
//!
//! ```text
//!  a list's stream that goes on ──┐
//!                                 ├──► lines ──► batches: events, bookmarks ──► ended | cut | silent | ERROR
//!  opened at the position ────────┘
//! ```

use std::sync::Arc;

use futures_util::stream::{self, Stream};
use rand::Rng;

use super::failure::{Failure, Resource};
use super::kind_state::KindState;
use super::shared::Shared;
use super::stream::OpenWatch;
use crate::datastore::inlet::{Error, WatchBatch};
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::model::object::Dialect;

/// How long the server keeps a watch open, in seconds: each picks a time of its own, so that watches wander between API
/// servers and do not end together. As Kubernetes' own clients have it.
const OPEN_SECONDS: std::ops::RangeInclusive<u32> = 300..=600;

enum State {
    Start,
    Open(Box<OpenWatch>),
    Over,
}

/// The batches of a watch. Ends without an error when nothing is wrong with the position.
pub(super) fn batches(
    shared: Arc<Shared>,
    selection: Selection,
    from: Revision,
) -> impl Stream<Item = Result<WatchBatch, Error>> {
    stream::unfold((shared, selection, from, State::Start), |(shared, selection, from, state)| async move {
        let mut open = match state {
            State::Over => return None,
            State::Open(open) => open,
            State::Start => match Box::pin(start(&shared, &selection, &from)).await {
                Ok(open) => Box::new(open),
                Err(error) => return Some((Err(error), (shared, selection, from, State::Over))),
            },
        };
        match open.batch(&shared.client).await {
            Ok(Some(batch)) => Some((Ok(batch), (shared, selection, from, State::Open(open)))),
            Ok(None) => {
                shared.with(&selection, KindState::watch_ended);
                None
            }
            Err(failure) => {
                let failure = shared.watch_failed(&selection, failure, open.revision());
                let error = shared.error("watch", &selection, Some(open.resource()), failure, open.revision()).await;
                Some((Err(error), (shared, selection, from, State::Over)))
            }
        }
    })
}

async fn start(shared: &Shared, selection: &Selection, from: &Revision) -> Result<OpenWatch, Error> {
    if let Some(open) = shared.with(selection, |state| state.continued(from)) {
        return Ok(open);
    }
    let (resource, dialect) = match shared.locate(selection).await {
        Ok(located) => located,
        Err(failure) => return Err(shared.error("watch", selection, None, failure, from).await),
    };
    match self::open(shared, selection, resource, dialect, from, &[("resourceVersion", from)]).await {
        Ok(open) => Ok(open),
        Err((resource, failure)) => {
            let failure = shared.watch_failed(selection, failure, from);
            Err(shared.error("watch", selection, Some(&resource), failure, from).await)
        }
    }
}

/// Asks for a watch from `from` on.
///
/// # Errors
/// The fault, with the resource that was asked for.
pub(super) async fn open(
    shared: &Shared,
    selection: &Selection,
    resource: Resource,
    dialect: Dialect,
    from: &Revision,
    query: &[(&str, &str)],
) -> Result<OpenWatch, (Resource, Failure)> {
    let seconds = rand::rng().random_range(OPEN_SECONDS).to_string();
    let mut all = vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", seconds.as_str())];
    all.extend_from_slice(query);
    match shared.client.open(&resource.url(selection, &all)).await {
        Ok(response) => {
            shared.found(selection);
            let probe = resource.url(selection, &[("limit", "1")]);
            Ok(OpenWatch::new(response.into_body(), probe, resource, dialect, from))
        }
        Err(failure) => Err((resource, failure)),
    }
}
