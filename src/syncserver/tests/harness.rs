//! A server in memory, the cache behind it, and clients that know only the protocols.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use prometheus::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::release::Release;
use crate::model::{Key, SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
use crate::snapcache::SnapCache;
use crate::syncer::SyncerType;
use crate::syncproto::format::WireFormat;
use crate::syncproto::messages::{ClientHello, Message, Ping, Pong};
use crate::syncproto::{gob, native, snappy};
use crate::syncserver::feed::{FeedConfig, FeedKey, Lease};
use crate::syncserver::feeds::Feeds;
use crate::syncserver::filter::Filter;
use crate::syncserver::ring::Limits;
use crate::syncserver::wire::Wire;
use crate::syncserver::{Config, Handle, Listener, Metrics, Server, Stream, TlsSource};
use crate::tasks::{TaskFailure, TaskRegistry};

/// More than any test waits for, in the time of the test.
pub(super) const PATIENCE: Duration = Duration::from_secs(1000);

/// Connections through memory.
pub(super) struct Inlet(mpsc::Receiver<DuplexStream>);

static NEXT_PEER: AtomicU16 = AtomicU16::new(1);

impl Listener for Inlet {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> std::io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, ([10, 0, 0, 1], NEXT_PEER.fetch_add(1, Ordering::Relaxed)).into())),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 5473).into())
    }
}

/// A server with a felix and a bgp cache.
pub(super) struct World {
    pub(super) felix: SnapCache,
    pub(super) bgp: SnapCache,
    pub(super) handle: Handle,
    pub(super) server_metrics: ServerMetrics,
    pub(super) felix_metrics: SyncerMetrics,
    pub(super) run: JoinHandle<Result<(), TaskFailure>>,
    dial: mpsc::Sender<DuplexStream>,
}

/// Short pacing and the seed fixed; everything else as by default.
pub(super) fn config() -> Config {
    Config { seed: 42, ..Config::default() }
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        Self::with(config, None, |inlet| inlet)
    }

    /// A world behind TLS, or behind a listener made of the one in memory.
    pub(super) fn with<L: Listener>(config: Config, tls: Option<TlsSource>, listener: impl FnOnce(Inlet) -> L) -> Self {
        Self::with_formats(config, tls, listener, Wire::format)
    }

    /// The same, with encoders of the test's choice.
    pub(super) fn with_formats<L: Listener>(
        config: Config,
        tls: Option<TlsSource>,
        listener: impl FnOnce(Inlet) -> L,
        format: fn(Wire) -> Arc<dyn WireFormat>,
    ) -> Self {
        let felix_metrics = SyncerMetrics::unregistered(SyncerType::Felix);
        let bgp_metrics = SyncerMetrics::unregistered(SyncerType::Bgp);
        let (felix, felix_reader) = SnapCache::new(100, felix_metrics.clone());
        let (bgp, bgp_reader) = SnapCache::new(100, bgp_metrics.clone());
        let server_metrics = ServerMetrics::new(&Registry::new());
        let metrics = Metrics {
            server: server_metrics.clone(),
            syncers: BTreeMap::from([(SyncerType::Felix, felix_metrics.clone()), (SyncerType::Bgp, bgp_metrics)]),
        };
        let caches = BTreeMap::from([(SyncerType::Felix, felix_reader), (SyncerType::Bgp, bgp_reader)]);
        let (dial, inlet) = mpsc::channel(1024);
        let bound = Server::with_formats(listener(Inlet(inlet)), config, caches, metrics, tls, format);
        let handle = bound.handle();
        let run = tokio::spawn(bound.run(|| {}));
        Self { felix, bgp, handle, server_metrics, felix_metrics, run, dial }
    }

    /// A raw connection whose pipe holds so many bytes each way.
    pub(super) async fn dial(&self, buffer: usize) -> DuplexStream {
        let (ours, theirs) = duplex(buffer);
        self.dial.send(theirs).await.expect("the server takes connections");
        ours
    }

    /// A client that has said hello.
    pub(super) async fn connect(&self, speech: Speech) -> Client {
        let mut client = Client::new(self.dial(64 << 10).await, speech);
        client.hello("felix").await;
        client
    }

    /// How many connections were closed for a reason.
    pub(super) fn closed(&self, reason: &str) -> u64 {
        self.server_metrics.connections_closed.with_label_values(&[reason]).get()
    }

    /// Puts keys into the felix cache, all in one batch.
    pub(super) fn put(&mut self, entries: &[(&str, &str)]) {
        let updates = entries.iter().map(|(key, value)| update(key, Some(value.as_bytes()))).collect();
        self.felix.apply(vec![SyncerEvent::Updates(updates)]);
    }

    pub(super) fn delete(&mut self, key: &str) {
        self.felix.apply(vec![SyncerEvent::Updates(vec![update(key, None)])]);
    }

    pub(super) fn status(&mut self, status: SyncStatus) {
        self.felix.apply(vec![SyncerEvent::Status(status)]);
    }
}

