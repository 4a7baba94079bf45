//! Messages of clients after their hello, in either protocol. No I/O.
//!
//! A decoder holds next to nothing between messages: idle connections are the normal case.

use bytes::BytesMut;

use super::super::reason::CloseReason;
use super::super::wire::Wire;
use super::places::FREE_BYTES;
use crate::syncproto::messages::{Message, Pong};
use crate::syncproto::{gob, native};

/// Acknowledgements that a snappy client may send: one for our decoder restart, and one for a second restart that only
/// Calico's own server does. Some clients send both ahead.
const ACKS_OF_SNAPPY: u8 = 2;

/// A message of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientEvent {
    /// It is ready for the new decoder.
    Ack,
    /// It is alive.
    Pong,
    /// It has applied everything up to this sequence number, except some keys.
    Applied(native::Ack),
    /// It is about to close, for this reason.
    Goodbye(String),
}

/// Reads the messages of one client after its hello.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// Calico's protocol.
    Gob {
        /// The only decoder of the connection; this direction never restarts.
        decoder: Box<gob::Decoder>,
        /// Acknowledgements that may still come.
        acks_left: u8,
    },
    /// Ours: bytes that are not yet a whole frame.
    Native(BytesMut),
}

impl Inbound {
    pub(crate) fn gob(mut decoder: Box<gob::Decoder>, wire: Wire) -> Self {
        decoder.limit_messages(gob::MAX_CLIENT_MESSAGE_BYTES);
        Self::Gob { decoder, acks_left: if wire == Wire::GobSnappy { ACKS_OF_SNAPPY } else { 0 } }
    }

    pub(crate) fn native(rest: BytesMut) -> Self {
        Self::Native(rest)
    }

    /// Bytes came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Gob { decoder, .. } => decoder.push(bytes),
            Self::Native(input) => input.extend_from_slice(bytes),
        }
    }

    /// Whether an unfinished message is so long that the client needs a place to be read on. Valid when [`Self::next`]
    /// has none.
    pub(crate) fn needs_place(&self) -> bool {
        match self {
            Self::Gob { decoder, .. } => decoder.unfinished() > FREE_BYTES,
            Self::Native(input) => input.capacity() > FREE_BYTES,
        }
    }

    /// The next message of the client, once it is complete.
    pub(crate) fn next(&mut self) -> Result<Option<ClientEvent>, CloseReason> {
        match self {
            Self::Gob { decoder, acks_left } => match decoder.next() {
                Ok(None) => Ok(None),
                Ok(Some(envelope)) => on_message(envelope.0, acks_left).map(Some),
                Err(error) => Err(CloseReason::BadMessage(error.to_string())),
            },
            Self::Native(input) => match native::decode_client(input) {
                Ok(None) => {
                    if input.is_empty() && input.capacity() > 0 {
                        // Frees the memory: the next frame may be hours away.
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
pub(crate) fn name(message: &Message) -> &'static str {
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
