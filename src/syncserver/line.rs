//! One client that streams: what its own task and its feed's pump share, and how they take turns.
//!
//! ```text
//!  task:  start ─► snapshot ─► following ─┬─ nothing to send ─► at rest ◄─ written whole ─┐
//!           ▲                             │                        └──── pump: a round ───┤
//!           └──── reads, timers ──────────┴──────────◄── nudge ◄─ written in part, lost ──┘
//! ```
//!
//! Whoever rests (has all there was, and nothing queued) is served by the [pump](super::pump) along with everybody else who
//! rests: no task is woken, and nothing is looked up for it alone. All else (reads, pings, time-outs, snapshots, catch-ups,
//! a socket that is full) is the task's.
//!
//! Invariants:
//! - no change passes a client by, whether its task or the pump looks after it when the change comes: see [`super::turns`];
//! - what the pump could not write is queued, and the task goes on with it, as it does with what was too much for a pass.
//!
//! Should either be lost all the same, housekeeping finds it (see [`super::inspection`]).

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::SystemTime;

use tokio::time::Instant;

use super::calls::{Call, Order};
use super::inbound::{ClientEvent, Inbound};
use super::inspection::{Check, Found, Suspicion, Waits};
use super::link::Link;
use super::liveness::Liveness;
use super::pinned::Pinned;
use super::pump::{Ahead, Pass, Passenger, Position};
use super::reason::CloseReason;
use super::ring::Mark;
use super::sender::Sender;
use super::status::ClientState;
use super::tracker::Client;
use super::transport::Stream;
use super::turns::{NotNow, Rests, Turns, Visit};
use super::wire::Wire;
use crate::metrics::SyncerMetrics;

/// What a poll of the line has brought.
pub(super) enum Done {
    /// Bytes came, and are with their reader.
    Read,
    /// There may be something to send.
    Woken,
    /// So many bytes left.
    Wrote(u64),
    /// The connection is over, or to be ended.
    Ended(CloseReason),
}

/// What there is of one streaming client.
#[derive(Debug)]
pub(super) struct Streaming<S> {
    pub(super) link: Link<S>,
    pub(super) sender: Sender,
    liveness: Liveness,
    client: Arc<Client>,
    started: bool,
    snapshot_done: bool,
    snapshot_at: Instant,
    filled_at: Instant,
    bytes_sent: u64,
    /// Why the pump could not write.
    failed: Option<CloseReason>,
    /// The pump has queued what did not fit into the socket, and the task has not taken it on yet.
    left_by_pump: bool,
    suspicion: Suspicion,
}

impl<S: Stream> Streaming<S> {
    /// A client whose hello has been answered; the answer is queued.
    pub(super) fn new(
        link: Link<S>,
        sender: Sender,
        mut liveness: Liveness,
        client: Arc<Client>,
        now: Instant,
    ) -> Self {
        client.through_handshake();
        liveness.on_pending(now);
        Self {
            link,
            sender,
            liveness,
            client,
            started: false,
            snapshot_done: false,
            snapshot_at: now,
            filled_at: now,
            bytes_sent: 0,
            failed: None,
            left_by_pump: false,
            suspicion: Suspicion::default(),
        }
    }

    fn metrics(&self) -> &SyncerMetrics {
        self.sender.feed().metrics()
    }

    /// Queues what there is for the client, if all that was queued before has left. Returns when to look at the clocks.
    pub(super) fn turn(&mut self, now: Instant) -> Result<Instant, CloseReason> {
        self.left_by_pump = false;
        self.suspicion.clear();
        if let Some(reason) = self.failed.take() {
            return Err(reason);
        }
        while self.link.is_drained() {
            if !self.started && !self.liveness.awaits_ack() {
                self.start(now);
            }
            if self.started {
                self.fill(now)?;
            }
            if !self.link.is_drained() {
                self.liveness.on_pending(now);
                self.filled_at = now;
            } else if !self.started || self.sender.is_dry() {
                break;
            }
            // Otherwise a phase ended without a byte: the next one may have some.
        }
        Ok(self.liveness.deadline(now))
    }

