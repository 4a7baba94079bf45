//! A connection between its task and the pump.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, DuplexStream, duplex};

use super::*;
use crate::model::SyncerEvent;
use crate::syncserver::feed::inspection::{Check, Finding};
use crate::syncserver::feed::pinned::Pinned;
use crate::syncserver::feed::pump::{Pass, Position};
use crate::syncserver::server::tracker::Tracker;
use crate::syncserver::tests::harness::{lone_feed, update};

/// A client that the pump can pass by once, as if its wake-up were lost.
struct Overlooked {
    line: Arc<Line<DuplexStream>>,
    once: AtomicBool,
}

impl PumpClient for Overlooked {
    fn serve(&self, pass: &mut Pass<'_>) {
        if !self.once.swap(false, Ordering::SeqCst) {
            self.line.serve(pass);
        }
    }

    fn nudge(&self) {
        self.line.nudge();
    }

    fn position(&self) -> Option<Position> {
        self.line.position()
    }

    fn inspect(&self, check: &Check<'_>) -> Option<Finding> {
        self.line.inspect(check)
    }

    fn note_version(&self, pinned: &mut Pinned) {
        self.line.note_version(pinned);
    }

    fn end_oldest(&self) {
        self.line.end_oldest();
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_is_lost_costs_two_housekeepings_at_most_and_is_counted() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (mut cache, lease) = lone_feed();
    let (feed, now) = (Arc::clone(&lease), Instant::now());
    let client = Tracker::default().add(1, ([10, 0, 0, 1], 1).into(), None, now);
    let (mut agent, server) = duplex(1 << 20);
    let outgoing = Outgoing::new(lease, client.clone(), Patience { max_fall_behind: HOUR, grace: HOUR }, now);
    let timeouts = Timeouts { ping_interval: HOUR, pong: HOUR, write: HOUR };
    let liveness = Liveness::new(timeouts, outgoing.phase().obligations(), 1, now);
    let link = Link::new(plain(server));
    let line = Line::new(client.clone(), Streaming::new(link, outgoing, liveness, client.clone(), now));
    let pump_client = Arc::new(Overlooked { line: line.clone(), once: AtomicBool::new(false) });
    let _registration = Registration::take(feed.pump().clone(), 1, pump_client.clone());
    tokio::spawn(async move { stream_to(&line, Inbound::native(BytesMut::new()), &client, &Places::new()).await });
    // The time until a change arrives.
    let mut change = async |value: &[u8]| {
        let began = Instant::now();
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
        let mut buffer = vec![0; 64 << 10];
        tokio::time::timeout(60 * Duration::from_secs(1), agent.read(&mut buffer))
            .await
            .expect("it comes within a minute")
            .expect("the server lives");
        began.elapsed()
    };
    let (at_once, lost) = (Duration::from_millis(100), || feed.metrics().lost_wakeups.get());
    tokio::time::sleep(10 * Duration::from_secs(1)).await;
    assert!(change(b"1").await < at_once);
    pump_client.once.store(true, Ordering::SeqCst);
    let took = change(b"2").await;
    assert!(took > at_once && took <= Duration::from_secs(2), "{took:?}");
    assert_eq!(lost(), 1);
    for n in 0..100 {
        assert!(change(&[n]).await < at_once);
        tokio::time::sleep(Duration::from_millis(97)).await;
    }
    assert_eq!(lost(), 1, "no client is woken for nothing");
}

/// Thousands of connections do nothing most of the time, and each keeps its future.
#[test]
fn a_connection_is_small() {
    fn size_of_future<F, A, B, C, D>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }
    let future = size_of_future(serve::<tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit>);
    let line = size_of::<Line<tokio::net::TcpStream>>();
    let all = future + line + size_of::<Client>();
    assert!(all <= 2048, "{future} + {line} + {} bytes", size_of::<Client>());
}
