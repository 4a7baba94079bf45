//! What a client gets next. No sockets, no clock: the driver asks when there is room, and passes the time in.
//!
//! ```text
//!  Idle ──start──► Snapshot ──all queued──► Following ◄──────all queued────── CatchUp
//!                                               └──history is forgotten──────────▲
//! ```
//!
//! `Snapshot`: pieces of a shared snapshot. `Following`: segments from the feed's ring. `CatchUp`: the difference between the
//! map that the client has and the newest one, last values only; while it is on its way, the ring may move on.
//!
//! Invariants:
//! - the client's state equals its mark's map whenever all that was queued has arrived (and no catch-up is under way);
//! - a status is queued after the data that it belongs to; a new client is told none before it has all that there was when
//!   its snapshot ended, because a shared snapshot may be older than what the client could know;
//! - no more than [`FILL_BYTES`] and one message are queued at a time, whatever the client lacks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::catch_up::{self, CatchUp};
use super::feed::Lease;
use super::reason::CloseReason;
use super::ring::{Mark, Taken};
use super::snapshot::{Piece, Place, Snapshot};
use super::tracker::Client;
use crate::model::SyncStatus;

/// How much is queued for a client at a time. Enough to fill a send buffer in one system call, little enough that a stalled
/// client pins next to nothing.
const FILL_BYTES: usize = 256 << 10;

/// When a client is too far behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) max_fall_behind: Duration,
    pub(super) grace: Duration,
}

#[derive(Debug)]
enum Phase {
    Idle,
    Snapshot { snapshot: Arc<Snapshot>, place: Place },
    CatchUp { catch_up: Arc<CatchUp>, place: catch_up::Place },
    Following,
}

/// What one step has done.
enum Step {
    /// So many bytes were queued.
    Queued(usize),
    /// There is nothing to queue for now.
    Dry,
    /// Something ended here that the driver wants to see written before more is queued.
    Pause,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Sender {
    feed: Lease,
    /// Whom to call when a snapshot that is on its way goes on.
    client: Arc<Client>,
    patience: Patience,
    phase: Phase,
    mark: Arc<Mark>,
    /// Until the client gets to the second place (the head when its snapshot ended) it is not told the status of the first
    /// (its snapshot).
    joining: Option<(Arc<Mark>, Arc<Mark>)>,
    dry: bool,
    grace_until: Option<Instant>,
    grace_noted: bool,
}

impl Sender {
    /// A sender that has not begun.
    pub(super) fn new(feed: Lease, client: Arc<Client>, patience: Patience) -> Self {
        let (mark, phase) = (feed.head(), Phase::Idle);
        let (joining, dry, grace_until, grace_noted) = (None, false, None, false);
        Self { feed, client, patience, phase, mark, joining, dry, grace_until, grace_noted }
    }

    pub(super) fn feed(&self) -> &Lease {
        &self.feed
    }

    /// Where the client stands.
    pub(super) fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// Whether a snapshot is on its way.
    pub(super) fn in_snapshot(&self) -> bool {
        matches!(self.phase, Phase::Snapshot { .. })
    }

    /// Whether a catch-up is on its way.
    pub(super) fn in_catch_up(&self) -> bool {
        matches!(self.phase, Phase::CatchUp { .. })
    }

    /// Whether there is nothing to queue until [another look](Self::look_again).
    pub(super) fn is_dry(&self) -> bool {
        self.dry
    }

    /// Whether the client has its snapshot and goes on with the ring.
    pub(super) fn is_following(&self) -> bool {
        matches!(self.phase, Phase::Following)
    }

    /// The next call of [`Self::fill`] is to look for more, even if the last one found nothing.
    pub(super) fn look_again(&mut self) {
        self.dry = false;
    }

    /// Whether there is something to queue for the client, `head` being the newest place.
    pub(super) fn has_more(&self, head: &Mark) -> bool {
        match &self.phase {
            Phase::Idle => false,
            Phase::Snapshot { snapshot, place } => snapshot.leads_on_from(place),
            Phase::CatchUp { .. } => true,
            Phase::Following => !self.mark.is_same(head),
        }
    }

