//! Does what the [`Machine`] decides for one kind: reads lists and watches, hands events to subscribers, sleeps.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, error, info, warn};

use super::machine::{Machine, Step, Verdict};
use super::{KindEvent, KindStatus, Phase, Shared, Subscriber};
use crate::datastore::{Error, Kind, ListPage, WatchBatch};
use crate::model::release::Release;
use crate::model::{Revision, no_revision};

/// Longest wait for one page of a list. Datastores have time-outs of their own; this one keeps a kind from hanging
/// for ever should one of them fail to.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// While a kind fails, another reason than the one that was logged is logged at most this often: it may be the one that
/// somebody has to act on, and reasons may alternate.
const NEW_REASON_INTERVAL: Duration = Duration::from_secs(10);

/// How long before subscribers can make use of a change it is handed on: what the stages up to them take, and as much
/// again because the machine is busy at times. A change that comes too late for one turn waits for the next.
const LEAD: Duration = Duration::from_millis(2);
/// Longest time for which changes are put off, whatever subscribers say. The default of the longest pace.
const LONGEST_PUT_OFF: Duration = Duration::from_millis(250);
/// As soon as there are so many changes they are not put off any longer: the stages need the time until they are of use.
const BURST: usize = 32;

/// The next item of a watch.
type Next = Option<Result<WatchBatch, Error>>;

/// Why a watch stopped.
enum WatchEnd {
    Orderly,
    Failed(Error),
    Joined,
}

/// The watch of one kind.
#[derive(Debug)]
pub(super) struct KindWatch {
    kind: Kind,
    shared: Shared,
    machine: Machine,
    subscribers: Vec<Subscriber>,
    joining: mpsc::Receiver<Subscriber>,
    status: watch::Sender<KindStatus>,
    /// Subscribers may hold objects: something was listed, and they were not told since that all of it is gone.
    may_hold: bool,
    /// The datastore does not know the kind: so it is until a list arrives, whatever fails meanwhile.
    absent: bool,
    /// It is not permitted, counts as absent, and is not missed.
    spared: bool,
    /// The release of the cluster's own Calico when something last failed.
    cluster_then: Option<Release>,
    /// When which failure was logged last.
    said: Option<(Instant, String)>,
}

