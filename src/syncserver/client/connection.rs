//! One connection: a thin driver around [`Handshake`], [`Inbound`] and its [`Line`], from accept to close.
//!
//! ```text
//!  socket ─bytes─► Handshake ─► Hello ─► (restart, ACK) ─► Line: Outgoing ─Bytes─► socket
//!                                  Inbound ─► Liveness ────────┘ pings   └─ shared with the feed's pump
//! ```
//!
//! One task per connection, one `select!`. All progress is kept in the [`Link`] and the state machines, so every arm
//! may be dropped at any time. While nothing happens, the task holds no buffer, no encoder and no queue, and sleeps:
//! the pump writes to a client at rest without waking its task.

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

use super::super::calls::Order;
use super::super::feed::follow::lease;
use super::super::feed::pump::{PumpClient, Registration};
use super::super::feed::registry::{Feeds, NoFeed};
use super::super::feed::shared::FeedKey;
use super::super::reason::CloseReason;
use super::super::wire::Wire;
use super::handshake::{Handshake, Hello};
use super::inbound::Inbound;
use super::line::{Line, LineEvent, Streaming};
use super::link::{Link, close};
use super::liveness::{Liveness, Timeouts};
use super::outgoing::{Outgoing, Patience};
use super::places::{FREE_TLS_BYTES, Places, Reading};
use super::record::Client;
use super::transport::{self, FirstBytes, Metered, Stream, TlsSource, Transport, plain};
use crate::calico::dialect::choice::{OfUnknownVersions, choose};
use crate::calico::release::Release;
use crate::calico::syncers::is_calicos;
use crate::model::MAX_SYNCER_NAME;
use crate::outlet::peers::Peers;
use crate::syncproto::messages::{DecoderRestart, Message, ServerHello};
use crate::syncproto::{gob, native};
use crate::tls::{Purpose, handshake_error};

/// How often a handshake is spared when it should make room for others, because its peer has sent something: as often
/// as there is something to send (TLS's two flights and the hello). A peer that sends a few bytes at a time is not
/// spared for ever.
const MOST_SPARED: u32 = 3;

/// The parts that all connections of a server share.
pub(crate) struct ConnectionContext {
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) tls: Option<TlsSource>,
    pub(crate) handshake_timeout: Duration,
    pub(crate) timeouts: Timeouts,
    /// For clients that have begun a long hello, or have sent much of a TLS handshake.
    pub(crate) handshake_places: Arc<Places>,
    /// For clients that stream and have begun a long message: strangers cannot take these without a hello.
    pub(crate) places: Arc<Places>,
    pub(crate) patience: Patience,
    /// The permits to stream: a limited number of connections has one.
    pub(crate) streams: Arc<Semaphore>,
    /// Identifies the life of this server's caches.
    pub(crate) epoch: u64,
    pub(crate) seed: u64,
    /// The servers to which clients may go that have to leave.
    pub(crate) peers: Arc<ArcSwap<Peers>>,
    pub(crate) of_unknown_versions: OfUnknownVersions,
}

impl ConnectionContext {
    /// The servers to which a client that has to leave may go, for a goodbye.
    fn alternatives(&self, client: &Client, reason: &CloseReason) -> Vec<String> {
        if !reason.sends_elsewhere() {
            return Vec::new();
        }
        self.peers.load().for_client(client.peer, client.near, self.seed ^ client.id)
    }
}