/// Waits until something holds, giving way to everybody in between.
pub(in super::super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// A cache and a feed of it for plain clients of Calico's protocol, without a server around it and without a pace.
pub(in super::super) fn lone_feed() -> (SnapCache, Lease) {
    lone_feed_with_pace(Duration::ZERO)
}

/// The same, with so much time between two rounds for its client.
pub(in super::super) fn lone_feed_with_pace(pace: Duration) -> (SnapCache, Lease) {
    let (cache, feeds) = feeds_with(1 << 20, pace);
    let (syncer, line) = (SyncerType::Felix, Release::Master);
    let key = FeedKey { syncer, line, wire: Wire::GobPlain, filter: Filter::default() };
    let lease = feeds.lease(key).now_or_never().expect("no table is made");
    (cache, lease.expect("there is a felix cache"))
}

/// A cache and feeds of it that keep this number of bytes of its history.
pub(in super::super) fn feeds(history: usize) -> (SnapCache, Arc<Feeds>) {
    feeds_with(history, Duration::ZERO)
}

fn feeds_with(history: usize, pace: Duration) -> (SnapCache, Arc<Feeds>) {
    let metrics = SyncerMetrics::unregistered(SyncerType::Felix);
    let (cache, reader) = SnapCache::new(10, metrics.clone());
    let config = FeedConfig {
        max_message_size: 100,
        min_batching_age: Duration::ZERO,
        limits: Limits { bytes: history, updates: 1000 },
        snapshot_max_age: PATIENCE,
        pace_max: pace,
        pace_per_client: pace,
        pumps: None,
        format: Wire::format,
    };
    let (caches, metrics) =
        (BTreeMap::from([(SyncerType::Felix, reader)]), BTreeMap::from([(SyncerType::Felix, metrics)]));
    (cache, Feeds::new(config, caches, &metrics, TaskRegistry::new(), CancellationToken::new()))
}

pub(in super::super) fn update(key: &str, value: Option<&[u8]>) -> Update {
    Update {
        key: Key::from(key),
        value: value.map(|value| Value::raw(value.to_vec())),
        revision: if value.is_some() { Arc::from("1") } else { no_revision() },
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: if value.is_some() { UpdateType::Updated } else { UpdateType::Deleted },
    }
}

/// What a client speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    GobPlain,
    GobSnappy,
    Native { compression: &'static str, prefixes: Vec<String> },
}

impl Speech {
    pub(super) fn native(compression: &'static str) -> Self {
        Self::Native { compression, prefixes: Vec::new() }
    }

    pub(super) fn all() -> Vec<Self> {
        vec![Self::GobPlain, Self::GobSnappy, Self::native("none"), Self::native("snappy"), Self::native("zstd")]
    }
}

/// What a client hears.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Heard {
    Hello,
    Restart,
    Snapshot,
    Updates(Vec<Change>),
    Status(SyncStatus),
    Ping(Option<Ping>),
    Goodbye(native::Goodbye),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) key: String,
    pub(super) value: Option<Vec<u8>>,
    pub(super) update_type: UpdateType,
}

enum Codec {
    Plain(Box<gob::Decoder>),
    Snappy(Box<snappy::Decoder>, Box<gob::Decoder>),
    Native(BytesMut),
}

/// A client that follows the protocol to the letter and remembers what it has heard.
pub(super) struct Client<S = DuplexStream> {
    pub(super) io: S,
    codec: Codec,
    speech: Speech,
    heard: VecDeque<Heard>,
    /// Answer pings.
    pub(super) pongs: bool,
    /// What the client holds.
    pub(super) map: BTreeMap<String, Vec<u8>>,
    /// The last status it was told.
    pub(super) status: SyncStatus,
    /// Sequence number up to which it has everything; our protocol only.
    pub(super) sequence: u64,
    /// Updates it was sent.
    pub(super) updates: usize,
    /// Whether the restart was acknowledged before it came.
    pub(super) acked_ahead: bool,
    /// Whether the server has answered the hello.
    pub(super) greeted: bool,
    /// Whether the stream proper has begun: nothing more has to be acknowledged.
    pub(super) streaming: bool,
}