    fn start(&mut self, now: Instant) {
        self.started = true;
        self.snapshot_at = now;
        if self.sender.feed().key().wire == Wire::GobSnappy {
            let prefix = self.sender.feed().format().prefix();
            self.link.out().push_back(prefix);
        }
        self.sender.start(now, self.link.out());
        self.client.set_state(ClientState::Snapshot);
    }

    fn fill(&mut self, now: Instant) -> Result<(), CloseReason> {
        if !self.snapshot_done && !self.sender.in_snapshot() {
            self.snapshot_done = true;
            self.liveness.on_snapshot_sent(now);
            self.sender.on_snapshot_sent(now);
            self.metrics().client_snapshot_send_secs.observe((now - self.snapshot_at).as_secs_f64());
        }
        if self.liveness.ping_due(now) {
            let as_of = self.sender.feed().reader().as_of();
            let ping = self.sender.feed().format().ping(SystemTime::now(), as_of.as_ref());
            self.link.out().push_back(ping);
            self.liveness.on_pinged(now);
            // A ping must not be all that a client gets that lacks something.
            self.sender.look_again();
        }
        self.sender.fill(now, self.link.out())?;
        self.liveness.note_bulk(!self.snapshot_done || self.sender.in_catch_up());
        self.note_state();
        Ok(())
    }

    /// Shows others how far the client has come.
    fn note_state(&self) {
        self.client.set_state(if self.sender.in_snapshot() || !self.snapshot_done {
            ClientState::Snapshot
        } else if self.sender.in_catch_up() {
            ClientState::CatchUp
        } else {
            ClientState::Following
        });
    }

