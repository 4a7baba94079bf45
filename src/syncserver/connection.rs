//! One connection: a thin driver around [`Handshake`], [`Inbound`] and its [`Line`], from accept to close.
//!
//! ```text
//!  socket ─bytes─► Handshake ─► Hello ─► (restart, ACK) ─► Line: Sender ─Bytes─► socket
//!                                  Inbound ─► Liveness ────────┘ pings   └─ shared with the feed's pump
//! ```
//!
//! One task per connection, one `select!`. All progress is kept in the [`Link`] and the state machines, so every arm may be
//! dropped at any time. While nothing happens, the task holds no buffer, no encoder and no queue, and sleeps: what the pump
//! can write, it writes without waking the task.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::calls::Order;
use super::feed::FeedKey;
use super::feeds::{Feeds, NoFeed};
use super::handshake::{Handshake, Hello};
use super::inbound::Inbound;
use super::line::{Done, Line, Streaming};
use super::link::{Link, close};
use super::liveness::{Liveness, Timeouts};
use super::peers::Peers;
use super::places::{FREE_TLS_BYTES, Places, Reading};
use super::pump::{Passenger, Seat};
use super::reason::CloseReason;
use super::sender::{Patience, Sender};
use super::status::ClientState;
use super::tracker::Client;
use super::transport::{FirstBytes, Metered, Stream, TlsSource, Transport};
use super::wire::Wire;
use crate::dialect::choice::{OfUnknownVersions, choose};
use crate::model::release::Release;
use crate::syncproto::messages::{DecoderRestart, Message, ServerHello};
use crate::syncproto::{gob, native};
use crate::tls::{Purpose, handshake_error};

/// How often a handshake need not make room for others because its peer has been heard of: as often as there is something
/// to be heard (TLS's two flights and the hello). Whoever dribbles is not spared for ever.
const MOST_SPARED: u32 = 3;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) feeds: Arc<Feeds>,
    pub(super) tls: Option<TlsSource>,
    pub(super) handshake_timeout: Duration,
    pub(super) timeouts: Timeouts,
    /// For clients that have begun a long hello, or much of a TLS handshake.
    pub(super) handshake_places: Arc<Places>,
    /// For clients that stream and have begun a long message: strangers cannot take these without a hello.
    pub(super) places: Arc<Places>,
    pub(super) patience: Patience,
    /// The right to stream, which a limited number of connections may have.
    pub(super) streams: Arc<Semaphore>,
    /// Names the life of this server's caches.
    pub(super) epoch: u64,
    pub(super) seed: u64,
    /// Where clients may go that have to leave.
    pub(super) peers: Arc<ArcSwap<Peers>>,
    pub(super) of_unknown_versions: OfUnknownVersions,
}