fn new_decoder() -> Box<gob::Decoder> {
    Box::new(gob::Decoder::new(gob::Limits::client()))
}

pub(super) fn gob_hello(speech: &Speech, syncer: &str) -> ClientHello {
    ClientHello {
        hostname: "node-1".to_owned(),
        info: "a test".to_owned(),
        version: "v3.33".to_owned(),
        syncer_type: syncer.to_owned(),
        supports_decoder_restart: *speech == Speech::GobSnappy,
        supported_compression_algorithms: if *speech == Speech::GobSnappy {
            vec!["lzma".to_owned(), "snappy".to_owned()]
        } else {
            Vec::new()
        },
        supports_modern_policy_keys: true,
        client_conn_id: 77,
    }
}

/// The bytes of a message, with all definitions before it when it is the first.
pub(super) fn gob_bytes(message: &Message, first: bool) -> BytesMut {
    let mut bytes = BytesMut::new();
    if first {
        bytes.extend_from_slice(&gob::client_prefix());
    }
    gob::encode(message, &mut bytes);
    bytes
}

impl<S: Stream> Client<S> {
    pub(super) fn new(io: S, speech: Speech) -> Self {
        let codec = match speech {
            Speech::GobPlain | Speech::GobSnappy => Codec::Plain(new_decoder()),
            Speech::Native { .. } => Codec::Native(BytesMut::new()),
        };
        Self {
            io,
            codec,
            speech,
            heard: VecDeque::new(),
            pongs: true,
            map: BTreeMap::new(),
            status: SyncStatus::WaitForDatastore,
            sequence: 0,
            updates: 0,
            acked_ahead: false,
            greeted: false,
            streaming: false,
        }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.expect("the server reads");
    }

    pub(super) async fn say(&mut self, message: &Message) {
        self.send(&gob_bytes(message, false)).await;
    }

    pub(super) async fn hello(&mut self, syncer: &str) {
        let bytes = self.hello_bytes(syncer);
        self.send(&bytes).await;
    }

    /// The first bytes of a client.
    pub(super) fn hello_bytes(&self, syncer: &str) -> BytesMut {
        match &self.speech {
            Speech::Native { compression, prefixes } => {
                let mut bytes = BytesMut::from(&native::MAGIC[..]);
                let hello = native::ClientHello {
                    min_version: 1,
                    max_version: native::VERSION,
                    agent: "node-1".to_owned(),
                    agent_version: "v1".to_owned(),
                    syncer: syncer.to_owned(),
                    compressions: vec![(*compression).to_owned()],
                    prefixes: prefixes.clone(),
                    resume: None,
                    conn_id: 77,
                };
                native::encode_client(&native::ClientFrame::Hello(hello), &mut bytes);
                bytes
            }
            speech => gob_bytes(&Message::ClientHello(gob_hello(speech, syncer)), true),
        }
    }

