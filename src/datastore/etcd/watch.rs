//! Watches: the changes below a prefix from a revision on.
//!
//! ```text
//!  open on an endpoint ──► created ──► batches: events, progress ──► ended | cancelled | lost | silent
//!                             │
//!                             └─► other cluster, or a cluster that is behind the position: relist
//! ```
//!
//! [`Position`] is the state machine (no I/O): what a response says, and where to continue from. Responses come in
//! fragments, so that a revision that changes very many keys needs no huge message; the position passes a revision only
//! after its last fragment. Progress notifications move it while the kind is quiet, so that compaction does not overtake it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use etcd_client::proto::{PbEvent, PbWatchResponse};
use etcd_client::{GetOptions, WatchOptions, WatchRequestSender, WatchResponseStream};
use futures_util::FutureExt;
use futures_util::stream::{self, Stream};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use super::config::MAX_MESSAGE_BYTES;
use super::endpoints::Connection;
use super::failure::Failure;
use super::object::{Layout, revision_text};
use super::shared::Shared;
use crate::datastore::inlet::{Error, Event, Malformed, WatchBatch};
use crate::model::{AsOf, Revision};

/// How often a quiet watch asks how far it is. Costs a few bytes per kind; bounds how old the `as_of` of a quiet kind is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// A watch that was asked how far it is, several times, and says nothing for this long counts as cut.
const SILENT_AFTER: Duration = Duration::from_secs(30);
/// The same where that cannot be asked: etcd tells by itself every ten minutes, unless it is configured otherwise.
const SILENT_UNASKED_AFTER: Duration = Duration::from_secs(15 * 60);
/// `mvccpb.Event.EventType` of a deletion; everything else is a put.
const EVENT_DELETE: i32 = 1;

/// The batches of a watch. Ends without an error when etcd closes it in an orderly way.
pub(super) fn batches(
    shared: Arc<Shared>,
    layout: Layout,
    from: Revision,
) -> impl Stream<Item = Result<WatchBatch, Error>> {
    // Boxed once: it is handed from batch to batch.
    let watch = Box::new(Watch { shared, position: Position { layout, delivered: 0 }, from, open: None });
    stream::unfold(Some(watch), |watch| async move {
        let mut watch = watch?;
        match watch.next().await {
            Ok(Some(batch)) => Some((Ok(batch), Some(watch))),
            Ok(None) => None,
            Err(failure) => {
                let position = &watch.position;
                let url = watch
                    .open
                    .as_ref()
                    .map_or_else(|| watch.shared.endpoints.urls(), |open| open.connection.url.to_string());
                let doing = format!("watch {} below {} in etcd at {url}", position.layout.kind, position.layout.range);
                let at = if position.delivered > 0 { revision_text(position.delivered) } else { watch.from.clone() };
                Some((Err(failure.into_error(doing, &at)), None))
            }
        }
    })
}

struct Watch {
    shared: Arc<Shared>,
    position: Position,
    from: Revision,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    ask_progress: Option<Interval>,
}

