//! The next bytes for a client. No sockets, no clock: the driver asks when there is room, and passes the time in.
//!
//! The source of the bytes follows from the client's [phase](super::phase): a snapshot, the feed's ring, or a catch-up.
//! The ring may move on during a catch-up.
//!
//! Invariants:
//! - the client has the content of its mark's map whenever all that was queued has arrived (and no catch-up is under
//!   way);
//! - a status is queued after the data that it belongs to. A shared snapshot may be older than the data that a new
//!   client had elsewhere, so it is told no status before it has all data that there was when its snapshot ended;
//! - no more than [`FILL_BYTES`] and one message are queued at a time, however much the client lacks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::feed::catch_up::CatchUp;
use super::super::feed::made::Awaits;
use super::super::feed::ring::{Copied, Mark};
use super::super::feed::shared::Lease;
use super::super::feed::snapshot::Piece;
use super::super::reason::CloseReason;
use super::super::wire::Wire;
use super::phase::{Event, Phase};
use crate::model::SyncStatus;

/// Bytes that are queued for a client at a time. Enough to fill a send buffer in one system call, and so few that a
/// stalled client pins next to nothing.
const FILL_BYTES: usize = 256 << 10;

/// The limits beyond which a client is too far behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) max_fall_behind: Duration,
    pub(crate) grace: Duration,
}

/// The result of one step.
enum Step {
    /// This number of bytes was queued.
    Queued(usize),
    /// There is nothing to queue for now.
    Dry,
    /// A part ended that has to be written before more is queued.
    Pause,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Outgoing {
    feed: Lease,
    /// Is nudged when there is another piece of the snapshot.
    waiter: Arc<dyn Awaits>,
    patience: Patience,
    phase: Phase,
    mark: Arc<Mark>,
    /// The marks of the client's snapshot, and of the head when the snapshot ended. The client is not told the status
    /// of the first before it gets to the second.
    joining: Option<(Arc<Mark>, Arc<Mark>)>,
    dry: bool,
    began_at: Instant,
    grace_until: Option<Instant>,
    grace_noted: bool,
}

impl Outgoing {
    /// For a client whose hello has been answered.
    pub(crate) fn new(feed: Lease, waiter: Arc<dyn Awaits>, patience: Patience, now: Instant) -> Self {
        let (mark, phase) = (feed.head(), Phase::first(feed.key().wire == Wire::GobSnappy));
        let (joining, dry, grace_until, grace_noted) = (None, false, None, false);
        Self { feed, waiter, patience, phase, mark, joining, dry, began_at: now, grace_until, grace_noted }
    }

