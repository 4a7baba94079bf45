//! Clients that know only the protocols, and follow them to the letter.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};

use super::harness::PATIENCE;
use crate::model::{SyncStatus, Update, UpdateType};
use crate::syncproto::messages::{ClientHello, Message, Ping, Pong};
use crate::syncproto::{gob, native, snappy};
use crate::syncserver::Stream;

/// The protocol of a client.
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

/// A message that a client hears.
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

/// A client that follows the protocol to the letter and remembers all messages.
pub(super) struct Client<S = DuplexStream> {
    pub(super) io: S,
    codec: Codec,
    speech: Speech,
    heard: VecDeque<Heard>,
    /// Whether it answers pings.
    pub(super) pongs: bool,
    /// The content that the client holds.
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

    /// The next message of the server. Answers pings and keeps the map. `None`: the connection is closed.
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

    /// Listens until `holds` is true.
    pub(super) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(self.next().await.is_some(), "closed before: {what}");
            assert!(began.elapsed() < PATIENCE, "never: {what}");
        }
    }

    /// Listens until the server closes the connection. Returns the reason in its goodbye.
    pub(super) async fn until_closed(&mut self) -> Option<String> {
        self.until_goodbye().await.map(|goodbye| goodbye.reason)
    }

    /// The same with the whole goodbye.
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