    /// Where the client stands, if whatever follows there can be given to it as it is.
    pub(super) fn resting_at(&self) -> Option<&Arc<Mark>> {
        (self.is_following() && self.joining.is_none()).then_some(&self.mark)
    }

    /// The client was given what lay between its mark and this one.
    pub(super) fn on_served(&mut self, end: &Arc<Mark>) {
        self.mark = end.clone();
    }

    /// Idle => Snapshot. The client is ready for its snapshot.
    pub(super) fn start(&mut self, now: Instant, out: &mut VecDeque<Bytes>) {
        let snapshot = self.feed.snapshot(now);
        self.mark = snapshot.mark().clone();
        push(out, snapshot.begin());
        self.phase = Phase::Snapshot { snapshot, place: Place::default() };
        self.dry = false;
    }

    /// The last byte of the snapshot has been handed to the kernel: the grace period begins.
    pub(super) fn on_snapshot_sent(&mut self, now: Instant) {
        self.grace_until = Some(now + self.patience.grace);
    }

    /// Queues what the client lacks, as far as there is room. Call it again when that has been written, or, when the sender
    /// [is dry](Self::is_dry), once there is a reason to [look again](Self::look_again): the pump sees to that, and the snapshot
    /// whose next piece was not there yet.
    pub(super) fn fill(&mut self, now: Instant, out: &mut VecDeque<Bytes>) -> Result<(), CloseReason> {
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
            Phase::Idle => Ok(Step::Dry),
            Phase::Snapshot { snapshot, place } => Ok(match snapshot.piece(place, &self.client) {
                Piece::Bytes(bytes, next) => {
                    *place = next;
                    Step::Queued(push(out, bytes))
                }
                Piece::Alone(bytes, next) => {
                    *place = next;
                    self.feed.metrics().snapshot_pieces_encoded.inc();
                    Step::Queued(push(out, bytes))
                }
                Piece::NotYet => Step::Dry,
                Piece::End => {
                    // Snapshot => Following
                    push(out, snapshot.end());
                    self.joining = Some((self.mark.clone(), self.feed.head()));
                    self.follow();
                    self.join(out);
                    Step::Pause
                }
            }),
            Phase::CatchUp { catch_up, place } => {
                let numbered = self.feed.key().wire.is_numbered();
                if let Some((bytes, next)) = catch_up.message(*place, &**self.feed.format(), numbered) {
                    *place = next;
                    return Ok(Step::Queued(push(out, bytes)));
                }
                // CatchUp => Following
                let target = catch_up.target().clone();
                let told = self.joining.take().map_or(self.mark.status, |(from, _)| self.told_since(&from));
                self.mark = target;
                self.tell_status(told, out);
                self.follow();
                Ok(Step::Queued(0))
            }
            Phase::Following => self.advance(now, room, out),
        }
    }

    /// Goes on with the ring from the current mark.
    fn follow(&mut self) {
        self.phase = Phase::Following;
    }

    /// Tells the status of the current mark if it is not `told`, what the client knows.
    fn tell_status(&self, told: SyncStatus, out: &mut VecDeque<Bytes>) {
        if self.mark.status != told {
            push(out, self.feed.format().status(self.mark.sequence, self.mark.status));
        }
    }

    /// Tells a new client the status once it has what there was at the end of its snapshot.
    fn join(&mut self, out: &mut VecDeque<Bytes>) {
        if let Some((from, _)) = self.joining.take_if(|(_, target)| self.mark.sequence >= target.sequence) {
            self.tell_status(self.told_since(&from), out);
        }
    }

    /// What a client knows of the status that was told none with its snapshot: a status that changed on the way came with
    /// its segment.
    fn told_since(&self, snapshot: &Mark) -> SyncStatus {
        if snapshot.has_status_of(&self.mark) { SyncStatus::WaitForDatastore } else { self.mark.status }
    }

