//! Watches: the changes of a kind from a revision on.
//!
//! ```text
//!  a list's stream that goes on ──┐
//!                                 ├──► lines ──► batches: events, bookmarks ──► ended | cut | silent | ERROR
//!  opened at the position ────────┘
//! ```
//!
//! A stream that ends, breaks or falls silent ends in an orderly way: nothing is lost by that, since the position is known.
//! What the server says about the position itself (an ERROR event) is an error, and so is a server that turns out to be behind
//! it: its datastore was restored from a backup, and it would be silent until history repeats.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use rand::Rng;
use tokio::time::timeout;
use tracing::debug;

use super::super::{Dialect, Error, Event, Kind, WatchBatch};
use super::Shared;
use super::failure::{Failure, Resource};
use super::lines::{Lines, MAX_LINE_BYTES};
use super::object::{Line, Page, bookmark, object};
use crate::model::{AsOf, Revision, gojson, strict};

/// How long the server keeps a watch open, in seconds: each picks a time of its own, so that watches wander between API
/// servers and do not end together. As Kubernetes' own clients have it.
const OPEN_SECONDS: std::ops::RangeInclusive<u32> = 300..=600;
/// A watch without a byte for this long counts as cut: the server sends a bookmark every minute.
const SILENT_AFTER: Duration = Duration::from_secs(150);

/// A watch that the server answered.
pub(super) struct OpenWatch {
    body: Body,
    lines: Lines,
    /// A line that was too long came after the lines that were handed on last.
    oversized: bool,
    resource: Resource,
    dialect: Dialect,
    /// Everything up to here has been handed on.
    revision: Revision,
    /// Events that arrived before the end of the initial events and cannot be part of a list: the first of the watch.
    deferred: Vec<Event>,
    /// Said by the server after the events that were handed on last.
    failure: Option<Failure>,
}

