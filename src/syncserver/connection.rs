//! One connection: a thin driver around [`Handshake`], [`Inbound`], [`Liveness`] and [`Sender`]. Owns the socket.
//!
//! ```text
//!  socket ─bytes─► Handshake ─► Hello ─► (restart, ACK) ─► Sender ─Bytes─► socket
//!                                  Inbound ─► Liveness ──┘ pings
//! ```
//!
//! One task per connection, one `select!`. All progress is kept in [`Link`] and the state machines, so every arm may be
//! dropped at any time. While nothing happens, the task holds no buffer, no encoder and no queue.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::{Buf, Bytes, BytesMut};
use prometheus::IntGauge;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::feed::{FeedKey, Feeds, NoFeed};
use super::handshake::{Handshake, Hello};
use super::inbound::{ClientEvent, Inbound};
use super::liveness::{Liveness, Timeouts};
use super::peers::Peers;
use super::reason::CloseReason;
use super::sender::{Patience, Sender};
use super::status::ClientState;
use super::tracker::Client;
use super::transport::{Stream, TlsSource, Transport};
use super::wire::Wire;
use crate::metrics::SyncerMetrics;
use crate::syncproto::messages::{DecoderRestart, Message, ServerHello};
use crate::syncproto::{gob, native};

/// Bytes read at a time. Clients say little: a pong has about 60 bytes, a hello about 400.
const READ_BYTES: usize = 2048;

/// Most pieces per vectored write; the kernel takes up to 1024, and a client that lags gets few large ones.
const MAX_SLICES: usize = 64;

/// How long a connection that ends may take for its last words. A client that does not read must not hold up a shutdown.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Capacity that an output queue may keep when it is empty.
const KEPT_SLICES: usize = 4;

