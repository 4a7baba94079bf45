//! A line whose task is played by the test.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::super::liveness::Timeouts;
use super::super::outgoing::Patience;
use super::super::transport::plain;
use super::*;
use crate::model::SyncerEvent;
use crate::snapcache::SnapCache;
use crate::syncserver::feed::shared::Feed;
use crate::syncserver::server::tracker::Tracker;
use crate::syncserver::tests::harness::{eventually, lone_feed, update};

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
        let outgoing = Outgoing::new(lease, client.clone(), Patience { max_fall_behind: 10 * HOUR, grace: HOUR }, now);
        let timeouts = Timeouts { ping_interval: HOUR, pong: HOUR, write: HOUR };
        let liveness = Liveness::new(timeouts, outgoing.phase().obligations(), 1, now);
        let link = Link::new(plain(server));
        let line = Line::new(client.clone(), Streaming::new(link, outgoing, liveness, client.clone(), now));
        let inbound = Inbound::native(BytesMut::new());
        let mut scene = Self { cache, feed, line, inbound, client, agent, wakes: Arc::default() };
        loop {
            scene.refill();
            if scene.poll().is_none() {
                if scene.line.with(|line| matches!(line.outgoing.phase(), Phase::Following)).expect("in order") {
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

    fn refill(&self) {
        self.line.with(|streaming| streaming.refill(Instant::now())).flatten().expect("in order");
    }

    /// Polls as the task does. Returns a word for the result.
    fn poll(&mut self) -> Option<&'static str> {
        let waker = self.wakes.clone().into();
        let done =
            self.line.with(|streaming| streaming.poll(&mut Context::from_waker(&waker), Some(&mut self.inbound)));
        match done.expect("in order") {
            Poll::Pending => None,
            Poll::Ready(LineEvent::Woken) => Some("woken"),
            Poll::Ready(LineEvent::Wrote(bytes)) => {
                self.line.with(|streaming| streaming.on_wrote(bytes, Instant::now())).expect("in order");
                Some("wrote")
            }
            Poll::Ready(LineEvent::Read) => Some("read"),
            Poll::Ready(LineEvent::Ended(_)) => Some("ended"),
        }
    }

    /// Makes a change, and waits until it is in the ring.
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
        self.line.with(|streaming| streaming.outgoing.mark().map(|mark| mark.sequence)).expect("in order").unwrap_or(0)
    }
}

#[tokio::test]
async fn a_client_at_rest_is_served_and_its_task_sleeps_on() {
    let mut scene = Scene::new(1 << 20).await;
    for n in 1..=3 {
        scene.change(&[n; 100]).await;
        let mut pass = Pass::new(scene.feed.history());
        scene.line.serve(&mut pass);
        let bytes = usize::try_from(pass.bytes).expect("few");
        assert!(bytes > 100, "{bytes}");
        scene.line.serve(&mut pass);
        assert_eq!(pass.bytes, 0, "the same is not sent twice");
        scene.read(bytes).await;
        assert_eq!(scene.sequence(), scene.feed.head().sequence);
    }
    assert_eq!(scene.wakes.count(), 0);
    scene.refill();
    assert_eq!(scene.poll(), None, "nothing is left for the task");
}

#[tokio::test]
async fn bytes_that_do_not_fit_into_the_socket_are_left_to_the_task() {
    let mut scene = Scene::new(64).await;
    scene.change(&[1; 200]).await;
    let mut pass = Pass::new(scene.feed.history());
    scene.line.serve(&mut pass);
    assert_eq!((pass.bytes, scene.wakes.count()), (64, 1));
    // The next change comes while the socket is full. The pump passes by; the task will find it.
    scene.change(&[2; 200]).await;
    scene.line.serve(&mut Pass::new(scene.feed.history()));
    assert_eq!(scene.poll(), Some("woken"));
    let mut read = 0;
    let drained = |scene: &Scene| scene.line.with(|line| line.link.is_drained()).expect("in order");
    while scene.sequence() != scene.feed.head().sequence || !drained(&scene) {
        scene.refill();
        if scene.poll().is_none() {
            scene.read(64).await;
            read += 64;
        }
    }
    assert!(read > 300, "{read}");
}

