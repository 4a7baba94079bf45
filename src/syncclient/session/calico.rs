//! The client's side of Calico's protocol.
//!
//! ```text
//!  Hello ──MsgServerHello──► Streaming ──MsgDecoderRestart: new decoder, then MsgACK──► Streaming
//! ```
//!
//! The stream to the server is one gob stream for all of the connection. The stream from the server starts plain; each restart
//! begins a new one. A server must be silent between restart and acknowledgement; one that is not loses nothing here, as its
//! early bytes go to the new decoder.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{Incoming, Session, protocol};
use crate::model::{Key, SyncStatus, Update, UpdateType, Value, no_revision};
use crate::syncclient::{Error, Identity, ServerInfo};
use crate::syncproto::gob::{self, Envelope, Limits};
use crate::syncproto::messages::{ClientHello, DecoderRestart, GobTime, Message, Pong, SerializedUpdate, ServerHello};
use crate::syncproto::native::KeyError;
use crate::syncproto::snappy;

const SNAPPY: &str = "snappy";

#[derive(Debug)]
enum Phase {
    /// Nothing has come yet.
    Hello,
    /// The hello has come; whether the stream will be compressed shows with the next message.
    Greeted(ServerInfo),
    /// The hello has been passed on.
    Streaming,
}

/// See the module.
#[derive(Debug)]
pub struct CalicoSession {
    identity: Identity,
    compression: bool,
    conn_id: u64,
    phase: Phase,
    /// Under `decoder` while the stream is compressed.
    snappy: Option<snappy::Decoder>,
    decoder: gob::Decoder,
    ready: VecDeque<Incoming>,
}

impl CalicoSession {
    /// A session that offers snappy or not.
    #[must_use]
    pub fn new(identity: Identity, compression: bool, conn_id: u64) -> Self {
        Self {
            identity,
            compression,
            conn_id,
            phase: Phase::Hello,
            snappy: None,
            decoder: gob::Decoder::new(Limits::client()),
            ready: VecDeque::new(),
        }
    }

    /// The next message of the present stream, decompressed as needed.
    fn next_message(&mut self) -> Result<Option<Envelope>, Error> {
        loop {
            if let Some(envelope) = self.decoder.next().map_err(|error| protocol(error.to_string()))? {
                return Ok(Some(envelope));
            }
            let Some(snappy) = &mut self.snappy else { return Ok(None) };
            let Some(chunk) = snappy.next_chunk().map_err(|error| protocol(error.to_string()))? else {
                return Ok(None);
            };
            self.decoder.push(&chunk);
        }
    }

    fn on_message(&mut self, message: Option<Message>, out: &mut BytesMut) -> Result<(), Error> {
        if let Phase::Greeted(server) = &mut self.phase {
            if matches!(message, Some(Message::DecoderRestart(_))) {
                SNAPPY.clone_into(&mut server.compression);
            }
            self.ready.push_back(Incoming::Hello(server.clone()));
            self.phase = Phase::Streaming;
        }
        match (&self.phase, message) {
            (Phase::Hello, Some(Message::ServerHello(hello))) => self.on_hello(hello)?,
            (Phase::Hello, other) => {
                return Err(protocol(format!("server sent {} before its hello", name(other.as_ref()))));
            }
            (_, Some(Message::ServerHello(_))) => return Err(protocol("server sent a second hello")),
            (_, Some(Message::DecoderRestart(restart))) => self.on_restart(&restart, out)?,
            (_, Some(Message::Ping(ping))) => {
                let answer = Pong { ping_timestamp: ping.timestamp, pong_timestamp: GobTime::default() };
                gob::encode(&Message::Pong(answer), out);
                self.ready.push_back(Incoming::ALIVE);
            }
            (_, Some(Message::SyncStatus(number))) => {
                let status = SyncStatus::from_wire(number.into())
                    .ok_or_else(|| protocol(format!("server sent status {number}, which does not exist")))?;
                self.ready.push_back(Incoming::Status(status));
            }
            (_, Some(Message::Kvs(kvs))) => {
                let updates = kvs.into_iter().filter_map(to_update).collect();
                self.ready.push_back(Incoming::Updates(updates, None));
            }
            // As Calico's client: messages that mean nothing to a client are passed over.
            (_, None | Some(Message::Ack | Message::Pong(_) | Message::ClientHello(_))) => {
                self.ready.push_back(Incoming::ALIVE);
            }
        }
        Ok(())
    }