impl std::fmt::Debug for ConnectionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionContext").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// Serves one connection from its first byte to its end. `slot` is held during the handshake.
///
/// Returns the reason why it ended; by then the socket is closed, unless a pump is about to release it.
pub(crate) async fn serve<S: Stream, P>(
    stream: S,
    client: Arc<Client>,
    context: Arc<ConnectionContext>,
    slot: P,
) -> CloseReason {
    let Established { line, inbound, stream: _stream } = match Box::pin(establish(stream, &client, &context)).await {
        Ok(established) => established,
        Err(reason) => return reason,
    };
    drop(slot);
    let feed = match line.with(|streaming| Arc::clone(streaming.outgoing.feed())) {
        Ok(feed) => feed,
        Err(reason) => return reason,
    };
    let pump_client: Arc<dyn PumpClient> = line.clone();
    client.set_line(Arc::downgrade(&pump_client));
    let reason = {
        let _streaming = Counted::new(&feed.metrics().connections_streaming);
        let _speaking =
            Counted::new(&feed.metrics().connections_by_dialect.with_label_values(&[feed.key().dialect.as_str()]));
        let _registration = Registration::take(feed.pump().clone(), client.id, pump_client);
        stream_to(&line, inbound, &client, &context.places).await
    };
    let alternatives = context.alternatives(&client, &reason);
    let goodbye = feed.format().goodbye(&reason.to_string(), &alternatives);
    drop((alternatives, feed));
    if let Some(Streaming { mut link, outgoing, .. }) = line.take() {
        drop((line, outgoing));
        Box::pin(close(&mut link, &reason, goodbye)).await;
    }
    reason
}

/// Counts one more in a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(IntGauge);

impl Counted {
    pub(crate) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A connection whose hello has been exchanged.
struct Established<S> {
    line: Arc<Line<S>>,
    inbound: Inbound,
    stream: OwnedSemaphorePermit,
}

/// Does everything up to and including the hello, within the handshake timeout.
async fn establish<S: Stream>(
    stream: S,
    client: &Arc<Client>,
    context: &ConnectionContext,
) -> Result<Established<S>, CloseReason> {
    let mut time = HandshakeTime::new(client, context.handshake_timeout);
    let mut link = Link::new(time.with(accept_tls(stream, client, context)).await?);
    let mut handshake = Handshake::new();
    let answered = async {
        let hello = read_hello(&mut link, &mut handshake, client, &context.handshake_places).await?;
        answer(hello, client, context).await
    };
    match time.with(answered).await {
        Ok((bytes, inbound, outgoing, liveness, stream)) => {
            link.out().push_back(bytes);
            let streaming = Streaming::new(link, outgoing, liveness, client.clone(), Instant::now());
            Ok(Established { line: Line::new(client.clone(), streaming), inbound, stream })
        }
        Err(reason) => {
            let alternatives = || context.alternatives(client, &reason);
            let goodbye = handshake.is_native().then(|| native::encode_goodbye(&reason.to_string(), &alternatives()));
            close(&mut link, &reason, goodbye).await;
            Err(reason)
        }
    }
}

/// The time that a handshake may take.
struct HandshakeTime<'a> {
    client: &'a Client,
    deadline: Instant,
    /// Bytes that had come when the connection was last asked to make room for others.
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
                // The handshake first: a client that waits for us, because we are busy, is not at fault.
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

    /// Whether a connection that should make room for others may go on: its peer has sent something since the last
    /// time.
    fn spares(&mut self) -> bool {
        let before = std::mem::replace(&mut self.heard, self.client.bytes_heard());
        self.spared += 1;
        self.heard > before && self.spared <= MOST_SPARED && self.client.calls().withdraw_eviction()
    }
}