    fn advance(&mut self, now: Instant, room: usize, out: &mut VecDeque<Bytes>) -> Result<Step, CloseReason> {
        // Before looking for more: there will be none after this.
        let ended = self.feed.has_ended();
        let queued_before = out.len();
        let (taken, _) = self.feed.take(&self.mark, room, out);
        self.check_age(now)?;
        match taken {
            Taken::Nothing if ended => Err(CloseReason::SyncerEnded(self.feed.key().syncer)),
            Taken::Nothing => Ok(Step::Dry),
            Taken::UpTo(end) => {
                self.feed.metrics().client_latency_secs.observe_at(now, self.mark.age(now).as_secs_f64());
                self.mark = end;
                self.join(out);
                Ok(Step::Queued(out.range(queued_before..).map(Bytes::len).sum()))
            }
            Taken::Forgotten(head) => {
                // Following => CatchUp
                // Whoever joins is told the status at the end, which must not be one of the past.
                let at_least = self.joining.as_ref().map_or(0, |(_, target)| target.sequence);
                let catch_up = self.feed.catch_up(&self.mark, head, at_least);
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
                self.phase = Phase::CatchUp { catch_up, place: catch_up::Place::default() };
                Ok(Step::Queued(0))
            }
        }
    }

    /// A client that is too far behind is cut once its grace period is over.
    fn check_age(&mut self, now: Instant) -> Result<(), CloseReason> {
        if self.mark.age(now) <= self.patience.max_fall_behind {
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

    /// Time passed while the client took nothing: is it too far behind by now?
    pub(super) fn check(&mut self, now: Instant) -> Result<(), CloseReason> {
        match self.phase {
            Phase::Idle | Phase::Snapshot { .. } => Ok(()),
            Phase::CatchUp { .. } | Phase::Following => self.check_age(now),
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

    use super::super::calls::Call;
    use super::super::tests::harness::{eventually, lone_feed, update};
    use super::super::tracker::Tracker;
    use super::*;
    use crate::model::SyncerEvent;
    use crate::snapcache::SnapCache;
    use crate::syncproto::gob::{Decoder, Limits};
    use crate::syncproto::messages::Message;

    const HOUR: Duration = Duration::from_secs(3600);

    fn client(id: u64) -> Arc<Client> {
        Tracker::default().add(id, ([10, 0, 0, 1], 1).into(), None, Instant::now())
    }

    /// Fills until there is nothing more; returns keys and statuses in order.
    async fn heard(sender: &mut Sender, decoder: &mut Decoder) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let mut out = VecDeque::new();
            sender.fill(Instant::now(), &mut out).unwrap();
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
            if sender.is_dry() {
                if !sender.in_snapshot() {
                    return all;
                }
                let client = sender.client.clone();
                assert_eq!(poll_fn(|cx| client.calls().poll_call(cx)).await, Call::Look);
                sender.look_again();
            }
        }
    }

    /// Of two clients with the same snapshot one falls out of the ring, and on its way back the other one comes to the end of
    /// the snapshot: what was created in between, which it may hold from before, comes to it before it is told in-sync.
    #[tokio::test]
    async fn a_catch_up_that_others_share_never_ends_before_what_a_newcomer_may_know() {
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
        let (mut first, mut second) =
            (Sender::new(lease, client(1), patience), Sender::new(feed.lease(), client(2), patience));
        let mut decoders = [Decoder::new(Limits::client()), Decoder::new(Limits::client())];
        let mut out = VecDeque::new();
        for (sender, decoder) in [&mut first, &mut second].into_iter().zip(&mut decoders) {
            decoder.push(&crate::syncproto::gob::server_prefix());
            out.clear();
            sender.start(Instant::now(), &mut out);
            for bytes in &out {
                decoder.push(bytes);
            }
        }
        assert!(heard(&mut first, &mut decoders[0]).await.contains(&"status 2".to_owned()));
        lap(&mut cache, 1);
        settled().await;
        first.look_again();
        out.clear();
        first.fill(Instant::now(), &mut out).unwrap();
        assert!(first.in_catch_up(), "it is under way");
        cache.apply(vec![SyncerEvent::Updates(vec![update("/x", Some(b"1"))])]);
        settled().await;
        let said = heard(&mut second, &mut decoders[1]).await;
        let at =
            |what: &str| said.iter().position(|said| said == what).unwrap_or_else(|| panic!("no {what}: {said:?}"));
        assert!(at("/x") < at("status 2"), "{:?}", &said[said.len() - 5..]);
    }
}