    pub(crate) fn feed(&self) -> &Lease {
        &self.feed
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The mark at which the client stands, once its snapshot has begun.
    pub(crate) fn mark(&self) -> Option<&Arc<Mark>> {
        self.phase.has_begun().then_some(&self.mark)
    }

    /// Whether there is nothing to queue until [another look](Self::look_again).
    pub(crate) fn is_dry(&self) -> bool {
        self.dry
    }

    /// The next call of [`Self::fill`] looks for more, even if the last one found nothing.
    pub(crate) fn look_again(&mut self) {
        self.dry = false;
    }

    /// Whether there is something to queue for the client. `head` is the newest position.
    pub(crate) fn has_more(&self, head: &Mark) -> bool {
        match &self.phase {
            Phase::AwaitingAck | Phase::Closing => false,
            Phase::Snapshot { snapshot, cursor } => snapshot.leads_on_from(cursor),
            Phase::Ready | Phase::CatchUp { .. } => true,
            Phase::SnapshotQueued | Phase::Following => !self.mark.is_same(head),
        }
    }

    /// The client's mark, if the segments that follow it can be sent as they are.
    pub(crate) fn resting_at(&self) -> Option<&Arc<Mark>> {
        (self.phase.is_on_ring() && self.joining.is_none()).then_some(&self.mark)
    }

    /// The client was given everything between its mark and this one.
    pub(crate) fn on_served(&mut self, end: &Arc<Mark>) {
        self.mark = end.clone();
    }

    /// The client has acknowledged a decoder restart.
    pub(crate) fn on_ack(&mut self) {
        if self.phase.on(Event::Acknowledged) {
            self.look_again();
        }
    }

    /// The connection ends: drops the snapshot or catch-up that the client was reading.
    pub(crate) fn end(&mut self) {
        self.phase.on(Event::Ended);
    }

    /// Begins the snapshot if the client is ready for it. Call it before each [`Self::fill`].
    pub(crate) fn begin(&mut self, now: Instant, out: &mut VecDeque<Bytes>) {
        if !matches!(self.phase, Phase::Ready) {
            return;
        }
        if self.feed.key().wire == Wire::GobSnappy {
            out.push_back(self.feed.format().prefix());
        }
        let snapshot = self.feed.snapshot(now);
        (self.mark, self.began_at) = (snapshot.mark().clone(), now);
        push(out, snapshot.begin());
        self.phase.on(Event::Begun(snapshot));
    }

    /// Queues the updates that the client lacks, as far as there is room. Call it again when that has been written.
    /// When it [is dry](Self::is_dry), call it after [`Self::look_again`]: a pump or the snapshot nudges the client
    /// when there is more.
    pub(crate) fn fill(&mut self, now: Instant, out: &mut VecDeque<Bytes>) -> Result<(), CloseReason> {
        if self.phase.on(Event::Written) {
            self.grace_until = Some(now + self.patience.grace);
            self.feed.metrics().client_snapshot_send_secs.observe((now - self.began_at).as_secs_f64());
        }
        if self.dry {
            return Ok(());
        }
        let mut queued = 0;
        while queued < FILL_BYTES {
            match self.step(now, FILL_BYTES - queued, out)? {
                Step::Queued(bytes) => queued += bytes,
                Step::Dry => {
                    self.dry = true;
                    break;
                }
                Step::Pause => break,
            }
        }
        Ok(())
    }

    fn step(&mut self, now: Instant, room: usize, out: &mut VecDeque<Bytes>) -> Result<Step, CloseReason> {
        match &mut self.phase {
            Phase::AwaitingAck | Phase::Ready | Phase::SnapshotQueued | Phase::Closing => Ok(Step::Dry),
            Phase::Snapshot { snapshot, cursor } => Ok(match snapshot.piece(cursor, &self.waiter) {
                Piece::Bytes(bytes, next) => {
                    *cursor = next;
                    Step::Queued(push(out, bytes))
                }
                Piece::Alone(bytes, next) => {
                    *cursor = next;
                    self.feed.metrics().snapshot_pieces_encoded.inc();
                    Step::Queued(push(out, bytes))
                }
                Piece::NotYet => Step::Dry,
                Piece::End => {
                    push(out, snapshot.end());
                    self.phase.on(Event::Queued);
                    self.joining = Some((self.mark.clone(), self.feed.head()));
                    self.join(out);
                    Step::Pause
                }
            }),
            Phase::CatchUp { catch_up, cursor } => {
                let numbered = self.feed.key().wire.is_numbered();
                if let Some((bytes, next)) = catch_up.message(*cursor, &**self.feed.format(), numbered) {
                    *cursor = next;
                    return Ok(Step::Queued(push(out, bytes)));
                }
                let target = catch_up.target().clone();
                if self.mark.is_before_large(&target) {
                    // It took its time, as a snapshot does.
                    self.grace_until = Some(now + self.patience.grace);
                }
                let told = self.joining.take().map_or(self.mark.status, |(from, _)| self.told_since(&from));
                self.mark = target;
                self.tell_status(told, out);
                self.phase.on(Event::CaughtUp);
                Ok(Step::Queued(0))
            }
            Phase::Following => self.advance(now, room, out),
        }
    }

    /// Tells the status of the current mark, unless the client knows that one (`told`).
    fn tell_status(&self, told: SyncStatus, out: &mut VecDeque<Bytes>) {
        if self.mark.status != told {
            push(out, self.feed.format().status(self.mark.sequence, self.mark.status));
        }
    }

    /// Tells a new client the status once it has all data that there was at the end of its snapshot.
    fn join(&mut self, out: &mut VecDeque<Bytes>) {
        if let Some((from, _)) = self.joining.take_if(|(_, target)| self.mark.sequence >= target.sequence) {
            self.tell_status(self.told_since(&from), out);
        }
    }

    /// The status that a client knows that was told none with its snapshot. A status that changed since came with its
    /// segment.
    fn told_since(&self, snapshot: &Mark) -> SyncStatus {
        if snapshot.has_status_of(&self.mark) { SyncStatus::WaitForDatastore } else { self.mark.status }
    }

    fn advance(&mut self, now: Instant, room: usize, out: &mut VecDeque<Bytes>) -> Result<Step, CloseReason> {
        // Before looking for more: a feed that has ended publishes nothing after this.
        let ended = self.feed.has_ended();
        let queued_before = out.len();
        let (taken, _) = self.feed.history().copy_after(&self.mark, room, out);
        self.check_age(now)?;
        match taken {
            Copied::Nothing if ended => Err(CloseReason::SyncerEnded(self.feed.key().syncer)),
            Copied::Nothing => Ok(Step::Dry),
            Copied::UpTo(end) => {
                self.feed.metrics().client_latency_secs.observe_at(now, self.mark.age(now).as_secs_f64());
                self.mark = end;
                self.join(out);
                Ok(Step::Queued(out.range(queued_before..).map(Bytes::len).sum()))
            }
            Copied::Forgotten(head) => {
                // A new client is told the status at the end, which must not be a past one.
                let at_least = self.joining.as_ref().map_or(0, |(_, target)| target.sequence);
                let catch_up = self.feed.catch_up(&self.mark, head, at_least);
                if !catch_up.is_publication() {
                    self.note_lag(&catch_up);
                }
                self.phase.on(Event::Forgotten(catch_up));
                Ok(Step::Queued(0))
            }
        }
    }

    /// The client gets last values instead of all that it lacks.
    fn note_lag(&self, catch_up: &CatchUp) {
        let missed = self.mark.updates_until(catch_up.target());
        let metrics = self.feed.metrics();
        metrics.catch_ups.inc();
        metrics.updates_coalesced.inc_by(missed.saturating_sub(catch_up.len() as u64));
        tracing::debug!(
            from = self.mark.sequence,
            to = catch_up.target().sequence,
            missed,
            changed = catch_up.len(),
            "client lags by more than is kept, sending last values"
        );
    }

    /// A client that is too far behind is cut once its grace period is over. One that lacks a large publication is not:
    /// as with a snapshot, it may take as long as it needs, at the lowest rate.
    fn check_age(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.mark.age(now) <= self.patience.max_fall_behind || self.mark.is_before_large(&self.feed.head()) {
            self.grace_noted = false;
            return Ok(());
        }
        if self.grace_until.is_some_and(|until| now > until) {
            return Err(CloseReason::FellBehind);
        }
        if !self.grace_noted {
            self.grace_noted = true;
            self.feed.metrics().connections_grace_used.inc();
            tracing::warn!(age = ?self.mark.age(now), "client is too far behind, but within its grace period");
        }
        Ok(())
    }

    /// Time passed while the client took nothing: checks whether it is too far behind by now.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), CloseReason> {
        match self.phase {
            Phase::AwaitingAck | Phase::Ready | Phase::Snapshot { .. } | Phase::Closing => Ok(()),
            Phase::SnapshotQueued | Phase::CatchUp { .. } | Phase::Following => self.check_age(now),
        }
    }
}

/// Queues bytes unless there are none. Returns their number.
fn push(out: &mut VecDeque<Bytes>, bytes: Bytes) -> usize {
    let len = bytes.len();
    if len > 0 {
        out.push_back(bytes);
    }
    len
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::super::record::Client;
    use super::*;
    use crate::model::SyncerEvent;
    use crate::snapcache::SnapCache;
    use crate::syncproto::gob::{Decoder, Limits};
    use crate::syncproto::messages::Message;
    use crate::syncserver::calls::Call;
    use crate::syncserver::server::tracker::Tracker;
    use crate::syncserver::tests::harness::{eventually, lone_feed, update};

    const HOUR: Duration = Duration::from_secs(3600);

    fn client(id: u64) -> Arc<Client> {
        Tracker::default().add(id, ([10, 0, 0, 1], 1).into(), None, Instant::now())
    }

    /// Fills until there is nothing more; returns keys and statuses in order.
    async fn heard(outgoing: &mut Outgoing, client: &Client, decoder: &mut Decoder) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut out = VecDeque::new();
            outgoing.fill(Instant::now(), &mut out).unwrap();
            for bytes in out {
                decoder.push(&bytes);
            }
            while let Some(envelope) = decoder.next().unwrap() {
                match envelope.0 {
                    Some(Message::Kvs(updates)) => {
                        all.extend(updates.iter().map(|update| String::from_utf8_lossy(&update.key).into_owned()));
                    }
                    Some(Message::SyncStatus(status)) => all.push(format!("status {status}")),
                    other => panic!("{other:?}"),
                }
            }
            if outgoing.is_dry() {
                if !matches!(outgoing.phase, Phase::Snapshot { .. }) {
                    return all;
                }
                assert_eq!(poll_fn(|cx| client.calls().poll_call(cx)).await, Call::Look);
                outgoing.look_again();
            }
        }
    }

    /// Two clients have the same snapshot. The first falls out of the ring; while it catches up, the second comes to
    /// the end of the snapshot and falls out as well. It must get a key that was created in between before it is told
    /// in-sync.
    #[tokio::test]
    async fn a_shared_catch_up_never_ends_before_the_data_that_a_new_client_may_know() {
        let (mut cache, lease) = lone_feed();
        let feed = Arc::clone(&lease);
        let patience = Patience { max_fall_behind: HOUR, grace: HOUR };
        let lap = |cache: &mut SnapCache, value: u8| {
            for n in 0..120 {
                let updates = (0..10).map(|k| update(&format!("/k/{}", n * 10 + k), Some(&[value; 1000]))).collect();
                cache.apply(vec![SyncerEvent::Updates(updates)]);
            }
        };
        let settled = async || {
            let newest = feed.reader().newest().sequence;
            eventually("it is in the ring", || feed.head().sequence >= newest).await;
        };
        cache
            .apply(vec![SyncerEvent::Updates(vec![update("/a", Some(b"1"))]), SyncerEvent::Status(SyncStatus::InSync)]);
        settled().await;
        let clients = [client(1), client(2)];
        let mut first = Outgoing::new(lease, clients[0].clone(), patience, Instant::now());
        let mut second = Outgoing::new(feed.lease(), clients[1].clone(), patience, Instant::now());
        let mut decoders = [Decoder::new(Limits::client()), Decoder::new(Limits::client())];
        let mut out = VecDeque::new();
        for (outgoing, decoder) in [&mut first, &mut second].into_iter().zip(&mut decoders) {
            decoder.push(&crate::syncproto::gob::server_prefix());
            out.clear();
            outgoing.begin(Instant::now(), &mut out);
            for bytes in &out {
                decoder.push(bytes);
            }
        }
        assert!(heard(&mut first, &clients[0], &mut decoders[0]).await.contains(&"status 2".to_owned()));
        lap(&mut cache, 1);
        settled().await;
        first.look_again();
        out.clear();
        first.fill(Instant::now(), &mut out).unwrap();
        assert!(matches!(first.phase, Phase::CatchUp { .. }), "it is under way");
        cache.apply(vec![SyncerEvent::Updates(vec![update("/x", Some(b"1"))])]);
        settled().await;
        let said = heard(&mut second, &clients[1], &mut decoders[1]).await;
        let at =
            |what: &str| said.iter().position(|said| said == what).unwrap_or_else(|| panic!("no {what}: {said:?}"));
        assert!(at("/x") < at("status 2"), "{:?}", &said[said.len() - 5..]);
    }
}