impl Watch {
    async fn next(&mut self) -> Result<Option<WatchBatch>, Failure> {
        if self.open.is_none() {
            self.position.delivered = self
                .from
                .parse()
                .map_err(|_| Failure::PositionGone(format!("{:?} is no revision of etcd", self.from)))?;
            // Boxed: the client's future for this is very large, and none of it is needed for the batches that follow.
            self.open = Some(Box::pin(self.open()).await?);
        }
        let Open { connection, requests, responses, ask_progress } = self.open.as_mut().expect("was just opened");
        loop {
            // A full or closed request queue shows in the responses, which is where it is handled.
            let ask = || drop(requests.request_progress().now_or_never());
            let failure = match answered(responses.message(), ask_progress, ask).await {
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(response))) => match self.position.advance(response.0) {
                    Ok(Some(batch)) => return Ok(Some(batch)),
                    Ok(None) => continue,
                    Err(failure) => failure,
                },
                Ok(Err(error)) => {
                    self.shared.endpoints.failed(connection);
                    return Err(Failure::of(&error));
                }
                Err(patience) => Failure::Endpoint(format!(
                    "no sign of life of a watch for {patience:?}, although its connection is alive; check this etcd member, \
                     and any proxy in between"
                )),
            };
            if matches!(failure, Failure::Endpoint(_)) {
                self.shared.endpoints.failed(connection);
            }
            return Err(failure);
        }
    }

    async fn open(&self) -> Result<Open, Failure> {
        let start = self.position.delivered.saturating_add(1);
        let opened = |connection: Connection| {
            let prefix = self.position.layout.range.clone();
            async move {
                let options =
                    WatchOptions::new().with_prefix().with_start_revision(start).with_progress_notify().with_fragment();
                let mut client = connection.client.watch_client().max_decoding_message_size(MAX_MESSAGE_BYTES);
                let stream = client.watch(prefix, Some(options)).await.map_err(|error| Failure::of(&error))?;
                let (requests, mut responses) = stream.split();
                let Some(created) = responses.message().await.map_err(|error| Failure::of(&error))? else {
                    return Err(Failure::Endpoint("etcd closed the watch at once; it may be shutting down".to_owned()));
                };
                if created.canceled() {
                    return Err(Failure::of_cancel(created.compact_revision(), created.cancel_reason()));
                }
                let safe = connection.progress_is_safe().await;
                let ask_progress = safe.then(|| {
                    let mut interval = interval(PROGRESS_INTERVAL);
                    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
                    interval
                });
                let header = created.0.header.unwrap_or_default();
                if self.shared.cluster_of(&self.position.layout.range).is_some_and(|listed| listed != header.cluster_id)
                {
                    return Err(Failure::PositionGone(
                        "another etcd cluster answers than the one that was listed".to_owned(),
                    ));
                }
                if header.revision < self.position.delivered {
                    self.check_future(&connection).await?;
                }
                Ok(Open { connection, requests, responses, ask_progress })
            }
        };
        self.shared.endpoints.request(opened).await
    }

    /// The member is behind our position. Either it lags, which mends itself, or the cluster was restored from a backup,
    /// and the watch would be silent until history repeats: a read through the quorum tells.
    async fn check_future(&self, connection: &Connection) -> Result<(), Failure> {
        let options = GetOptions::new().with_prefix().with_count_only();
        let mut client = connection.client.kv_client();
        let response = client
            .get(self.position.layout.range.as_str(), Some(options))
            .await
            .map_err(|error| Failure::of(&error))?;
        let newest = response.header().map_or(0, etcd_client::ResponseHeader::revision);
        if newest < self.position.delivered {
            return Err(Failure::PositionGone(format!(
                "etcd is only at revision {newest}: it was restored or replaced"
            )));
        }
        Ok(())
    }
}

/// Waits for a response, and asks in between how far the watch is, where that can be asked. Fails with the time after which it
/// was given up: keep-alive of the connection proves a connection, not that somebody at its other end serves the watch.
async fn answered<T>(
    receive: impl Future<Output = T>,
    ask_progress: &mut Option<Interval>,
    mut ask: impl FnMut(),
) -> Result<T, Duration> {
    let patience = if ask_progress.is_some() { SILENT_AFTER } else { SILENT_UNASKED_AFTER };
    let asking = async {
        match ask_progress {
            Some(interval) => loop {
                interval.tick().await;
                ask();
            },
            None => std::future::pending::<Infallible>().await,
        }
    };
    let waiting = async {
        tokio::select! {
            // An answer that is there already counts, however late we come to look.
            biased;
            answer = receive => answer,
            never = asking => match never {},
        }
    };
    timeout(patience, waiting).await.map_err(|_| patience)
}

/// How far a watch is, and what a response means for it.
struct Position {
    layout: Layout,
    /// Everything up to this revision has been delivered.
    delivered: i64,
}

impl Position {
    /// Reads a response. `None`: nothing to hand on.
    fn advance(&mut self, response: PbWatchResponse) -> Result<Option<WatchBatch>, Failure> {
        if response.canceled {
            return Err(Failure::of_cancel(response.compact_revision, &response.cancel_reason));
        }
        if response.created {
            return Ok(None);
        }
        let Some(last) = response.events.last().and_then(|event| event.kv.as_ref()).map(|kv| kv.mod_revision) else {
            let header = response.header.unwrap_or_default();
            self.delivered = self.delivered.max(header.revision);
            let as_of = AsOf { revision: revision_text(header.revision), at: SystemTime::now() };
            return Ok(Some(WatchBatch {
                events: Vec::new(),
                revision: revision_text(self.delivered),
                as_of: Some(as_of),
            }));
        };
        // More of this revision may be in the next fragment.
        let complete = if response.fragment { last - 1 } else { last };
        self.delivered = self.delivered.max(complete);
        let events = response.events.into_iter().filter_map(|event| self.event(event)).collect();
        Ok(Some(WatchBatch { events, revision: revision_text(self.delivered), as_of: None }))
    }