async fn accept_tls<S: Stream>(
    stream: S,
    client: &Arc<Client>,
    context: &ConnectionContext,
) -> Result<Transport<S>, CloseReason> {
    let Some(tls) = &context.tls else { return Ok(plain(stream)) };
    let first = FirstBytes::default();
    let mut accept = transport::accept_tls(&tls(), stream, FREE_TLS_BYTES, first.clone());
    let (mut heard, mut place) = (0, None);
    loop {
        let accepted = poll_fn(|cx| {
            let polled = Pin::new(&mut accept).poll(cx);
            let all = accept.get_ref().map_or(heard, Metered::read);
            client.heard(all - heard);
            heard = all;
            match polled {
                // Boxed here: a large value must not be kept across an await, in every handshake.
                Poll::Ready(Ok(stream)) => Poll::Ready(Some(Ok(transport::tls(stream)))),
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
        place.replace(context.handshake_places.clone().wait(client).await);
        if let Some(stream) = accept.get_mut() {
            stream.release();
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

type Answered = (Bytes, Inbound, Outgoing, Liveness, OwnedSemaphorePermit);

/// Finds the feed for a hello and answers it.
async fn answer(hello: Hello, client: &Arc<Client>, context: &ConnectionContext) -> Result<Answered, CloseReason> {
    let Hello { agent, syncer, wire, filter, modern_policy_keys, inbound } = hello;
    let stream = context.streams.clone().try_acquire_owned().map_err(|_| CloseReason::TooManyConnections)?;
    let unknown = |wanted: &str| {
        let wanted = wanted.chars().take(MAX_SYNCER_NAME).collect();
        CloseReason::UnknownSyncer { wanted, running: context.feeds.syncers() }
    };
    let syncer = context.feeds.syncer(&syncer).ok_or_else(|| unknown(&syncer))?;
    let dialect = if wire.native().is_some() || !is_calicos(syncer) {
        Release::Master
    } else {
        let (unknown, cluster) = (context.of_unknown_versions, || context.feeds.cluster_line());
        choose(modern_policy_keys, &agent.version, unknown, cluster).map_err(CloseReason::NoDialect)?
    };
    let lease =
        lease(&context.feeds, FeedKey { syncer, dialect, wire, filter }).await.map_err(|error| match error {
            NoFeed::NoSuchSyncer => unknown(syncer.as_str()),
            NoFeed::TooManyFilters => {
                CloseReason::Unsupported("too many different key filters are in use on this server".to_owned())
            }
        })?;
    tracing::info!(
        conn = client.id,
        peer = %client.peer,
        %syncer,
        wire = wire.name(),
        dialect = dialect.as_str(),
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
            epoch: context.epoch,
            conn_id: client.id,
            resumed: false,
            limits: native::Limits {
                max_frame_bytes: u32::try_from(native::MAX_CLIENT_FRAME_BYTES).unwrap_or(u32::MAX),
                ping_interval_ms: millis(context.timeouts.ping_interval),
                pong_timeout_ms: millis(context.timeouts.pong),
            },
        }),
    };
    let outgoing = Outgoing::new(lease, client.clone(), context.patience, now);
    let liveness = Liveness::new(context.timeouts, outgoing.phase().obligations(), context.seed ^ client.id, now);
    Ok((bytes, inbound, outgoing, liveness, stream))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Definitions and hello; for a compressed stream also the restart. A plain stream repeats none of this.
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
        // The client's messages.
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
        // The bytes for the client.
        let deadline = match line.with(|streaming| streaming.refill(now)).flatten() {
            Ok(deadline) => deadline,
            Err(reason) => return reason,
        };
        if deadline < timer.deadline() || timer.is_elapsed() {
            // A later deadline is not set now but when the timer fires: most are put off again before that.
            timer.as_mut().reset(deadline);
        }
        // In this order: the timer costs next to nothing to check, and a client that talks without end must not keep it
        // from being checked.
        let done = tokio::select! {
            biased;
            () = timer.as_mut() => {
                now = Instant::now();
                if let Err(reason) = line.with(|streaming| streaming.check(now)).flatten() {
                    return reason;
                }
                continue;
            }
            () = reading.placed() => LineEvent::Woken,
            done = poll_fn(|cx| {
                let polled = line.with(|streaming| streaming.poll(cx, open.then_some(&mut inbound)));
                polled.unwrap_or_else(|reason| Poll::Ready(LineEvent::Ended(reason)))
            }) => done,
        };
        now = Instant::now();
        match done {
            LineEvent::Read | LineEvent::Woken => {}
            LineEvent::Wrote(bytes) => {
                if let Err(reason) = line.with(|streaming| streaming.on_wrote(bytes, now)) {
                    return reason;
                }
            }
            LineEvent::Ended(reason) => return reason,
        }
    }
}

#[cfg(test)]
mod tests;
