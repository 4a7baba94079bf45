//! Performs the steps that the [`Machine`] decides for one selection: reads lists and watches, hands events to subscribers, sleeps.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, error, info, warn};

use super::event::{KindEvent, Subscriber};
use super::machine::{LOST_AFTER, Machine, Step, Verdict};
use super::policy::{Judgement, KindPolicy};
use super::status::{KindStatus, Phase};
use crate::datastore::{Datastore, Error, ListPage, Selection, WatchBatch};
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
/// From this many changes on they are not put off any longer: the stages need the time until they are of use.
const BURST: usize = 32;

/// The next item of a watch.
type Next = Option<Result<WatchBatch, Error>>;

/// Why a watch stopped.
enum WatchEnd {
    Orderly,
    Failed(Error),
    Joined,
}

/// Shared by all kind watches.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) datastore: Arc<dyn Datastore>,
    pub(super) policy: Arc<dyn KindPolicy>,
    /// Decides the jitter of pauses.
    pub(super) seed: u64,
    /// When a kind was listed for the first time. An API server that has just begun permits nobody anything until it has read its
    /// roles: only a later refusal tells something of the kind.
    pub(super) permitted: watch::Sender<Option<Instant>>,
}

/// The watch of one selection.
#[derive(Debug)]
pub(super) struct KindWatch {
    selection: Selection,
    shared: Shared,
    machine: Machine,
    subscribers: Vec<Subscriber>,
    joining: mpsc::Receiver<Subscriber>,
    status: watch::Sender<KindStatus>,
    /// Whether the kind is missed, as it was when something last failed.
    judgement: Judgement,
    /// When the present list or watch was asked for.
    asked: Instant,
    /// When which failure was logged last.
    said: Option<(Instant, String)>,
}

impl KindWatch {
    /// A watch that begins with `subscribers`; more may come through `joining`.
    pub(super) fn new(
        selection: Selection,
        shared: Shared,
        subscribers: Vec<Subscriber>,
        joining: mpsc::Receiver<Subscriber>,
    ) -> (Self, watch::Receiver<KindStatus>) {
        // Every selection gets jitter of its own from the one seed (FNV-1a over its name).
        let seed = selection.to_string().bytes().fold(shared.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let machine = Machine::new(shared.policy.look_again(selection.kind()), seed);
        let (status, status_reader) = watch::channel(KindStatus {
            kind: selection.to_string(),
            phase: Phase::Listing,
            since: Instant::now(),
            revision: no_revision(),
            error: None,
        });
        let watch = Self {
            selection,
            shared,
            machine,
            subscribers,
            joining,
            status,
            judgement: Judgement::missed(),
            asked: Instant::now(),
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
                Step::Pause(until) => self.pause(until, None).await,
                Step::AwaitArrival(until) => self.pause(until, self.shared.datastore.arrival(&self.selection)).await,
                Step::List => self.list().await,
                Step::Watch(from) => self.watch(from).await,
            }
        }
    }