    /// Reads, unless there is no room for more bytes, writes, and looks for a call, whichever is possible first.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, inbound: Option<&mut Inbound>) -> Poll<Done> {
        match self.client.calls().poll_call(cx) {
            Poll::Ready(Call::End(order)) => return Poll::Ready(Done::Ended(order.into())),
            Poll::Ready(Call::Look) => {
                self.sender.look_again();
                return Poll::Ready(Done::Woken);
            }
            Poll::Pending => {}
        }
        // Written first: a client that talks without end must not keep its own data from it.
        if !self.link.is_drained() {
            match self.link.poll_write(cx) {
                Poll::Ready(Ok(bytes)) => return Poll::Ready(Done::Wrote(bytes)),
                Poll::Ready(Err(reason)) => return Poll::Ready(Done::Ended(reason)),
                Poll::Pending => {}
            }
        }
        let Some(inbound) = inbound else { return Poll::Pending };
        match ready!(self.link.poll_read(cx, |bytes| inbound.push(bytes))) {
            Ok(()) => Poll::Ready(Done::Read),
            Err(reason) => Poll::Ready(Done::Ended(reason)),
        }
    }

    /// Bytes left for the client.
    pub(super) fn on_wrote(&mut self, bytes: u64, now: Instant) {
        let all = self.link.is_drained();
        self.bytes_sent += bytes;
        self.liveness.on_progress(bytes, all, now);
        self.metrics().bytes_sent.inc_by(bytes);
        if all {
            self.metrics().client_write_latency_secs.observe_at(now, (now - self.filled_at).as_secs_f64());
        }
    }

    /// Time passed: is the client still in time?
    pub(super) fn check(&mut self, now: Instant) -> Result<(), CloseReason> {
        self.liveness.check(now)?;
        self.sender.check(now)
    }

    /// The client said something.
    pub(super) fn on_event(&mut self, event: ClientEvent, now: Instant) -> Result<(), CloseReason> {
        let client = &self.client;
        match event {
            ClientEvent::Ack => {
                // One that was not awaited is the acknowledgement of a restart that only Calico's server would do.
                let _awaited = self.liveness.on_ack(now);
            }
            ClientEvent::Pong => {
                if let Some(latency) = self.liveness.on_pong(now)? {
                    self.metrics().ping_latency.observe(latency.as_secs_f64());
                }
            }
            ClientEvent::Applied(ack) => {
                client.set_applied(ack.applied, ack.errors.len());
                if let Some(first) = ack.errors.first() {
                    tracing::warn!(
                        conn = client.id,
                        peer = %client.peer,
                        keys = ack.errors.len(),
                        first = %first.key,
                        reason = first.reason,
                        "agent could not apply some keys"
                    );
                }
            }
            ClientEvent::Goodbye(reason) => {
                tracing::debug!(conn = client.id, peer = %client.peer, reason, "client says goodbye");
                return Err(CloseReason::ClientClosed);
            }
        }
        Ok(())
    }

    /// Gives the client its share of a pass if it is at rest.
    fn ride(&mut self, pass: &mut Pass<'_>) -> Visit {
        if !self.link.is_drained() {
            return Visit::Busy;
        }
        if !self.sender.is_following() {
            // Its task is on its way to the ring.
            return Visit::Done;
        }
        let Some(mark) = self.sender.resting_at() else { return Visit::Left };
        let stretch = match pass.after(mark) {
            Ahead::Nothing => return Visit::Done,
            Ahead::Forgotten => return Visit::Left,
            Ahead::Stretch(stretch) => stretch,
        };
        let more = stretch.more;
        self.sender.on_served(&stretch.end);
        self.suspicion.clear();
        // Should the socket be full, the task polls again and is the one that is woken.
        let polled = self.link.poll_send(&mut Context::from_waker(Waker::noop()), &stretch.pieces);
        let bytes = if let Poll::Ready(Ok(bytes)) = polled { bytes } else { 0 };
        pass.on_served(bytes);
        self.bytes_sent += bytes;
        if self.link.is_drained() {
            // It does not rest before it has all there is: perhaps nothing comes for a long time.
            return if more { Visit::Left } else { Visit::Done };
        }
        if let Poll::Ready(Err(reason)) = polled {
            self.failed = Some(reason);
        }
        self.filled_at = pass.now;
        self.liveness.on_pending(pass.now);
        self.left_by_pump = true;
        Visit::Left
    }

    /// Housekeeping looks whether the client is forgotten. `nudged`: its task has been told to look.
    fn inspect(&mut self, check: &Check<'_>, nudged: bool) -> Found {
        let has_snapshot = self.started && !self.sender.in_snapshot();
        let lacks = if has_snapshot { self.sender.mark().updates_until(check.head) } else { 0 };
        Found { lacks, waits: self.suspicion.look(self.waits(check.head), nudged, check.excused) }
    }

    /// Whether there is something for the client that its task or a pump should be about to send.
    fn waits(&self, head: &Mark) -> bool {
        if self.failed.is_some() || !self.link.is_drained() {
            // Its task waits for room in the socket, unless it does not know of it.
            self.failed.is_some() || self.left_by_pump
        } else if self.started {
            self.sender.has_more(head)
        } else {
            !self.liveness.awaits_ack()
        }
    }

    /// Where the client stands: nowhere before its snapshot has begun.
    fn position(&self) -> Option<Position> {
        self.started.then(|| Position { mark: self.sender.mark().clone(), bytes_sent: self.bytes_sent })
    }
}

impl<S> Rests for Streaming<S> {
    fn look_again(&mut self) {
        self.sender.look_again();
    }
}

/// A streaming client as its task and the pump hold it.
#[derive(Debug)]
pub(super) struct Line<S> {
    client: Arc<Client>,
    turns: Turns<Streaming<S>>,
}

impl<S: Stream> Line<S> {
    pub(super) fn new(client: Arc<Client>, streaming: Streaming<S>) -> Arc<Self> {
        Arc::new(Self { client, turns: Turns::new(streaming) })
    }

    /// Does something with the client. For its task only.
    ///
    /// # Errors
    /// Somebody panicked in the middle of serving it: nobody knows what it was sent, so the connection has to end.
    ///
    /// # Panics
    /// After [`Self::take`].
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Streaming<S>) -> R) -> Result<R, CloseReason> {
        let done = self.turns.with(act).map_err(|_| CloseReason::Panicked("in the middle of serving it".to_owned()))?;
        Ok(done.expect("only its task takes it, at the very end"))
    }

    /// Takes the client away from the pump for good.
    pub(super) fn take(&self) -> Option<Streaming<S>> {
        // Also after a panic: it is closed without another word then.
        self.turns.take()
    }
}

