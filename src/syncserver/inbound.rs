//! What clients say after their hello, in either protocol. No I/O.
//!
//! A decoder holds next to nothing between messages: idle connections are the normal case.

use bytes::BytesMut;

use super::places::FREE_BYTES;
use super::reason::CloseReason;
use super::wire::Wire;
use crate::syncproto::messages::{Message, Pong};
use crate::syncproto::{gob, native};

/// Acknowledgements that a snappy client may send: one for our decoder restart, and one for the second restart that Calico's
/// own server would do. Clients that know the protocol by heart send both ahead.
const ACKS_OF_SNAPPY: u8 = 2;

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientEvent {
    /// It is ready for the new decoder.
    Ack,
    /// It is alive.
    Pong,
    /// It has applied everything up to this sequence number; some keys failed.
    Applied(native::Ack),
    /// It is about to close, for this reason.
    Goodbye(String),
}

/// Reads one connection's client, from after its hello.
#[derive(Debug)]
pub(super) enum Inbound {
    /// Calico's protocol.
    Gob {
        /// The one decoder of the connection; this direction never restarts.
        decoder: Box<gob::Decoder>,
        /// Acknowledgements that may still come.
        acks_left: u8,
    },
    /// Ours: bytes that are not yet a whole frame.
    Native(BytesMut),
}

impl Inbound {
    pub(super) fn gob(mut decoder: Box<gob::Decoder>, wire: Wire) -> Self {
        decoder.limit_messages(gob::MAX_CLIENT_MESSAGE_BYTES);
        Self::Gob { decoder, acks_left: if wire == Wire::GobSnappy { ACKS_OF_SNAPPY } else { 0 } }
    }

    pub(super) fn native(rest: BytesMut) -> Self {
        Self::Native(rest)
    }

    /// Bytes came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Gob { decoder, .. } => decoder.push(bytes),
            Self::Native(input) => input.extend_from_slice(bytes),
        }
    }

    /// Whether so much of a message has come, and not all, that it takes a place to read on. Ask when there is no [next](Self::next).
    pub(super) fn needs_place(&self) -> bool {
        match self {
            Self::Gob { decoder, .. } => decoder.unfinished() > FREE_BYTES,
            Self::Native(input) => input.capacity() > FREE_BYTES,
        }
    }

    /// The next thing that the client said, once it is complete.
    pub(super) fn next(&mut self) -> Result<Option<ClientEvent>, CloseReason> {
        match self {
            Self::Gob { decoder, acks_left } => match decoder.next() {
                Ok(None) => Ok(None),
                Ok(Some(envelope)) => on_message(envelope.0, acks_left).map(Some),
                Err(error) => Err(CloseReason::BadMessage(error.to_string())),
            },
            Self::Native(input) => match native::decode_client(input) {
                Ok(None) => {
                    if input.is_empty() && input.capacity() > 0 {
                        // Give the memory back: the next frame may be hours away.
                        *input = BytesMut::new();
                    }
                    Ok(None)
                }
                Ok(Some(frame)) => on_frame(frame).map(Some),
                Err(error) => Err(CloseReason::BadMessage(error.to_string())),
            },
        }
    }
}

fn on_message(message: Option<Message>, acks_left: &mut u8) -> Result<ClientEvent, CloseReason> {
    match message {
        Some(Message::Pong(Pong { .. })) => Ok(ClientEvent::Pong),
        Some(Message::Ack) if *acks_left > 0 => {
            *acks_left -= 1;
            Ok(ClientEvent::Ack)
        }
        Some(other) => Err(CloseReason::UnexpectedMessage(name(&other).to_owned())),
        None => Err(CloseReason::UnexpectedMessage("a nil message".to_owned())),
    }
}

fn on_frame(frame: native::ClientFrame) -> Result<ClientEvent, CloseReason> {
    match frame {
        native::ClientFrame::Pong { .. } => Ok(ClientEvent::Pong),
        native::ClientFrame::Ack(ack) => Ok(ClientEvent::Applied(ack)),
        native::ClientFrame::Goodbye(goodbye) => Ok(ClientEvent::Goodbye(goodbye.reason)),
        native::ClientFrame::Hello(_) => Err(CloseReason::UnexpectedMessage("a second hello".to_owned())),
    }
}

/// Calico's name of a message.
pub(super) fn name(message: &Message) -> &'static str {
    match message {
        Message::ClientHello(_) => "MsgClientHello",
        Message::ServerHello(_) => "MsgServerHello",
        Message::DecoderRestart(_) => "MsgDecoderRestart",
        Message::Ack => "MsgACK",
        Message::SyncStatus(_) => "MsgSyncStatus",
        Message::Ping(_) => "MsgPing",
        Message::Pong(_) => "MsgPong",
        Message::Kvs(_) => "MsgKVs",
    }
}