/// What the next bytes were.
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
    /// Asks for a watch.
    pub(super) async fn open(
        shared: &Shared,
        kind: &Kind,
        resource: Resource,
        dialect: Dialect,
        from: &Revision,
        query: &[(&str, &str)],
    ) -> Result<Self, (Resource, Failure)> {
        let seconds = rand::rng().random_range(OPEN_SECONDS).to_string();
        let mut all = vec![("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", seconds.as_str())];
        all.extend_from_slice(query);
        let url = shared.url(kind, &resource, &all);
        match shared.client.open(&url).await {
            Ok(response) => {
                shared.crds.found(kind);
                Ok(Self {
                    body: response.into_body(),
                    lines: Lines::default(),
                    oversized: false,
                    resource,
                    dialect,
                    revision: from.clone(),
                    deferred: Vec::new(),
                    failure: None,
                })
            }
            Err(failure) => Err((resource, failure)),
        }
    }

    pub(super) fn revision(&self) -> &Revision {
        &self.revision
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

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

    /// The next batch; `None` when the stream is over.
    async fn batch(&mut self, shared: &Shared, kind: &Kind) -> Result<Option<WatchBatch>, Failure> {
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
            // Whatever it was about is left out of the list, so that agents do not keep what was there before.
            Received::Oversized => {
                return Err(Failure::PositionGone(format!("an event is longer than {MAX_LINE_BYTES} bytes")));
            }
            Received::Silent => {
                debug!(resource = %self.resource.name(), "a watch fell silent");
                let url = shared.url(kind, &self.resource, &[("limit", "1")]);
                // Boxed: seldom, and large.
                return Box::pin(check_future(shared, &url, &self.revision)).await.map(|()| None);
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
async fn check_future(shared: &Shared, url: &str, position: &Revision) -> Result<(), Failure> {
    let Ok(body) = shared.client.get(url).await else { return Ok(()) };
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

/// What a line says.
pub(super) enum Read {
    /// A change.
    Event(Event),
    /// A position, and whether it ends the initial events.
    Bookmark(Revision, bool),
    /// Nothing that we know, or an object without a name.
    Nothing,
}

/// Reads a line.
pub(super) fn read(line: &Bytes, dialect: Dialect) -> Result<Read, Failure> {
    let line = &gojson::utf8(line);
    let parsed: Line<'_> = strict::from_slice(line).map_err(|error| {
        Failure::PositionGone(format!("a watch sent a line that is not an event ({error}); listing again"))
    })?;
    let put_or_delete = |deleted: bool| match object(line, parsed.object, dialect) {
        Ok(object) if deleted => Read::Event(Event::Delete { id: object.id.clone(), last: Some(object) }),
        Ok(object) => Read::Event(Event::Put(object)),
        Err(unreadable) if deleted => match unreadable.id {
            Some(id) => Read::Event(Event::Delete { id, last: None }),
            None => Read::Nothing,
        },
        Err(unreadable) => {
            unreadable.named().map_or(Read::Nothing, |malformed| Read::Event(Event::Malformed(malformed)))
        }
    };
    Ok(match parsed.what {
        "ADDED" | "MODIFIED" => put_or_delete(false),
        "DELETED" => put_or_delete(true),
        "BOOKMARK" => match bookmark(parsed.object) {
            Some(bookmark) => Read::Bookmark(bookmark.revision, bookmark.initial_events_end),
            None => Read::Nothing,
        },
        "ERROR" => {
            let status: Status = serde_json::from_str(parsed.object.get()).unwrap_or_default();
            return Err(Failure::of_event(&status));
        }
        other => {
            debug!(what = other, "an event of a type that is not known");
            Read::Nothing
        }
    })
}

fn revision_of(event: &Event) -> Option<Revision> {
    match event {
        Event::Put(object) | Event::Delete { last: Some(object), .. } => Some(object.revision.clone()),
        Event::Delete { last: None, .. } | Event::Malformed(_) => None,
    }
}

enum State {
    Start,
    Open(Box<OpenWatch>),
    Over,
}

/// The batches of a watch. Ends without an error when nothing is wrong with the position.
pub(super) fn batches(
    shared: Arc<Shared>,
    kind: Kind,
    from: Revision,
) -> impl Stream<Item = Result<WatchBatch, Error>> {
    stream::unfold((shared, kind, from, State::Start), |(shared, kind, from, state)| async move {
        let mut open = match state {
            State::Over => return None,
            State::Open(open) => open,
            State::Start => match Box::pin(start(&shared, &kind, &from)).await {
                Ok(open) => Box::new(open),
                Err(error) => return Some((Err(error), (shared, kind, from, State::Over))),
            },
        };
        match open.batch(&shared, &kind).await {
            Ok(Some(batch)) => Some((Ok(batch), (shared, kind, from, State::Open(open)))),
            Ok(None) => {
                shared.watch_ended(&kind);
                None
            }
            Err(failure) => {
                let failure = shared.watch_failed(&kind, failure, &open.revision);
                let error = shared.error("watch", &kind, Some(&open.resource), failure, &open.revision).await;
                Some((Err(error), (shared, kind, from, State::Over)))
            }
        }
    })
}

async fn start(shared: &Shared, kind: &Kind, from: &Revision) -> Result<OpenWatch, Error> {
    if let Some(open) = shared.continued(kind, from) {
        return Ok(open);
    }
    let (resource, dialect) = match shared.locate(kind).await {
        Ok(located) => located,
        Err(failure) => return Err(shared.error("watch", kind, None, failure, from).await),
    };
    match OpenWatch::open(shared, kind, resource, dialect, from, &[("resourceVersion", from)]).await {
        Ok(open) => Ok(open),
        Err((resource, failure)) => {
            let failure = shared.watch_failed(kind, failure, from);
            Err(shared.error("watch", kind, Some(&resource), failure, from).await)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &'static str) -> Result<Read, Failure> {
        read(&Bytes::from_static(text.as_bytes()), Dialect::Kubernetes)
    }

    #[test]
    fn events_by_type() {
        let object = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}"#;
        for what in ["ADDED", "MODIFIED", "DELETED"] {
            let text = format!(r#"{{"type":"{what}","object":{object}}}"#);
            let Ok(Read::Event(event)) = read(&Bytes::from(text), Dialect::Kubernetes) else { panic!("{what}") };
            assert_eq!(revision_of(&event).as_deref(), Some("7"));
            assert_eq!(matches!(event, Event::Delete { .. }), what == "DELETED");
        }
        assert!(matches!(line(r#"{"type":"NEW","object":{}}"#), Ok(Read::Nothing)));
    }

    #[test]
    fn errors_say_what_to_do() {
        let error = line(
            r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#,
        );
        assert!(matches!(error, Err(Failure::PositionGone(_))));
        let error = line(
            r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"m","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":3}}}"#,
        );
        assert!(matches!(error, Err(Failure::Retry { after: Some(_), .. })));
        assert!(matches!(line("junk"), Err(Failure::PositionGone(_))));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_one_event() {
        let put = line(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":5}}}"#);
        assert!(matches!(put, Ok(Read::Event(Event::Malformed(_)))));
        let gone = line(r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":5}}}"#);
        assert!(matches!(gone, Ok(Read::Event(Event::Delete { last: None, .. }))));
    }
}
