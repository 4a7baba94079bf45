//! From a line of a watch to the event that it tells.

use bytes::Bytes;
use kube::core::Status;
use tracing::debug;

use super::failure::Failure;
use super::object::{Line, bookmark, object};
use crate::datastore::inlet::Event;
use crate::model::object::Dialect;
use crate::model::{Revision, gojson, strict};

/// The meaning of a line.
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

/// The version of the object that an event is about, where it tells one.
pub(super) fn revision_of(event: &Event) -> Option<Revision> {
    match event {
        Event::Put(object) | Event::Delete { last: Some(object), .. } => Some(object.revision.clone()),
        Event::Delete { last: None, .. } | Event::Malformed(_) => None,
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