impl<S: Stream> Passenger for Line<S> {
    fn serve(&self, pass: &mut Pass<'_>) {
        self.turns.visit(self.client.calls(), |streaming| streaming.ride(pass));
    }

    fn nudge(&self) {
        self.client.calls().nudge();
    }

    fn position(&self) -> Option<Position> {
        self.turns.with(|streaming| streaming.position()).ok().flatten().flatten()
    }

    fn inspect(&self, check: &Check<'_>) -> Option<Found> {
        let inspected = self.turns.try_with(|streaming| streaming.inspect(check, self.client.calls().is_nudged()));
        let found = match inspected {
            Ok(found) => found.unwrap_or_default(),
            Err(NotNow::Busy) => return None,
            // Its task ends it.
            Err(NotNow::Poisoned) => Found { lacks: 0, waits: Waits::Lost },
        };
        if found.waits == Waits::Lost {
            self.client.calls().nudge();
        }
        Some(found)
    }

    fn note_version(&self, pinned: &mut Pinned) {
        let _whose_task_is_at_work_is_noted_another_time = self.turns.try_with(|streaming| {
            if streaming.started {
                pinned.note(streaming.sender.mark(), self.client.id);
            }
        });
    }

    fn let_go(&self) {
        self.client.calls().order(Order::OldestVersion);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::super::feed::Feed;
    use super::super::liveness::Timeouts;
    use super::super::sender::Patience;
    use super::super::tests::harness::{eventually, lone_feed, update};
    use super::super::tracker::Tracker;
    use super::super::transport::Transport;
    use super::*;
    use crate::model::SyncerEvent;
    use crate::snapcache::SnapCache;

    const HOUR: Duration = Duration::from_secs(3600);

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Wakes {
        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// A line that rests, whose task is played by the test and whose pump never comes by itself.
    struct Scene {
        cache: SnapCache,
        feed: Arc<Feed>,
        line: Arc<Line<DuplexStream>>,
        inbound: Inbound,
        client: Arc<Client>,
        agent: DuplexStream,
        wakes: Arc<Wakes>,
    }

    impl Scene {
        async fn new(pipe: usize) -> Self {
            let (cache, lease) = lone_feed();
            let feed = Arc::clone(&lease);
            let now = Instant::now();
            let client = Tracker::default().add(1, ([10, 0, 0, 1], 1).into(), None, now);
            let (agent, server) = duplex(pipe);
            let sender = Sender::new(lease, client.clone(), Patience { max_fall_behind: 10 * HOUR, grace: HOUR });
            let timeouts = Timeouts { ping_interval: HOUR, pong: HOUR, write: HOUR };
            let liveness = Liveness::new(timeouts, false, 1, now);
            let link = Link::new(Transport::plain(server));
            let line = Line::new(client.clone(), Streaming::new(link, sender, liveness, client.clone(), now));
            let inbound = Inbound::native(BytesMut::new());
            let mut scene = Self { cache, feed, line, inbound, client, agent, wakes: Arc::default() };
            loop {
                scene.turn();
                if scene.poll().is_none() {
                    if scene.line.with(|streaming| streaming.snapshot_done).expect("in order") {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            // Wakes count from here.
            scene.wakes = Arc::default();
            assert_eq!(scene.poll(), None, "at rest");
            scene
        }

        fn turn(&self) {
            self.line.with(|streaming| streaming.turn(Instant::now())).flatten().expect("in order");
        }

        /// Polls as the task does. Returns a word for what came of it.
        fn poll(&mut self) -> Option<&'static str> {
            let waker = self.wakes.clone().into();
            let done =
                self.line.with(|streaming| streaming.poll(&mut Context::from_waker(&waker), Some(&mut self.inbound)));
            match done.expect("in order") {
                Poll::Pending => None,
                Poll::Ready(Done::Woken) => Some("woken"),
                Poll::Ready(Done::Wrote(bytes)) => {
                    self.line.with(|streaming| streaming.on_wrote(bytes, Instant::now())).expect("in order");
                    Some("wrote")
                }
                Poll::Ready(Done::Read) => Some("read"),
                Poll::Ready(Done::Ended(_)) => Some("ended"),
            }
        }

        /// A change, up to its being in the ring.
        async fn change(&mut self, value: &[u8]) {
            let before = self.feed.head().sequence;
            self.cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
            eventually("it is in the ring", || self.feed.head().sequence > before).await;
        }

        async fn read(&mut self, bytes: usize) {
            let mut read = vec![0; bytes];
            self.agent.read_exact(&mut read).await.expect("the server lives");
        }

        fn sequence(&self) -> u64 {
            self.line.with(|streaming| streaming.sender.mark().sequence).expect("in order")
        }
    }

    #[tokio::test]
    async fn a_client_at_rest_is_served_and_its_task_sleeps_on() {
        let mut scene = Scene::new(1 << 20).await;
        for n in 1..=3 {
            scene.change(&[n; 100]).await;
            let mut pass = Pass::new(&scene.feed);
            scene.line.serve(&mut pass);
            let bytes = usize::try_from(pass.bytes).expect("few");
            assert!(bytes > 100, "{bytes}");
            scene.line.serve(&mut pass);
            assert_eq!(pass.bytes, 0, "the same is not sent twice");
            scene.read(bytes).await;
            assert_eq!(scene.sequence(), scene.feed.head().sequence);
        }
        assert_eq!(scene.wakes.count(), 0);
        scene.turn();
        assert_eq!(scene.poll(), None, "nothing is left for the task");
    }

    #[tokio::test]
    async fn what_a_socket_has_no_room_for_is_left_to_the_task() {
        let mut scene = Scene::new(64).await;
        scene.change(&[1; 200]).await;
        let mut pass = Pass::new(&scene.feed);
        scene.line.serve(&mut pass);
        assert_eq!((pass.bytes, scene.wakes.count()), (64, 1));
        // The next change comes while the socket is full. The pump passes by; the task will find it.
        scene.change(&[2; 200]).await;
        scene.line.serve(&mut Pass::new(&scene.feed));
        assert_eq!(scene.poll(), Some("woken"));
        let mut read = 0;
        let drained = |scene: &Scene| scene.line.with(|line| line.link.is_drained()).expect("in order");
        while scene.sequence() != scene.feed.head().sequence || !drained(&scene) {
            scene.turn();
            if scene.poll().is_none() {
                scene.read(64).await;
                read += 64;
            }
        }
        assert!(read > 300, "{read}");
    }

    #[tokio::test]
    async fn what_is_too_much_for_a_pass_is_left_to_the_task() {
        let mut scene = Scene::new(1 << 20).await;
        for n in 1..=3 {
            scene.change(&vec![n; 200 << 10]).await;
        }
        scene.line.serve(&mut Pass::new(&scene.feed));
        assert_eq!((scene.sequence(), scene.wakes.count()), (1, 1));
        assert_eq!(scene.poll(), Some("woken"));
        while scene.sequence() != scene.feed.head().sequence {
            scene.turn();
            assert_eq!(scene.poll(), Some("wrote"));
        }
    }

    #[tokio::test]
    async fn a_line_that_is_locked_is_not_waited_for_and_its_task_looks_again() {
        let mut scene = Scene::new(1 << 20).await;
        scene.change(&[1; 100]).await;
        {
            let pump = scene.line.clone();
            scene.line.with(|_| pump.serve(&mut Pass::new(&scene.feed))).expect("in order");
        }
        assert_eq!((scene.sequence(), scene.wakes.count()), (0, 1));
        assert_eq!(scene.poll(), Some("woken"));
        scene.turn();
        assert_eq!(scene.poll(), Some("wrote"));
        assert_eq!(scene.sequence(), scene.feed.head().sequence);
    }

    #[tokio::test]
    async fn a_client_that_has_gone_is_noticed_by_its_task() {
        let mut scene = Scene::new(1 << 20).await;
        scene.change(&[1; 100]).await;
        scene.agent = duplex(1).0;
        scene.line.serve(&mut Pass::new(&scene.feed));
        let client = scene.client.clone();
        let call = poll_fn(|cx| client.calls().poll_call(cx)).await;
        assert_eq!(call, Call::Look);
        let reason = scene.line.with(|streaming| streaming.turn(Instant::now())).flatten().err();
        assert_eq!(reason, Some(CloseReason::ClientClosed));
    }

    /// The findings of housekeeping.
    fn inspect(scene: &Scene, excused: bool) -> Waits {
        scene.line.inspect(&Check { head: &scene.feed.head(), excused }).expect("nobody is at work on it").waits
    }

    #[tokio::test]
    async fn a_client_that_everybody_forgot_is_found_at_the_second_look_and_woken() {
        let mut scene = Scene::new(1 << 20).await;
        assert_eq!(inspect(&scene, false), Waits::No);
        // No pump comes by.
        scene.change(&[1; 100]).await;
        assert_eq!((inspect(&scene, false), scene.wakes.count()), (Waits::Suspected, 0));
        assert_eq!((inspect(&scene, true), scene.wakes.count()), (Waits::Suspected, 0), "a pass is on its way");
        assert_eq!((inspect(&scene, false), scene.wakes.count()), (Waits::Lost, 1));
        assert_eq!(scene.poll(), Some("woken"));
        scene.turn();
        assert_eq!(scene.poll(), Some("wrote"));
        assert_eq!(scene.sequence(), scene.feed.head().sequence);
        assert_eq!(inspect(&scene, false), Waits::No);
        // Served between two looks, and there is something new at each.
        for n in 2..=4 {
            scene.change(&[n; 100]).await;
            assert_eq!(inspect(&scene, false), Waits::Suspected);
            scene.line.serve(&mut Pass::new(&scene.feed));
        }
    }

    #[tokio::test]
    async fn a_client_whose_socket_is_full_has_a_reason_to_wait_once_its_task_knows() {
        let mut scene = Scene::new(64).await;
        scene.change(&[1; 200]).await;
        scene.line.serve(&mut Pass::new(&scene.feed));
        // Its task was nudged. Should it not come: that is seen.
        assert_eq!(inspect(&scene, false), Waits::Suspected);
        assert_eq!(inspect(&scene, false), Waits::Lost);
        assert_eq!(scene.poll(), Some("woken"));
        scene.turn();
        assert_eq!(scene.poll(), None, "no room");
        scene.change(&[2; 200]).await;
        for _ in 0..3 {
            assert_eq!(inspect(&scene, false), Waits::No);
        }
    }

    #[tokio::test]
    async fn a_client_that_lacks_something_gets_it_with_a_ping_at_the_latest() {
        let mut scene = Scene::new(1 << 20).await;
        scene.change(&[1; 100]).await;
        scene.line.with(|streaming| streaming.turn(Instant::now() + 2 * HOUR)).flatten().expect("in order");
        assert_eq!(scene.sequence(), scene.feed.head().sequence);
        assert_eq!(scene.poll(), Some("wrote"));
    }

    #[tokio::test]
    async fn a_line_that_is_poisoned_is_left_to_its_task_which_ends_it() {
        let mut scene = Scene::new(1 << 20).await;
        let line = scene.line.clone();
        let panic = std::thread::spawn(move || line.with(|_| panic!("in the middle"))).join();
        assert!(panic.is_err());
        scene.change(&[1; 100]).await;
        scene.line.serve(&mut Pass::new(&scene.feed));
        assert_eq!(scene.wakes.count(), 1);
        assert!(scene.line.position().is_none());
        assert_eq!(inspect(&scene, false), Waits::Lost, "it is told again, should it not have heard");
        let ended = scene.line.with(|streaming| streaming.turn(Instant::now())).flatten().err();
        assert!(matches!(ended, Some(CloseReason::Panicked(_))), "{ended:?}");
        assert!(scene.line.take().is_some(), "its socket can be closed");
    }
}