    /// The next thing that the server says, pings answered and the map kept. `None`: the connection is closed.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        loop {
            if let Some(heard) = self.heard.pop_front() {
                self.take_in(&heard).await;
                return Some(heard);
            }
            let mut buffer = [0; 4096];
            let read = timeout(PATIENCE, self.io.read(&mut buffer)).await.expect("the server says something");
            match read {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.decode(&buffer[..n]),
            }
        }
    }

    fn decode(&mut self, bytes: &[u8]) {
        let (mut restart, mut rest) = (false, Bytes::new());
        match &mut self.codec {
            Codec::Plain(decoder) => {
                decoder.push(bytes);
                while !restart && let Some(envelope) = decoder.next().expect("the server's gob is good") {
                    let heard = gob_heard(envelope.0);
                    restart = heard == Heard::Restart;
                    self.heard.push_back(heard);
                }
                if restart {
                    rest = decoder.take_buffered();
                    assert!(rest.is_empty() || self.acked_ahead, "nothing may follow a restart before the ACK");
                }
            }
            Codec::Snappy(chunks, decoder) => {
                chunks.push(bytes);
                while let Some(chunk) = chunks.next_chunk().expect("the server's snappy is good") {
                    decoder.push(&chunk);
                    while let Some(envelope) = decoder.next().expect("the server's gob is good") {
                        self.heard.push_back(gob_heard(envelope.0));
                    }
                }
            }
            Codec::Native(input) => {
                input.extend_from_slice(bytes);
                while let Some(frame) = native::decode_server(input).expect("the server's frames are good") {
                    if let native::ServerFrame::Updates { after, upto, .. } = &frame {
                        assert_eq!(*after, self.sequence, "no gap, no overlap");
                        self.sequence = *upto;
                    }
                    if let native::ServerFrame::SnapshotEnd { seq, .. } = &frame {
                        self.sequence = *seq;
                    }
                    self.heard.push_back(native_heard(frame));
                }
            }
        }
        if restart {
            self.codec = Codec::Snappy(Box::default(), new_decoder());
            self.decode(&rest);
        }
    }

    async fn take_in(&mut self, heard: &Heard) {
        match heard {
            Heard::Hello => {
                self.greeted = true;
                self.streaming = self.speech != Speech::GobSnappy;
            }
            Heard::Restart => {
                self.say(&Message::Ack).await;
                self.streaming = true;
            }
            Heard::Ping(Some(ping)) if self.pongs => {
                let pong = Pong { ping_timestamp: ping.timestamp.clone(), ..Pong::default() };
                self.say(&Message::Pong(pong)).await;
            }
            Heard::Ping(None) if self.pongs => {
                let mut frame = BytesMut::new();
                let ping_at = std::time::SystemTime::UNIX_EPOCH;
                native::encode_client(&native::ClientFrame::Pong { ping_at }, &mut frame);
                self.send(&frame).await;
            }
            Heard::Updates(changes) => {
                self.updates += changes.len();
                for change in changes {
                    match &change.value {
                        Some(value) => self.map.insert(change.key.clone(), value.clone()),
                        None => self.map.remove(&change.key),
                    };
                }
            }
            Heard::Status(status) => self.status = *status,
            _ => {}
        }
    }

    /// Listens until something holds.
    pub(super) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(self.next().await.is_some(), "closed before: {what}");
            assert!(began.elapsed() < PATIENCE, "never: {what}");
        }
    }

    /// Listens until the server closes the connection. Returns the last words.
    pub(super) async fn until_closed(&mut self) -> Option<String> {
        self.until_goodbye().await.map(|goodbye| goodbye.reason)
    }

    /// The same with what else the goodbye says.
    pub(super) async fn until_goodbye(&mut self) -> Option<native::Goodbye> {
        let mut last = None;
        while let Some(heard) = self.next().await {
            if let Heard::Goodbye(goodbye) = heard {
                last = Some(goodbye);
            }
        }
        last
    }
}

fn gob_heard(message: Option<Message>) -> Heard {
    match message {
        Some(Message::ServerHello(hello)) => {
            assert!(hello.supports_node_resource_updates);
            Heard::Hello
        }
        Some(Message::DecoderRestart(restart)) => {
            assert_eq!(restart.compression_algorithm, "snappy");
            Heard::Restart
        }
        Some(Message::SyncStatus(status)) => {
            Heard::Status(SyncStatus::from_wire(u64::from(status)).expect("a status that exists"))
        }
        Some(Message::Ping(ping)) => Heard::Ping(Some(ping)),
        Some(Message::Kvs(updates)) => Heard::Updates(
            updates
                .into_iter()
                .map(|update| Change {
                    key: String::from_utf8(update.key.to_vec()).expect("keys are text"),
                    value: (!update.value.is_empty()).then(|| update.value.to_vec()),
                    update_type: UpdateType::from_wire(u64::from(update.update_type)).expect("a type that exists"),
                })
                .collect(),
        ),
        other => panic!("a server does not say {other:?}"),
    }
}

fn native_heard(frame: native::ServerFrame) -> Heard {
    let changes = |updates: Vec<Update>| {
        let change = |update: Update| Change {
            key: update.key.to_string(),
            value: update.value.map(|value| value.bytes.to_vec()),
            update_type: update.update_type,
        };
        Heard::Updates(updates.into_iter().map(change).collect())
    };
    match frame {
        native::ServerFrame::Hello(_) => Heard::Hello,
        native::ServerFrame::SnapshotBegin { .. } | native::ServerFrame::SnapshotEnd { .. } => Heard::Snapshot,
        native::ServerFrame::SnapshotChunk { updates } | native::ServerFrame::Updates { updates, .. } => {
            changes(updates)
        }
        native::ServerFrame::Status { status, .. } => Heard::Status(status),
        native::ServerFrame::Ping { .. } => Heard::Ping(None),
        native::ServerFrame::Goodbye(goodbye) => Heard::Goodbye(goodbye),
    }
}