#[tokio::test]
async fn changes_that_are_too_much_for_a_pass_are_left_to_the_task() {
    let mut scene = Scene::new(1 << 20).await;
    for n in 1..=3 {
        scene.change(&vec![n; 200 << 10]).await;
    }
    scene.line.serve(&mut Pass::new(scene.feed.history()));
    assert_eq!((scene.sequence(), scene.wakes.count()), (1, 1));
    assert_eq!(scene.poll(), Some("woken"));
    while scene.sequence() != scene.feed.head().sequence {
        scene.refill();
        assert_eq!(scene.poll(), Some("wrote"));
    }
}

#[tokio::test]
async fn a_line_that_is_locked_is_not_waited_for_and_its_task_looks_again() {
    let mut scene = Scene::new(1 << 20).await;
    scene.change(&[1; 100]).await;
    {
        let pump = scene.line.clone();
        scene.line.with(|_| pump.serve(&mut Pass::new(scene.feed.history()))).expect("in order");
    }
    assert_eq!((scene.sequence(), scene.wakes.count()), (0, 1));
    assert_eq!(scene.poll(), Some("woken"));
    scene.refill();
    assert_eq!(scene.poll(), Some("wrote"));
    assert_eq!(scene.sequence(), scene.feed.head().sequence);
}

#[tokio::test]
async fn a_client_that_has_gone_is_noticed_by_its_task() {
    let mut scene = Scene::new(1 << 20).await;
    scene.change(&[1; 100]).await;
    scene.agent = duplex(1).0;
    scene.line.serve(&mut Pass::new(scene.feed.history()));
    let client = scene.client.clone();
    let call = poll_fn(|cx| client.calls().poll_call(cx)).await;
    assert_eq!(call, Call::Look);
    let reason = scene.line.with(|streaming| streaming.refill(Instant::now())).flatten().err();
    assert_eq!(reason, Some(CloseReason::ClientClosed));
}

/// The findings of housekeeping.
fn inspect(scene: &Scene, excused: bool) -> Waits {
    scene.line.inspect(&Check { head: &scene.feed.head(), excused }).expect("it is not locked").waits
}

#[tokio::test]
async fn a_forgotten_client_is_found_at_the_second_check_and_woken() {
    let mut scene = Scene::new(1 << 20).await;
    assert_eq!(inspect(&scene, false), Waits::No);
    // No pump comes by.
    scene.change(&[1; 100]).await;
    assert_eq!((inspect(&scene, false), scene.wakes.count()), (Waits::Suspected, 0));
    assert_eq!((inspect(&scene, true), scene.wakes.count()), (Waits::Suspected, 0), "a pass is on its way");
    assert_eq!((inspect(&scene, false), scene.wakes.count()), (Waits::Lost, 1));
    assert_eq!(scene.poll(), Some("woken"));
    scene.refill();
    assert_eq!(scene.poll(), Some("wrote"));
    assert_eq!(scene.sequence(), scene.feed.head().sequence);
    assert_eq!(inspect(&scene, false), Waits::No);
    // Served between two checks, with a change before each.
    for n in 2..=4 {
        scene.change(&[n; 100]).await;
        assert_eq!(inspect(&scene, false), Waits::Suspected);
        scene.line.serve(&mut Pass::new(scene.feed.history()));
    }
}

#[tokio::test]
async fn a_client_whose_socket_is_full_has_a_reason_to_wait_once_its_task_knows() {
    let mut scene = Scene::new(64).await;
    scene.change(&[1; 200]).await;
    scene.line.serve(&mut Pass::new(scene.feed.history()));
    // Its task was nudged. If it does not come, that is noticed.
    assert_eq!(inspect(&scene, false), Waits::Suspected);
    assert_eq!(inspect(&scene, false), Waits::Lost);
    assert_eq!(scene.poll(), Some("woken"));
    scene.refill();
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
    scene.line.with(|streaming| streaming.refill(Instant::now() + 2 * HOUR)).flatten().expect("in order");
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
    scene.line.serve(&mut Pass::new(scene.feed.history()));
    assert_eq!(scene.wakes.count(), 1);
    assert!(scene.line.position().is_none());
    assert_eq!(inspect(&scene, false), Waits::Lost, "it is told again, should it not have heard");
    let ended = scene.line.with(|streaming| streaming.refill(Instant::now())).flatten().err();
    assert!(matches!(ended, Some(CloseReason::Panicked(_))), "{ended:?}");
    assert!(scene.line.take().is_some(), "its socket can be closed");
}