impl KindWatch {
    /// A watch that begins with `subscribers`; more may come through `joining`.
    pub(super) fn new(
        kind: Kind,
        shared: Shared,
        subscribers: Vec<Subscriber>,
        joining: mpsc::Receiver<Subscriber>,
    ) -> (Self, watch::Receiver<KindStatus>) {
        // Every kind gets jitter of its own from the one seed (FNV-1a over its name).
        let seed = kind.to_string().bytes().fold(shared.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let machine = Machine::new(kind.group == "projectcalico.org", seed);
        let (status, status_reader) = watch::channel(KindStatus {
            kind: kind.to_string(),
            phase: Phase::Listing,
            since: Instant::now(),
            revision: no_revision(),
            error: None,
        });
        let watch = Self {
            kind,
            shared,
            machine,
            subscribers,
            joining,
            status,
            may_hold: false,
            absent: false,
            spared: false,
            cluster_then: None,
            said: None,
        };
        (watch, status_reader)
    }

    /// Runs until it is dropped, or until nobody listens and nobody can join any more.
    pub(super) async fn run(mut self) {
        loop {
            self.subscribers.retain(|subscriber| !subscriber.events.is_closed());
            if self.subscribers.is_empty() {
                match self.joining.recv().await {
                    Some(subscriber) => self.join(subscriber),
                    None => return,
                }
            }
            match self.machine.step() {
                Step::Pause(until) => {
                    let absent = self.status.borrow().phase == Phase::Absent && !self.spared;
                    let arrival = if absent { self.shared.datastore.arrival(&self.kind) } else { None };
                    let over = async {
                        match arrival {
                            Some(arrival) => arrival.await,
                            None => tokio::time::sleep_until(until).await,
                        }
                    };
                    tokio::select! {
                        () = over => self.machine.pause_over(),
                        () = self.shared.cluster_leaves(self.cluster_then) => self.machine.pause_over(),
                        Some(subscriber) = self.joining.recv() => self.join(subscriber),
                    }
                }
                Step::List => self.list().await,
                Step::Watch(from) => self.watch(from).await,
            }
        }
    }

    fn join(&mut self, subscriber: Subscriber) {
        self.subscribers.push(subscriber);
        self.machine.joined();
    }

    async fn list(&mut self) {
        while let Ok(subscriber) = self.joining.try_recv() {
            self.subscribers.push(subscriber);
        }
        // Looking for a kind that is absent is no news.
        if self.machine.failures() == 0 && !self.absent {
            self.publish(Phase::Listing, None);
        }
        let mut pages = self.shared.datastore.list(&self.kind);
        let mut last: Option<(Revision, _)> = None;
        let mut objects = 0_usize;
        loop {
            let page = match tokio::time::timeout(PAGE_TIMEOUT, pages.next()).await {
                Ok(Some(Ok(page))) => page,
                Ok(Some(Err(error))) => return self.failed(error).await,
                Ok(None) => break,
                Err(_) => return self.failed(self.retry("no answer within the time for one page")).await,
            };
            if self.machine.page_arrived() {
                self.may_hold = true;
                self.spared = false;
                if std::mem::take(&mut self.absent) {
                    self.publish(Phase::Listing, None);
                }
                self.send(KindEvent::ListStart).await;
            }
            let ListPage { objects: page_objects, malformed, revision, as_of } = page;
            objects += page_objects.len();
            last = Some((revision, as_of));
            if !page_objects.is_empty() {
                self.send(KindEvent::Objects(Arc::new(page_objects))).await;
            }
            if !malformed.is_empty() {
                self.send(KindEvent::Malformed(Arc::new(malformed))).await;
            }
        }
        let Some((revision, as_of)) = last else {
            return self.failed(self.retry("the list ended without a page")).await;
        };
        if self.machine.failures() > 0 {
            info!(kind = %self.kind, failures = self.machine.failures(), "datastore answers again");
        }
        debug!(kind = %self.kind, %revision, objects, "listed");
        self.machine.list_ended(revision.clone());
        self.status.send_modify(|status| status.revision = revision.clone());
        self.send(KindEvent::ListEnd { revision, as_of }).await;
    }

    async fn watch(&mut self, from: Revision) {
        let mut batches = self.shared.datastore.watch(&self.kind, &from);
        self.machine.watch_opened(Instant::now());
        if self.machine.failures() == 0 {
            self.publish(Phase::Watching, None);
        }
        let mut ahead = None;
        let end = loop {
            let next = if let Some(next) = ahead.take() {
                next
            } else {
                tokio::select! {
                    next = batches.next() => next,
                    Some(subscriber) = self.joining.recv() => {
                        self.join(subscriber);
                        break WatchEnd::Joined;
                    }
                }
            };
            match next {
                Some(Ok(mut batch)) => {
                    if let Some(until) = self.put_off(&batch) {
                        ahead = gather(&mut batch, &mut batches, until).await;
                    }
                    if self.machine.failures() > 0 {
                        info!(kind = %self.kind, failures = self.machine.failures(), "datastore answers again");
                    }
                    self.machine.batch_arrived(batch.revision.clone());
                    self.status.send_if_modified(|status| {
                        status.revision = batch.revision.clone();
                        // Nobody waits for this, and it is with every change.
                        false
                    });
                    self.publish(Phase::Watching, None);
                    self.send(KindEvent::Changes(Arc::new(batch))).await;
                    if self.subscribers.is_empty() {
                        break WatchEnd::Orderly;
                    }
                }
                Some(Err(error)) => break WatchEnd::Failed(error),
                None => break WatchEnd::Orderly,
            }
        };
        match end {
            WatchEnd::Orderly => self.machine.watch_ended(Instant::now()),
            WatchEnd::Failed(error) => self.failed(error).await,
            WatchEnd::Joined => {}
        }
    }

    /// Until when a batch is put off, because no subscriber can make use of it before.
    fn put_off(&self, batch: &WatchBatch) -> Option<Instant> {
        if batch.events.is_empty() {
            return None;
        }
        let next = self.subscribers.iter().filter_map(|subscriber| subscriber.demand.next()).min()?;
        let now = Instant::now();
        let until = next.checked_sub(LEAD)?.min(now + LONGEST_PUT_OFF);
        (until > now).then_some(until)
    }

    async fn failed(&mut self, error: Error) {
        self.cluster_then = self.shared.cluster_release();
        if let Error::Forbidden { .. } = &error
            && !self.may_hold
            && let Some(why) = self.shared.spares(&self.kind)
        {
            return self.spare(&error, &why).await;
        }
        let verdict = self.machine.failed(Instant::now(), &error);
        let is_news = self.machine.failures() == 1 || self.is_new_reason(&error);
        let is_absent = matches!(error, Error::KindAbsent { .. });
        let known_absent = self.absent;
        self.absent |= is_absent;
        match &error {
            Error::KindAbsent { .. } if known_absent => debug!(kind = %self.kind, "kind is still absent"),
            Error::KindAbsent { .. } => {
                info!(kind = %self.kind, "kind is not known to the datastore; it counts as in sync, and is looked for again");
            }
            Error::Relist { .. } => info!(kind = %self.kind, %error, "listing again"),
            Error::Forbidden { .. } if is_news => {
                error!(kind = %self.kind, %error, "not permitted; grant list and watch on this kind; retrying slowly");
            }
            Error::Retry { .. } if is_news => warn!(kind = %self.kind, %error, "datastore failed; retrying"),
            Error::Retry { .. } | Error::Forbidden { .. } => {
                debug!(kind = %self.kind, %error, failures = self.machine.failures(), "datastore failed again");
            }
        }
        if is_news {
            self.said = Some((Instant::now(), error.to_string()));
        }
        match verdict {
            Verdict::Continue => {
                let lost = self.status.borrow().phase == Phase::Lost;
                self.publish(if lost { Phase::Lost } else { Phase::Retrying }, Some(error.to_string()));
            }
            Verdict::Absent => {
                self.publish(Phase::Absent, None);
                if matches!(error, Error::KindAbsent { gone: true, .. }) && self.may_hold {
                    self.may_hold = false;
                    self.send(KindEvent::ListStart).await;
                    self.send(KindEvent::ListEnd { revision: no_revision(), as_of: None }).await;
                }
                self.send(KindEvent::Absent).await;
            }
            Verdict::Lost => {
                error!(kind = %self.kind, %error, after = ?super::LOST_AFTER, "datastore is lost; agents keep what they have");
                self.publish(Phase::Lost, Some(error.to_string()));
                self.send(KindEvent::Lost).await;
            }
        }
    }

    /// The kind may not be listed, and nobody misses it: it counts as absent.
    async fn spare(&mut self, error: &Error, why: &str) {
        self.machine.spared(Instant::now());
        if !std::mem::replace(&mut self.spared, true) {
            info!(kind = %self.kind, %error, why, "not permitted; the kind counts as absent, and is looked for again");
        }
        self.absent = true;
        self.publish(Phase::Absent, Some(format!("not permitted, and counts as absent: {why}")));
        self.send(KindEvent::Absent).await;
    }

    /// Whether a failure that follows others has a reason that is worth a line in the log.
    fn is_new_reason(&self, error: &Error) -> bool {
        let said = self.said.as_ref();
        said.is_none_or(|(at, text)| at.elapsed() >= NEW_REASON_INTERVAL && *text != error.to_string())
    }

    fn retry(&self, reason: &str) -> Error {
        Error::Retry { doing: format!("list {}", self.kind), reason: reason.to_owned() }
    }

    fn publish(&self, phase: Phase, error: Option<String>) {
        self.status.send_if_modified(|status| {
            if status.phase == phase && status.error == error {
                return false;
            }
            if status.phase != phase {
                status.since = Instant::now();
            }
            status.phase = phase;
            status.error = error;
            true
        });
    }

    /// Hands an event to every subscriber, waiting for each; forgets those that are gone.
    async fn send(&mut self, event: KindEvent) {
        let mut gone = false;
        for subscriber in &self.subscribers {
            gone |= subscriber.events.send((subscriber.tag, event.clone())).await.is_err();
        }
        if gone {
            self.subscribers.retain(|subscriber| !subscriber.events.is_closed());
        }
    }
}

/// Adds the changes that come until then. Returns what came after them and is something else.
async fn gather(
    batch: &mut WatchBatch,
    batches: &mut BoxStream<'static, Result<WatchBatch, Error>>,
    until: Instant,
) -> Option<Next> {
    while batch.events.len() < BURST {
        // Read all the time: what is left in the connection is not there yet when it is needed.
        let next = timeout_at(until, batches.next()).await.ok()?;
        match next {
            // Batches without events stay what they are: they tell a position to whoever converts the objects.
            Some(Ok(next)) if !next.events.is_empty() => {
                batch.events.extend(next.events);
                batch.revision = next.revision;
                batch.as_of = next.as_of.or(batch.as_of.take());
            }
            other => return Some(other),
        }
    }
    None
}