    fn on_hello(&mut self, hello: ServerHello) -> Result<(), Error> {
        if !hello.supports_node_resource_updates {
            return Err(protocol("server does not support node resource updates, it is too old"));
        }
        let syncer = if hello.syncer_type.is_empty() { "felix" } else { &hello.syncer_type };
        if syncer != self.identity.syncer.as_str() {
            return Err(protocol(format!("server serves syncer {syncer:?}, asked for was {}", self.identity.syncer)));
        }
        let server = ServerInfo {
            name: String::new(),
            version: hello.version,
            protocol: "calico",
            compression: "none".to_owned(),
            conn_id: hello.server_conn_id,
            epoch: None,
        };
        if self.compression {
            self.phase = Phase::Greeted(server);
        } else {
            self.ready.push_back(Incoming::Hello(server));
            self.phase = Phase::Streaming;
        }
        Ok(())
    }

    fn on_restart(&mut self, restart: &DecoderRestart, out: &mut BytesMut) -> Result<(), Error> {
        if !self.compression {
            return Err(protocol("server restarts the decoder, which was not offered"));
        }
        let unread = match &mut self.snappy {
            None => self.decoder.take_buffered(),
            Some(_) if self.decoder.buffered() > 0 => {
                return Err(protocol("server restarts the decoder inside a compressed chunk"));
            }
            Some(snappy) => snappy.take_buffered(),
        };
        self.snappy = match restart.compression_algorithm.as_str() {
            "" => None,
            SNAPPY => Some(snappy::Decoder::new()),
            other => return Err(protocol(format!("server chose compression {other:?}, which was not offered"))),
        };
        self.decoder = gob::Decoder::new(Limits::client());
        self.push(&unread);
        gob::encode(&Message::Ack, out);
        self.ready.push_back(Incoming::ALIVE);
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        match &mut self.snappy {
            Some(snappy) => snappy.push(bytes),
            None => self.decoder.push(bytes),
        }
    }
}

impl Session for CalicoSession {
    fn start(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&gob::client_prefix());
        let hello = ClientHello {
            hostname: self.identity.agent.clone(),
            info: "bulrush client library".to_owned(),
            version: self.identity.dialect.build(&self.identity.version),
            syncer_type: self.identity.syncer.as_str().to_owned(),
            supports_decoder_restart: self.compression,
            supported_compression_algorithms: if self.compression { vec![SNAPPY.to_owned()] } else { Vec::new() },
            supports_modern_policy_keys: self.identity.dialect.has_modern_policy_keys(),
            client_conn_id: self.conn_id,
        };
        gob::encode(&Message::ClientHello(hello), out);
    }

    fn on_input(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Incoming>, Error> {
        if !input.is_empty() {
            self.push(input);
            input.clear();
        }
        loop {
            if let Some(incoming) = self.ready.pop_front() {
                return Ok(Some(incoming));
            }
            let Some(Envelope(message)) = self.next_message()? else { return Ok(None) };
            self.on_message(message, out)?;
        }
    }

    fn acknowledge(&mut self, _applied: u64, _errors: Vec<KeyError>, _out: &mut BytesMut) -> bool {
        false
    }

    fn goodbye(&mut self, _reason: &str, _out: &mut BytesMut) {}
}

/// An update as the rest of the world knows it; `None` for a key that is no text.
fn to_update(wire: SerializedUpdate) -> Option<Update> {
    let Ok(key) = std::str::from_utf8(&wire.key) else {
        tracing::error!(key = ?wire.key, "server sent a key that is not UTF-8, passing it over");
        return None;
    };
    Some(Update {
        key: Key::from(key),
        value: (!wire.value.is_empty()).then(|| Value::raw(Bytes::copy_from_slice(&wire.value))),
        revision: wire.revision.map_or_else(no_revision, |revision| Arc::from(revision.text)),
        v3_resource_version: Arc::from(wire.v3_resource_version),
        ttl: Duration::from_nanos(u64::try_from(wire.ttl_ns).unwrap_or(0)),
        update_type: UpdateType::from_wire(wire.update_type.into()).unwrap_or(UpdateType::Unknown),
        origin: None,
    })
}

fn name(message: Option<&Message>) -> &'static str {
    match message {
        None => "a nil message",
        Some(Message::ClientHello(_)) => "a client hello",
        Some(Message::ServerHello(_)) => "a hello",
        Some(Message::DecoderRestart(_)) => "a decoder restart",
        Some(Message::Ack) => "an acknowledgement",
        Some(Message::SyncStatus(_)) => "a status",
        Some(Message::Ping(_)) => "a ping",
        Some(Message::Pong(_)) => "a pong",
        Some(Message::Kvs(_)) => "updates",
    }
}

#[cfg(test)]
mod tests;