    /// Waits until the kind arrives where the datastore tells that, and else until then.
    async fn pause(&mut self, until: Instant, arrival: Option<BoxFuture<'static, ()>>) {
        let over = async {
            match arrival {
                Some(arrival) => arrival.await,
                None => tokio::time::sleep_until(until).await,
            }
        };
        tokio::select! {
            () = over => self.machine.pause_over(),
            () = &mut self.judgement.changed => {
                self.judgement = Judgement::missed();
                self.machine.pause_over();
            }
            Some(subscriber) = self.joining.recv() => self.join(subscriber),
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
        self.publish();
        self.asked = Instant::now();
        let mut pages = self.shared.datastore.list(&self.selection);
        let mut last: Option<(Revision, _)> = None;
        let mut objects = 0_usize;
        loop {
            let page = match tokio::time::timeout(PAGE_TIMEOUT, pages.next()).await {
                Ok(Some(Ok(page))) => page,
                Ok(Some(Err(error))) => return self.failed(error).await,
                Ok(None) => break,
                Err(_) => return self.failed(self.retry("no answer within the time for one page")).await,
            };
            self.shared.permitted.send_if_modified(|since| since.is_none() && since.replace(Instant::now()).is_none());
            if self.machine.page_arrived() {
                self.publish();
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
            info!(kind = %self.selection, failures = self.machine.failures(), "datastore answers again");
        }
        debug!(kind = %self.selection, %revision, objects, "listed");
        self.machine.list_ended(revision.clone());
        self.status.send_modify(|status| status.revision = revision.clone());
        self.send(KindEvent::ListEnd { revision, as_of }).await;
    }

    async fn watch(&mut self, from: Revision) {
        self.asked = Instant::now();
        let mut batches = self.shared.datastore.watch(&self.selection, &from);
        self.machine.watch_opened(Instant::now());
        self.publish();
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
                        info!(kind = %self.selection, failures = self.machine.failures(), "datastore answers again");
                    }
                    self.machine.batch_arrived(batch.revision.clone());
                    self.status.send_if_modified(|status| {
                        status.revision = batch.revision.clone();
                        // Nobody waits for this, and it is with every change.
                        false
                    });
                    self.publish();
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
        self.judgement = self.judge(&error);
        let spared = self.judgement.spared.as_deref();
        let verdict = self.machine.failed(Instant::now(), &error, spared);
        self.log(&error, verdict);
        self.publish();
        match verdict {
            Verdict::Continue => {}
            Verdict::Absent { emptied, .. } => {
                if emptied {
                    self.send(KindEvent::ListStart).await;
                    self.send(KindEvent::ListEnd { revision: no_revision(), as_of: None }).await;
                }
                self.send(KindEvent::Absent).await;
            }
            Verdict::Lost => self.send(KindEvent::Lost).await,
        }
    }

    /// Whether the kind is missed, as far as this failure can tell.
    fn judge(&self, error: &Error) -> Judgement {
        if !matches!(error, Error::Forbidden { .. }) {
            return Judgement::missed();
        }
        let mut permitted = self.shared.permitted.subscribe();
        if permitted.borrow().is_some_and(|since| since <= self.asked) {
            return self.shared.policy.judge(self.selection.kind());
        }
        let changed = async move {
            if permitted.wait_for(Option::is_some).await.is_err() {
                // The hub has stopped.
                std::future::pending::<()>().await;
            }
        };
        Judgement { spared: None, changed: changed.boxed() }
    }

    /// Tells of a failure: of the first, of one with another reason, and of one that is a verdict.
    fn log(&mut self, error: &Error, verdict: Verdict) {
        let (kind, failures) = (&self.selection, self.machine.failures());
        let is_news = failures == 1 || self.is_new_reason(error);
        match (error, verdict) {
            (Error::Forbidden { .. }, Verdict::Absent { is_news: true, .. }) => {
                let why = self.judgement.spared.as_deref();
                info!(%kind, %error, why, "not permitted; the kind counts as absent, and is looked for again");
            }
            (_, Verdict::Absent { is_news: true, .. }) => {
                info!(%kind, "kind is not known to the datastore; it counts as in sync, and is looked for again");
            }
            (_, Verdict::Absent { is_news: false, .. }) => return debug!(%kind, %error, "kind is still absent"),
            (Error::Relist { .. }, _) => info!(%kind, %error, "listing again"),
            (Error::Forbidden { .. }, _) if is_news => {
                error!(%kind, %error, "not permitted; grant list and watch on this kind; retrying slowly");
            }
            (_, _) if is_news => warn!(%kind, %error, "datastore failed; retrying"),
            (_, _) => debug!(%kind, %error, failures, "datastore failed again"),
        }
        if verdict == Verdict::Lost {
            error!(%kind, %error, after = ?LOST_AFTER, "datastore is lost; agents keep what they have");
        }
        if is_news {
            self.said = Some((Instant::now(), error.to_string()));
        }
    }

    /// Whether a failure that follows others has a reason that is worth a line in the log.
    fn is_new_reason(&self, error: &Error) -> bool {
        let said = self.said.as_ref();
        said.is_none_or(|(at, text)| at.elapsed() >= NEW_REASON_INTERVAL && *text != error.to_string())
    }

    fn retry(&self, reason: &str) -> Error {
        Error::Retry { doing: format!("list {}", self.selection), reason: reason.to_owned() }
    }

    /// Publishes the machine's phase if it is another one.
    fn publish(&self) {
        let (phase, trouble) = (self.machine.phase(), self.machine.trouble());
        self.status.send_if_modified(|status| {
            if status.phase == phase && status.error.as_deref() == trouble {
                return false;
            }
            if status.phase != phase {
                status.since = Instant::now();
            }
            status.phase = phase;
            status.error = trouble.map(str::to_owned);
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

/// Adds the changes that come until then. Returns the next item if it is something else.
async fn gather(
    batch: &mut WatchBatch,
    batches: &mut BoxStream<'static, Result<WatchBatch, Error>>,
    until: Instant,
) -> Option<Next> {
    while batch.events.len() < BURST {
        // Read all the time: changes that are left in the connection are not there yet when they are needed.
        let next = timeout_at(until, batches.next()).await.ok()?;
        match next {
            // Batches without events stay what they are: they tell a position to those that convert the objects.
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