/// What all connections of a server share.
pub(super) struct Shared {
    pub(super) feeds: Arc<Feeds>,
    pub(super) tls: Option<TlsSource>,
    pub(super) handshake_timeout: Duration,
    pub(super) timeouts: Timeouts,
    pub(super) patience: Patience,
    /// Names the life of this server's caches.
    pub(super) epoch: u64,
    pub(super) seed: u64,
    /// Where clients may go that have to leave.
    pub(super) peers: Arc<ArcSwap<Peers>>,
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
/// Returns why it ended; by then the socket is closed.
pub(super) async fn serve<S: Stream, P>(stream: S, client: Arc<Client>, shared: Arc<Shared>, slot: P) -> CloseReason {
    let mut established = match Box::pin(establish(stream, &client, &shared)).await {
        Ok(established) => established,
        Err(reason) => return reason,
    };
    drop(slot);
    let reason = {
        let _streaming = Counted::new(&established.sender.feed().metrics().connections_streaming);
        established.stream(&client).await
    };
    client.set_state(ClientState::Closing);
    let alternatives = shared.alternatives(&client, &reason);
    let goodbye = established.sender.feed().format().goodbye(&reason.to_string(), &alternatives);
    drop(alternatives);
    let mut link = established.link;
    drop(established.sender);
    Box::pin(close(&mut link, &reason, goodbye)).await;
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
    link: Link<S>,
    inbound: Inbound,
    sender: Sender,
    liveness: Liveness,
}

/// Everything up to and including the hello, within the handshake timeout.
async fn establish<S: Stream>(stream: S, client: &Client, shared: &Shared) -> Result<Established<S>, CloseReason> {
    let deadline = client.accepted_at + shared.handshake_timeout;
    let io = tokio::select! {
        reason = poll_fn(|cx| client.poll_order(cx)) => return Err(reason),
        accepted = timeout_at(deadline, accept_tls(stream, shared)) => accepted.unwrap_or(Err(CloseReason::HandshakeTimeout))?,
    };
    let mut link = Link { io, out: VecDeque::new(), unflushed: false };
    let mut handshake = Handshake::new();
    let hello = tokio::select! {
        reason = poll_fn(|cx| client.poll_order(cx)) => Err(reason),
        hello = timeout_at(deadline, read_hello(&mut link, &mut handshake)) => hello.unwrap_or(Err(CloseReason::HandshakeTimeout)),
    };
    match hello.and_then(|hello| answer(hello, client, shared)) {
        Ok((bytes, inbound, sender, liveness)) => {
            link.out.push_back(bytes);
            Ok(Established { link, inbound, sender, liveness })
        }
        Err(reason) => {
            let alternatives = || shared.alternatives(client, &reason);
            let goodbye = handshake.is_native().then(|| native::encode_goodbye(&reason.to_string(), &alternatives()));
            close(&mut link, &reason, goodbye).await;
            Err(reason)
        }
    }
}

async fn accept_tls<S: Stream>(stream: S, shared: &Shared) -> Result<Transport<S>, CloseReason> {
    let Some(tls) = &shared.tls else { return Ok(Transport::plain(stream)) };
    match Transport::accept_tls(&tls(), stream).await {
        Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
        Err(error) => Err(CloseReason::TlsFailed(error.to_string())),
    }
}

async fn read_hello<S: Stream>(link: &mut Link<S>, handshake: &mut Handshake) -> Result<Hello, CloseReason> {
    loop {
        let (_, hello) = poll_fn(|cx| link.poll_read(cx, |bytes| handshake.on_bytes(bytes))).await?;
        if let Some(hello) = hello? {
            return Ok(hello);
        }
    }
}

type Answer = (Bytes, Inbound, Sender, Liveness);

/// Finds the feed for a hello and answers it.
fn answer(hello: Hello, client: &Client, shared: &Shared) -> Result<Answer, CloseReason> {
    let Hello { agent, syncer, wire, filter, inbound } = hello;
    let lease = shared.feeds.lease(FeedKey { syncer, wire, filter }).map_err(|error| match error {
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
    Ok((bytes, inbound, Sender::new(lease, shared.patience), liveness))
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

impl<S: Stream> Established<S> {
    /// Serves the client until something ends it.
    async fn stream(&mut self, client: &Client) -> CloseReason {
        let Self { link, inbound, sender, liveness } = self;
        let metrics = sender.feed().metrics().clone();
        let mut timer = pin!(sleep_until(liveness.deadline(Instant::now())));
        let mut started = false;
        let mut snapshot_done = false;
        let mut now = Instant::now();
        let mut filled_at = now;
        let mut snapshot_at = now;
        let mut noted = None;
        client.set_state(ClientState::AwaitingAck);
        liveness.on_pending(now);
        loop {
            // What the client said.
            loop {
                match inbound.next() {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        if let Err(reason) = on_event(event, client, liveness, now, &metrics) {
                            return reason;
                        }
                    }
                    Err(reason) => return reason,
                }
            }
            // What there is for the client.
            if link.is_drained() {
                if !started && !liveness.awaits_ack() {
                    started = true;
                    snapshot_at = now;
                    if sender.feed().key().wire == Wire::GobSnappy {
                        link.out.push_back(sender.feed().format().prefix());
                    }
                    sender.start(now, &mut link.out);
                    client.set_state(ClientState::Snapshot);
                }
                if started {
                    if !snapshot_done && !sender.in_snapshot() {
                        snapshot_done = true;
                        liveness.on_snapshot_sent(now);
                        sender.on_snapshot_sent(now);
                        metrics.client_snapshot_send_secs.observe((now - snapshot_at).as_secs_f64());
                    }
                    if liveness.ping_due(now) {
                        let as_of = sender.feed().reader().as_of();
                        link.out.push_back(sender.feed().format().ping(SystemTime::now(), as_of.as_ref()));
                        liveness.on_pinged(now);
                    }
                    if let Err(reason) = sender.fill(now, &mut link.out) {
                        return reason;
                    }
                    note_position(client, sender, snapshot_done, &mut noted);
                }
                if !link.is_drained() {
                    liveness.on_pending(now);
                    filled_at = now;
                } else if started && !sender.is_dry() {
                    // A phase ended without a byte: the next one may have some.
                    continue;
                }
            }
            let deadline = liveness.deadline(now);
            if deadline < timer.deadline() || timer.is_elapsed() {
                // Later deadlines are left to the next time it fires: most are put off again before they come.
                timer.as_mut().reset(deadline);
            }
            let idle = started && link.is_drained();
            // In this order: the timer costs next to nothing to look at, and a client that talks without end must not
            // keep it from being looked at; whoever is woken by the feed need not look at the socket before there is
            // something to write. Waiting for the feed last would starve nobody: filling does not depend on it.
            let done = tokio::select! {
                biased;
                () = timer.as_mut() => {
                    now = Instant::now();
                    if let Err(reason) = liveness.check(now).and_then(|()| sender.check(now)) {
                        return reason;
                    }
                    continue;
                }
                () = sender.woken(), if idle => Done::Woken,
                done = poll_fn(|cx| link.poll(cx, client, inbound)) => done,
            };
            now = Instant::now();
            match done {
                Done::Read | Done::Woken => {}
                Done::Wrote(bytes) => {
                    let all = link.is_drained();
                    client.add_bytes_sent(bytes);
                    metrics.bytes_sent.inc_by(bytes);
                    liveness.on_progress(all, now);
                    if all {
                        metrics.client_write_latency_secs.observe_at(now, (now - filled_at).as_secs_f64());
                    }
                }
                Done::Ended(reason) => return reason,
            }
        }
    }
}

/// Shows others where the client stands, if that is not what was `noted` last.
fn note_position(client: &Client, sender: &Sender, snapshot_done: bool, noted: &mut Option<(u64, ClientState)>) {
    let state = if sender.in_snapshot() || !snapshot_done {
        ClientState::Snapshot
    } else if sender.in_catch_up() {
        ClientState::CatchUp
    } else {
        ClientState::Following
    };
    let position = Some((sender.mark().sequence, state));
    if *noted != position {
        *noted = position;
        client.set_mark(sender.mark());
        client.set_state(state);
    }
}

fn on_event(
    event: ClientEvent,
    client: &Client,
    liveness: &mut Liveness,
    now: Instant,
    metrics: &SyncerMetrics,
) -> Result<(), CloseReason> {
    match event {
        ClientEvent::Ack => {
            // One that was not awaited is the acknowledgement of a restart that only Calico's server would do.
            let _awaited = liveness.on_ack(now);
        }
        ClientEvent::Pong => {
            if let Some(latency) = liveness.on_pong(now)? {
                metrics.ping_latency.observe(latency.as_secs_f64());
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

/// What a poll of the link has brought.
enum Done {
    /// Bytes came, and are with their reader.
    Read,
    /// There may be something to send.
    Woken,
    /// So many bytes left.
    Wrote(u64),
    /// The connection is over, or to be ended.
    Ended(CloseReason),
}

/// The socket and what is queued for it.
#[derive(Debug)]
struct Link<S> {
    io: Transport<S>,
    out: VecDeque<Bytes>,
    /// Whether the layer below may still hold bytes.
    unflushed: bool,
}

impl<S: Stream> Link<S> {
    /// Whether everything that was queued has been handed to the kernel.
    fn is_drained(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    /// Reads, writes, and looks for an order to end, whichever is possible first.
    fn poll(&mut self, cx: &mut Context<'_>, client: &Client, inbound: &mut Inbound) -> Poll<Done> {
        if let Poll::Ready(reason) = client.poll_order(cx) {
            return Poll::Ready(Done::Ended(reason));
        }
        // Written first: a client that talks without end must not keep its own data from it.
        if !self.is_drained() {
            match self.poll_write(cx) {
                Poll::Ready(Ok(bytes)) => return Poll::Ready(Done::Wrote(bytes)),
                Poll::Ready(Err(reason)) => return Poll::Ready(Done::Ended(reason)),
                Poll::Pending => {}
            }
        }
        match ready!(self.poll_read(cx, |bytes| inbound.push(bytes))) {
            Ok(_) => Poll::Ready(Done::Read),
            Err(reason) => Poll::Ready(Done::Ended(reason)),
        }
    }

    /// Reads once into a buffer that exists only while there is something to read.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Poll<Result<(usize, T), CloseReason>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut buf = ReadBuf::uninit(&mut space);
        match ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf)) {
            Ok(()) if buf.filled().is_empty() => Poll::Ready(Err(CloseReason::ClientClosed)),
            Ok(()) => Poll::Ready(Ok((buf.filled().len(), read(buf.filled())))),
            Err(error) => Poll::Ready(Err(lost(&error))),
        }
    }

    /// Writes as much as possible at once. Ready when any byte has left for good, or all have been handed on.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<u64, CloseReason>> {
        let before = self.io.written();
        while !self.out.is_empty() {
            let polled = if self.out.len() == 1 {
                Pin::new(&mut self.io).poll_write(cx, &self.out[0])
            } else {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let mut used = 0;
                for (slice, bytes) in slices.iter_mut().zip(&self.out) {
                    *slice = IoSlice::new(bytes);
                    used += 1;
                }
                Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..used])
            };
            match polled {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(lost(&io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => {
                    self.advance(written);
                    self.unflushed = matches!(self.io, Transport::Tls(_));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
                Poll::Pending => break,
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.io).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.unflushed = !self.out.is_empty(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
                Poll::Pending => {}
            }
        }
        let written = self.io.written() - before;
        if written > 0 || self.is_drained() { Poll::Ready(Ok(written)) } else { Poll::Pending }
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.out.front_mut() {
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.out.pop_front();
        }
        if self.out.capacity() > KEPT_SLICES {
            self.out = VecDeque::new();
        }
    }
}

fn lost(error: &io::Error) -> CloseReason {
    match error.kind() {
        // How a client's end looks when there was still something under way.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => {
            CloseReason::ClientClosed
        }
        _ => CloseReason::ConnectionLost(error.to_string()),
    }
}

/// Says goodbye if there is time, and closes in an orderly way.
async fn close<S: Stream>(link: &mut Link<S>, reason: &CloseReason, goodbye: Option<Bytes>) {
    if reason.peer_is_gone() {
        return;
    }
    // A message that has been begun must be finished before another one.
    link.out.truncate(1);
    link.out.extend(goodbye);
    let last_words = async {
        while !link.is_drained() {
            if poll_fn(|cx| link.poll_write(cx)).await.is_err() {
                return;
            }
        }
        let _closed_anyway = link.io.shutdown().await;
    };
    let _gave_up = timeout(LAST_WORDS, last_words).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of connections do nothing most of the time, and each keeps its future.
    #[test]
    fn a_connection_is_small() {
        fn size_of_future<F, A, B, C, D>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
            size_of::<F>()
        }
        let future = size_of_future(serve::<tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit>);
        let all = future + size_of::<Client>();
        assert!(all <= 2048, "{future} + {} bytes", size_of::<Client>());
    }
}