impl Shared {
    /// Where a client that is to leave may go: for a goodbye.
    fn alternatives(&self, client: &Client, reason: &CloseReason) -> Vec<String> {
        if !reason.sends_elsewhere() {
            return Vec::new();
        }
        self.peers.load().for_client(client.peer, client.near, self.seed ^ client.id)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Serves one connection from its first byte to its end. `slot` is held during the handshake.
///
/// Returns why it ended; by then the socket is closed, unless a pump is just about to let go of it.
pub(super) async fn serve<S: Stream, P>(stream: S, client: Arc<Client>, shared: Arc<Shared>, slot: P) -> CloseReason {
    let Established { line, inbound, stream: _stream } = match Box::pin(establish(stream, &client, &shared)).await {
        Ok(established) => established,
        Err(reason) => return reason,
    };
    drop(slot);
    let feed = match line.with(|streaming| Arc::clone(streaming.sender.feed())) {
        Ok(feed) => feed,
        Err(reason) => return reason,
    };
    let passenger: Arc<dyn Passenger> = line.clone();
    client.set_line(Arc::downgrade(&passenger));
    let reason = {
        let _streaming = Counted::new(&feed.metrics().connections_streaming);
        let _speaking =
            Counted::new(&feed.metrics().connections_by_dialect.with_label_values(&[feed.key().line.as_str()]));
        let _seat = Seat::take(feed.clone(), client.id, passenger);
        stream_to(&line, inbound, &client, &shared.places).await
    };
    client.set_state(ClientState::Closing);
    let alternatives = shared.alternatives(&client, &reason);
    let goodbye = feed.format().goodbye(&reason.to_string(), &alternatives);
    drop((alternatives, feed));
    if let Some(Streaming { mut link, sender, .. }) = line.take() {
        drop((line, sender));
        Box::pin(close(&mut link, &reason, goodbye)).await;
    }
    reason
}

/// One more in a gauge, for as long as this lives.
#[derive(Debug)]
pub(super) struct Counted(IntGauge);

impl Counted {
    pub(super) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The hello has been exchanged.
struct Established<S> {
    line: Arc<Line<S>>,
    inbound: Inbound,
    stream: OwnedSemaphorePermit,
}

/// Everything up to and including the hello, within the handshake timeout.
async fn establish<S: Stream>(stream: S, client: &Arc<Client>, shared: &Shared) -> Result<Established<S>, CloseReason> {
    let mut time = HandshakeTime::new(client, shared.handshake_timeout);
    let mut link = Link::new(time.with(accept_tls(stream, client, shared)).await?);
    let mut handshake = Handshake::new();
    let answered = async {
        let hello = read_hello(&mut link, &mut handshake, client, &shared.handshake_places).await?;
        answer(hello, client, shared).await
    };
    match time.with(answered).await {
        Ok((bytes, inbound, sender, liveness, stream)) => {
            link.out().push_back(bytes);
            let streaming = Streaming::new(link, sender, liveness, client.clone(), Instant::now());
            Ok(Established { line: Line::new(client.clone(), streaming), inbound, stream })
        }
        Err(reason) => {
            let alternatives = || shared.alternatives(client, &reason);
            let goodbye = handshake.is_native().then(|| native::encode_goodbye(&reason.to_string(), &alternatives()));
            close(&mut link, &reason, goodbye).await;
            Err(reason)
        }
    }
}

/// How long a handshake may take.
struct HandshakeTime<'a> {
    client: &'a Client,
    deadline: Instant,
    /// Bytes that had come when the connection was asked last to make room for others.
    heard: u64,
    spared: u32,
}

impl<'a> HandshakeTime<'a> {
    fn new(client: &'a Client, handshake_timeout: Duration) -> Self {
        Self { client, deadline: client.accepted_at + handshake_timeout, heard: 0, spared: 0 }
    }

    /// Does a part of the handshake, unless that takes too long or the connection has to end.
    async fn with<T>(&mut self, part: impl Future<Output = Result<T, CloseReason>>) -> Result<T, CloseReason> {
        let mut part = pin!(part);
        loop {
            tokio::select! {
                // First what has come: who waits for us, because we are busy, is not who keeps us waiting.
                biased;
                done = part.as_mut() => return done,
                order = poll_fn(|cx| self.client.calls().poll_order(cx)) => {
                    if order != Order::Evict || !self.spares() {
                        return Err(order.into());
                    }
                }
                () = sleep_until(self.deadline) => return Err(CloseReason::HandshakeTimeout),
            }
        }
    }

    /// Whether a connection that is to make room for others may go on: its peer has said something since the last time.
    fn spares(&mut self) -> bool {
        let before = std::mem::replace(&mut self.heard, self.client.bytes_heard());
        self.spared += 1;
        self.heard > before && self.spared <= MOST_SPARED && self.client.calls().withdraw_eviction()
    }
}

async fn accept_tls<S: Stream>(stream: S, client: &Arc<Client>, shared: &Shared) -> Result<Transport<S>, CloseReason> {
    let Some(tls) = &shared.tls else { return Ok(Transport::plain(stream)) };
    let first = FirstBytes::default();
    let mut accept = Transport::accept_tls(&tls(), stream, FREE_TLS_BYTES, first.clone());
    let (mut heard, mut place) = (0, None);
    loop {
        let accepted = poll_fn(|cx| {
            let polled = Pin::new(&mut accept).poll(cx);
            let all = accept.get_ref().map_or(heard, Metered::read);
            client.heard(all - heard);
            heard = all;
            match polled {
                // Boxed here: a large value must not be kept across an await, in every handshake.
                Poll::Ready(Ok(stream)) => Poll::Ready(Some(Ok(Transport::tls(stream)))),
                Poll::Ready(Err(error)) => {
                    let first = first.get().map_or(&[][..], |bytes| &bytes[..]);
                    let why = handshake_error(&error, Purpose::Client, first);
                    Poll::Ready(Some(Err(CloseReason::TlsFailed(why))))
                }
                Poll::Pending if accept.get_ref().is_some_and(Metered::is_held_back) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        if let Some(accepted) = accepted.await {
            return accepted;
        }
        // Kept until the handshake is over.
        place.replace(shared.handshake_places.clone().wait(client).await);
        if let Some(stream) = accept.get_mut() {
            stream.let_go();
        }
    }
}

async fn read_hello<S: Stream>(
    link: &mut Link<S>,
    handshake: &mut Handshake,
    client: &Arc<Client>,
    places: &Arc<Places>,
) -> Result<Hello, CloseReason> {
    let mut place = None;
    loop {
        if place.is_none() && handshake.needs_place() {
            place = Some(places.clone().wait(client).await);
        }
        let mut on_bytes = |bytes: &[u8]| {
            client.heard(bytes.len() as u64);
            handshake.on_bytes(bytes)
        };
        if let Some(hello) = poll_fn(|cx| link.poll_read(cx, &mut on_bytes)).await?? {
            return Ok(hello);
        }
    }
}

type Answer = (Bytes, Inbound, Sender, Liveness, OwnedSemaphorePermit);

/// Finds the feed for a hello and answers it.
async fn answer(hello: Hello, client: &Arc<Client>, shared: &Shared) -> Result<Answer, CloseReason> {
    let Hello { agent, syncer, wire, filter, modern_policy_keys, inbound } = hello;
    let stream = shared.streams.clone().try_acquire_owned().map_err(|_| CloseReason::TooManyConnections)?;
    let line = if wire.native().is_some() {
        Release::Master
    } else {
        let (unknown, cluster) = (shared.of_unknown_versions, || shared.feeds.cluster_line());
        choose(modern_policy_keys, &agent.version, unknown, cluster).map_err(CloseReason::NoDialect)?
    };
    let lease = shared.feeds.lease(FeedKey { syncer, line, wire, filter }).await.map_err(|error| match error {
        NoFeed::NoSuchSyncer => CloseReason::UnknownSyncer(format!("{syncer} (known, but not served here)")),
        NoFeed::TooManyFilters => {
            CloseReason::Unsupported("too many different key filters are in use on this server".to_owned())
        }
    })?;
    tracing::info!(
        conn = client.id,
        peer = %client.peer,
        %syncer,
        wire = wire.name(),
        dialect = line.as_str(),
        agent = agent.name,
        version = agent.version,
        info = agent.info,
        client_conn = agent.conn_id,
        "client connected"
    );
    let _first = client.agent.set(agent);
    let _first = client.feed.set(lease.clone());
    let now = Instant::now();
    let bytes = match wire.native() {
        None => gob_hello(client.id, syncer.as_str(), wire),
        Some(compression) => native::encode_server_hello(&native::ServerHello {
            version: native::VERSION,
            server: "bulrush".to_owned(),
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            syncer: syncer.as_str().to_owned(),
            compression: compression.as_str().to_owned(),
            epoch: shared.epoch,
            conn_id: client.id,
            resumed: false,
            limits: native::Limits {
                max_frame_bytes: u32::try_from(native::MAX_CLIENT_FRAME_BYTES).unwrap_or(u32::MAX),
                ping_interval_ms: millis(shared.timeouts.ping_interval),
                pong_timeout_ms: millis(shared.timeouts.pong),
            },
        }),
    };
    let needs_ack = wire == Wire::GobSnappy;
    let liveness = Liveness::new(shared.timeouts, needs_ack, shared.seed ^ client.id, now);
    Ok((bytes, inbound, Sender::new(lease, client.clone(), shared.patience), liveness, stream))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Definitions and hello; for a compressed stream the restart as well, for a plain one nothing that the stream would repeat.
fn gob_hello(conn_id: u64, syncer: &str, wire: Wire) -> Bytes {
    let mut bytes = BytesMut::from(&gob::server_prefix()[..]);
    let hello = ServerHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        syncer_type: syncer.to_owned(),
        supports_node_resource_updates: true,
        server_conn_id: conn_id,
    };
    gob::encode(&Message::ServerHello(hello), &mut bytes);
    if wire == Wire::GobSnappy {
        let restart = DecoderRestart {
            message: "a compressed stream follows".to_owned(),
            compression_algorithm: "snappy".to_owned(),
        };
        gob::encode(&Message::DecoderRestart(restart), &mut bytes);
    }
    bytes.freeze()
}

/// Serves the client until something ends it.
async fn stream_to<S: Stream>(
    line: &Line<S>,
    mut inbound: Inbound,
    client: &Arc<Client>,
    places: &Arc<Places>,
) -> CloseReason {
    let mut reading = Reading::new();
    let mut now = Instant::now();
    let mut timer = pin!(sleep_until(now));
    loop {
        // What the client said.
        loop {
            let said = inbound.next().and_then(|event| match event {
                None => Ok(false),
                Some(event) => line.with(|streaming| streaming.on_event(event, now)).flatten().map(|()| true),
            });
            match said {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return reason,
            }
        }
        reading.note(inbound.needs_place(), places, client);
        let open = reading.is_open();
        // What there is for the client.
        let deadline = match line.with(|streaming| streaming.turn(now)).flatten() {
            Ok(deadline) => deadline,
            Err(reason) => return reason,
        };
        if deadline < timer.deadline() || timer.is_elapsed() {
            // Later deadlines are left to the next time it fires: most are put off again before they come.
            timer.as_mut().reset(deadline);
        }
        // In this order: the timer costs next to nothing to look at, and a client that talks without end must not keep it
        // from being looked at.
        let done = tokio::select! {
            biased;
            () = timer.as_mut() => {
                now = Instant::now();
                if let Err(reason) = line.with(|streaming| streaming.check(now)).flatten() {
                    return reason;
                }
                continue;
            }
            () = reading.placed() => Done::Woken,
            done = poll_fn(|cx| {
                let polled = line.with(|streaming| streaming.poll(cx, open.then_some(&mut inbound)));
                polled.unwrap_or_else(|reason| Poll::Ready(Done::Ended(reason)))
            }) => done,
        };
        now = Instant::now();
        match done {
            Done::Read | Done::Woken => {}
            Done::Wrote(bytes) => {
                if let Err(reason) = line.with(|streaming| streaming.on_wrote(bytes, now)) {
                    return reason;
                }
            }
            Done::Ended(reason) => return reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::super::inspection::{Check, Found};
    use super::super::pinned::Pinned;
    use super::super::pump::{Pass, Position};
    use super::super::tests::harness::{lone_feed, update};
    use super::super::tracker::Tracker;
    use super::*;
    use crate::model::SyncerEvent;

    /// A client that can be passed by once, as if its wake-up were lost.
    struct Overlooked {
        line: Arc<Line<DuplexStream>>,
        once: AtomicBool,
    }

    impl Passenger for Overlooked {
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

        fn inspect(&self, check: &Check<'_>) -> Option<Found> {
            self.line.inspect(check)
        }

        fn note_version(&self, pinned: &mut Pinned) {
            self.line.note_version(pinned);
        }

        fn let_go(&self) {
            self.line.let_go();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_that_is_lost_costs_two_housekeepings_at_most_and_is_counted() {
        const HOUR: Duration = Duration::from_secs(3600);
        let (mut cache, lease) = lone_feed();
        let (feed, now) = (Arc::clone(&lease), Instant::now());
        let client = Tracker::default().add(1, ([10, 0, 0, 1], 1).into(), None, now);
        let (mut agent, server) = duplex(1 << 20);
        let sender = Sender::new(lease, client.clone(), Patience { max_fall_behind: HOUR, grace: HOUR });
        let liveness = Liveness::new(Timeouts { ping_interval: HOUR, pong: HOUR, write: HOUR }, false, 1, now);
        let link = Link::new(Transport::plain(server));
        let line = Line::new(client.clone(), Streaming::new(link, sender, liveness, client.clone(), now));
        let passenger = Arc::new(Overlooked { line: line.clone(), once: AtomicBool::new(false) });
        let _seat = Seat::take(feed.clone(), 1, passenger.clone());
        tokio::spawn(async move { stream_to(&line, Inbound::native(BytesMut::new()), &client, &Places::new()).await });
        // How long a change takes to come.
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
        passenger.once.store(true, Ordering::SeqCst);
        let took = change(b"2").await;
        assert!(took > at_once && took <= Duration::from_secs(2), "{took:?}");
        assert_eq!(lost(), 1);
        for n in 0..100 {
            assert!(change(&[n]).await < at_once);
            tokio::time::sleep(Duration::from_millis(97)).await;
        }
        assert_eq!(lost(), 1, "nobody is woken for nothing");
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
}