    fn event(&self, event: PbEvent) -> Option<Event> {
        let kv = event.kv?;
        if event.r#type != EVENT_DELETE {
            return Some(match self.layout.object(&kv.key, kv.value, kv.mod_revision) {
                Ok(object) => Event::Put(object),
                Err(malformed) => Event::Malformed(malformed),
            });
        }
        let id = match self.layout.id(&kv.key) {
            Ok(id) | Err(Malformed { id, .. }) => id,
        };
        // Nobody needs the last value of a key, and etcd would have to read the one before for every change.
        Some(Event::Delete { id, last: None })
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbKeyValue, PbResponseHeader};

    use super::*;
    use crate::calico::kinds;
    use crate::datastore::catalog::ValueForm;

    fn position(delivered: i64) -> Position {
        let kind = kinds::IP_POOL;
        let prefix = kind.etcd_prefix.clone().unwrap().into_owned();
        Position { layout: Layout { kind, range: prefix.clone(), prefix, form: ValueForm::Json }, delivered }
    }

    fn event(kind: i32, name: &str, value: &str, revision: i64) -> PbEvent {
        let key = format!("/calico/resources/v3/projectcalico.org/ippools/{name}").into_bytes();
        let value = value.as_bytes().to_vec();
        let kv = PbKeyValue { key, value, mod_revision: revision, ..PbKeyValue::default() };
        PbEvent { r#type: kind, kv: Some(kv), prev_kv: None }
    }

    fn response(events: Vec<PbEvent>, revision: i64, fragment: bool) -> PbWatchResponse {
        let header = Some(PbResponseHeader { revision, ..PbResponseHeader::default() });
        PbWatchResponse { header, events, fragment, ..PbWatchResponse::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_says_nothing_is_given_up_after_it_was_asked() {
        for (asked, patience, times) in [(true, SILENT_AFTER, 6..=7), (false, SILENT_UNASKED_AFTER, 0..=0)] {
            let (began, mut asks) = (tokio::time::Instant::now(), 0);
            let mut progress = asked.then(|| interval(PROGRESS_INTERVAL));
            let said: Result<(), _> = answered(std::future::pending(), &mut progress, || asks += 1).await;
            assert_eq!((said, began.elapsed()), (Err(patience), patience));
            assert!(times.contains(&asks), "{asks}");
            // However long nobody looked, what is there counts.
            tokio::time::sleep(10 * patience).await;
            assert_eq!(answered(std::future::ready(7), &mut progress, || ()).await, Ok(7));
        }
    }

    #[test]
    fn the_position_follows_the_events_and_not_the_header() {
        let mut position = position(5);
        let batch = position.advance(response(vec![event(0, "a", "{}", 7)], 900, false)).unwrap().unwrap();
        assert_eq!((&*batch.revision, batch.as_of), ("7", None));
        let progress = position.advance(response(vec![], 900, false)).unwrap().unwrap();
        assert_eq!((&*progress.revision, progress.events.len()), ("900", 0));
        assert_eq!(&*progress.as_of.unwrap().revision, "900");
    }

    #[test]
    fn the_position_passes_a_revision_after_its_last_fragment() {
        let mut position = position(5);
        let first = position.advance(response(vec![event(0, "a", "{}", 8)], 8, true)).unwrap().unwrap();
        assert_eq!(&*first.revision, "7");
        let last = position.advance(response(vec![event(0, "b", "{}", 8)], 8, false)).unwrap().unwrap();
        assert_eq!(&*last.revision, "8");
    }

    #[test]
    fn events_keep_their_order_and_a_bad_value_is_one_event() {
        let mut position = position(5);
        let events =
            vec![event(0, "a", "{\"x\":1}", 6), event(0, "b", "junk", 7), event(1, "c", "", 8), event(1, "d", "", 9)];
        let batch = position.advance(response(events, 9, false)).unwrap().unwrap();
        let texts: Vec<String> = batch
            .events
            .iter()
            .map(|event| match event {
                Event::Put(object) => format!("put {} {} {:?}", object.id, object.revision, object.body),
                Event::Malformed(Malformed { id, .. }) => format!("malformed {id}"),
                Event::Delete { id, last } => {
                    format!("delete {id} {:?}", last.as_ref().map(|last| (&*last.revision, &last.body)))
                }
            })
            .collect();
        assert_eq!(texts, ["put a 6 b\"{\\\"x\\\":1}\"", "malformed b", "delete c None", "delete d None"]);
    }

    #[test]
    fn a_cancelled_watch_says_why() {
        let cancelled = |compact_revision, cancel_reason: &str| PbWatchResponse {
            canceled: true,
            compact_revision,
            cancel_reason: cancel_reason.to_owned(),
            ..PbWatchResponse::default()
        };
        assert!(matches!(position(5).advance(cancelled(9, "")), Err(Failure::PositionGone(_))));
        assert!(matches!(position(5).advance(cancelled(0, "etcdserver: no leader")), Err(Failure::Endpoint(_))));
    }
}
