//! A stream of the server that is open: the initial events of a list, and the changes of a watch.
//!
//! A stream that ends, breaks or falls silent ends in an orderly way: nothing is lost by that, since the position is known.
//! An ERROR event, in which the server speaks of the position itself, is an error, and so is a server that turns out to be behind
//! it: its datastore was restored from a backup, and it would be silent until history repeats.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::time::timeout;
use tracing::debug;

use super::client::ApiClient;
use super::events::{Read, read, revision_of};
use super::failure::{Failure, Resource};
use super::lines::{Lines, MAX_LINE_BYTES};
use super::object::Page;
use crate::datastore::inlet::{Event, WatchBatch};
use crate::model::object::Dialect;
use crate::model::{AsOf, Revision, gojson, strict};

/// A watch without a byte for this long counts as cut: the server sends a bookmark every minute.
const SILENT_AFTER: Duration = Duration::from_secs(150);

/// A watch that the server answered.
pub(super) struct OpenWatch {
    body: Body,
    lines: Lines,
    /// A line that was too long came after the lines that were handed on last.
    oversized: bool,
    /// A request whose answer tells how far the server is.
    probe: String,
    resource: Resource,
    dialect: Dialect,
    /// Everything up to here has been handed on.
    revision: Revision,
    /// Events that arrived before the end of the initial events and cannot be part of a list: the first of the watch.
    deferred: Vec<Event>,
    /// Said by the server after the events that were handed on last.
    failure: Option<Failure>,
}

/// The meaning of the next bytes.
pub(super) enum Received {
    /// One line or more.
    Lines(Vec<Bytes>),
    /// The stream is over, for whatever reason.
    Ended,
    /// Nothing came for the time given.
    Silent,
    /// Something that is too long to be taken was skipped.
    Oversized,
}

impl OpenWatch {
    /// The watch from `from` on that the server sends as `body`. `probe` is a request for one object of the same resource.
    pub(super) fn new(body: Body, probe: String, resource: Resource, dialect: Dialect, from: &Revision) -> Self {
        Self {
            body,
            lines: Lines::default(),
            oversized: false,
            probe,
            resource,
            dialect,
            revision: from.clone(),
            deferred: Vec::new(),
            failure: None,
        }
    }

    /// Everything up to here has been handed on.
    pub(super) fn revision(&self) -> &Revision {
        &self.revision
    }

    /// The kind's place in the API.
    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The form of the objects.
    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The list is complete: a watch goes on from here, beginning with `deferred`.
    pub(super) fn listed(&mut self, revision: Revision, deferred: Vec<Event>) {
        self.revision = revision;
        self.deferred = deferred;
    }

    /// Waits for the next lines.
    pub(super) async fn receive(&mut self, patience: Duration) -> Received {
        let mut lines = Vec::new();
        loop {
            if std::mem::take(&mut self.oversized) {
                return Received::Oversized;
            }
            let chunk = match timeout(patience, self.body.frame()).await {
                Err(_) => return Received::Silent,
                Ok(None) => return Received::Ended,
                Ok(Some(Err(error))) => {
                    debug!(resource = %self.resource.name(), %error, "a watch was cut");
                    return Received::Ended;
                }
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => chunk,
                    Err(_trailers) => continue,
                },
            };
            self.oversized |= self.lines.push(chunk, &mut lines).is_err();
            if !lines.is_empty() {
                return Received::Lines(lines);
            }
        }
    }

    /// The next batch; `None` when the stream is over. `client` is asked how far the server is when the stream is silent.
    pub(super) async fn batch(&mut self, client: &ApiClient) -> Result<Option<WatchBatch>, Failure> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if !self.deferred.is_empty() {
            let events = std::mem::take(&mut self.deferred);
            return Ok(Some(WatchBatch { events, revision: self.revision.clone(), as_of: None }));
        }
        let lines = match self.receive(SILENT_AFTER).await {
            Received::Lines(lines) => lines,
            Received::Ended => return Ok(None),
            // The object is left out of the list that follows, so that agents do not keep its old state.
            Received::Oversized => {
                return Err(Failure::PositionGone(format!("an event is longer than {MAX_LINE_BYTES} bytes")));
            }
            Received::Silent => {
                debug!(resource = %self.resource.name(), "a watch fell silent");
                // Boxed: seldom, and large.
                return Box::pin(check_future(client, &self.probe, &self.revision)).await.map(|()| None);
            }
        };
        let mut batch =
            WatchBatch { events: Vec::with_capacity(lines.len()), revision: self.revision.clone(), as_of: None };
        for line in &lines {
            let read = match read(line, self.dialect) {
                Ok(Read::Bookmark(revision, _)) if is_before(&revision, &batch.revision) => Err(gone_back(&revision)),
                other => other,
            };
            match read {
                Ok(Read::Event(event)) => {
                    if let Some(revision) = revision_of(&event) {
                        batch.revision = revision;
                    }
                    batch.events.push(event);
                }
                Ok(Read::Bookmark(revision, _)) => {
                    // A position that did not move vouches for nothing: the server's own watch may be stuck.
                    if batch.revision != revision {
                        batch.as_of = Some(AsOf { revision: revision.clone(), at: SystemTime::now() });
                        batch.revision = revision;
                    }
                }
                Ok(Read::Nothing) => {}
                Err(failure) if batch.events.is_empty() => return Err(failure),
                Err(failure) => {
                    self.failure = Some(failure);
                    break;
                }
            }
        }
        self.revision = batch.revision.clone();
        Ok(Some(batch))
    }
}

/// Fails if the server is behind a position. A read of one object tells, which is as new as the request; whether it can be made
/// at all shows when the watch is opened again.
async fn check_future(client: &ApiClient, probe: &str, position: &Revision) -> Result<(), Failure> {
    let Ok(body) = client.get(probe).await else { return Ok(()) };
    let body = gojson::utf8(&body);
    match strict::from_slice::<Page<'_>>(&body) {
        Ok(page) if is_before(&page.metadata.resource_version, position) => {
            Err(gone_back(&page.metadata.resource_version))
        }
        _ => Ok(()),
    }
}

/// Whether a revision is older than another one, as far as both are numbers. To other clients than this one they are only names,
/// but all API servers have numbers that grow.
fn is_before(revision: &str, other: &str) -> bool {
    matches!((revision.parse::<u64>(), other.parse::<u64>()), (Ok(revision), Ok(other)) if revision < other)
}

fn gone_back(newest: &str) -> Failure {
    Failure::PositionGone(format!(
        "the API server is only at revision {newest}: its datastore was restored or replaced"
    ))
}
