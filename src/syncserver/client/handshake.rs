//! From the first byte to a complete hello. No I/O, no clock: bytes in, a hello or a reason to close out.
//!
//! ```text
//!  Detecting ──first bytes are ours──► Native ──hello frame──► (done)
//!      └──────anything else──────────► Gob ─────client hello──► (done)
//! ```
//!
//! Bytes that follow the hello stay in the [`Inbound`] that is handed over with it.

use bytes::BytesMut;

use super::super::reason::CloseReason;
use super::super::wire::Wire;
use super::inbound::Inbound;
use super::places::FREE_BYTES;
use crate::calico::syncers::FELIX;
use crate::outlet::filter::Filter;
use crate::outlet::status::Agent;
use crate::syncproto::messages::{ClientHello, Message};
use crate::syncproto::{gob, native};

/// The first bytes of a TLS handshake: its type, and the first half of its version.
const TLS: [u8; 2] = [0x16, 0x03];
/// Longest text of a hello that goes into log and status: host names and versions are far shorter.
const MAX_LOGGED: usize = 256;

/// The wishes of a client, all rules applied.
#[derive(Debug)]
pub(crate) struct Hello {
    pub(crate) agent: Agent,
    /// The name of the syncer that it asks for.
    pub(crate) syncer: String,
    pub(crate) wire: Wire,
    pub(crate) filter: Filter,
    /// Whether it understands policy keys that contain the kind. Clients of our own protocol do.
    pub(crate) modern_policy_keys: bool,
    /// The reader of later messages, with the bytes that have come after the hello.
    pub(crate) inbound: Inbound,
}

/// A handshake in progress.
#[derive(Debug)]
pub(crate) enum Handshake {
    /// There are not enough bytes to tell the protocols apart.
    Detecting(BytesMut),
    /// Calico's protocol.
    Gob(Box<gob::Decoder>),
    /// Ours.
    Native(BytesMut),
    /// The hello has come, good or bad.
    Done {
        /// Whether it was in our protocol.
        native: bool,
    },
}

impl Handshake {
    pub(crate) fn new() -> Self {
        Self::Detecting(BytesMut::new())
    }

    /// Whether the client speaks our protocol, and so understands a goodbye.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self, Self::Native(_) | Self::Done { native: true })
    }

    /// Whether an unfinished hello is so long that the client needs a place to be read on.
    pub(crate) fn needs_place(&self) -> bool {
        match self {
            Self::Detecting(_) | Self::Done { .. } => false,
            Self::Gob(decoder) => decoder.unfinished() > FREE_BYTES,
            Self::Native(input) => input.capacity() > FREE_BYTES,
        }
    }

    /// Bytes came. Returns the hello once it is complete.
    pub(crate) fn on_bytes(&mut self, bytes: &[u8]) -> Result<Option<Hello>, CloseReason> {
        match self {
            Self::Detecting(seen) => {
                seen.extend_from_slice(bytes);
                match native::detect(seen) {
                    native::Detection::NeedMore => Ok(None),
                    // Detecting => Native
                    native::Detection::Native => {
                        let rest = seen.split_off(native::MAGIC.len());
                        *self = Self::Native(BytesMut::new());
                        self.on_bytes(&rest)
                    }
                    // Detecting => Gob
                    native::Detection::Other => {
                        // A message in gob may begin with the first byte of TLS, too.
                        if seen[..] == TLS[..1] {
                            return Ok(None);
                        }
                        if seen.starts_with(&TLS) {
                            let what = "a TLS handshake, but this server was configured without TLS".to_owned();
                            return Err(CloseReason::NotAHello(what));
                        }
                        let seen = std::mem::take(seen);
                        *self = Self::Gob(Box::new(gob::Decoder::new(gob::Limits::server())));
                        self.on_bytes(&seen)
                    }
                }
            }
            Self::Gob(decoder) => {
                decoder.push(bytes);
                let envelope = match decoder.next() {
                    Ok(None) => return Ok(None),
                    Ok(Some(envelope)) => envelope,
                    Err(error) => return Err(CloseReason::NotAHello(error.to_string())),
                };
                let hello = match envelope.0 {
                    Some(Message::ClientHello(hello)) => hello,
                    Some(other) => return Err(CloseReason::NotAHello(super::inbound::name(&other).to_owned())),
                    None => return Err(CloseReason::NotAHello("a nil message".to_owned())),
                };
                // Gob => Done
                let Self::Gob(decoder) = std::mem::replace(self, Self::Done { native: false }) else { return Ok(None) };
                Ok(Some(on_gob_hello(hello, decoder)))
            }
            Self::Native(input) => {
                input.extend_from_slice(bytes);
                let hello = match native::decode_client(input) {
                    Ok(None) => return Ok(None),
                    Ok(Some(native::ClientFrame::Hello(hello))) => hello,
                    Ok(Some(_)) => return Err(CloseReason::NotAHello("another frame of our protocol".to_owned())),
                    Err(error) => return Err(CloseReason::NotAHello(error.to_string())),
                };
                // Native => Done
                let input = std::mem::take(input);
                *self = Self::Done { native: true };
                on_native_hello(hello, input).map(Some)
            }
            Self::Done { .. } => Ok(None),
        }
    }
}

/// The name of the syncer that a client asks for, shortened. Clients from the time of a single syncer name none.
fn syncer_named(name: String) -> String {
    if name.is_empty() { FELIX.as_str().to_owned() } else { shortened(name) }
}

fn on_gob_hello(hello: ClientHello, decoder: Box<gob::Decoder>) -> Hello {
    let syncer = syncer_named(hello.syncer_type);
    let takes_snappy = hello.supported_compression_algorithms.iter().any(|algorithm| algorithm == "snappy");
    // Compression can only begin with a fresh decoder.
    let wire = if takes_snappy && hello.supports_decoder_restart { Wire::GobSnappy } else { Wire::GobPlain };
    let agent = Agent {
        name: shortened(hello.hostname),
        info: shortened(hello.info),
        version: shortened(hello.version),
        conn_id: hello.client_conn_id,
    };
    let (filter, modern_policy_keys) = (Filter::default(), hello.supports_modern_policy_keys);
    Hello { agent, syncer, wire, filter, modern_policy_keys, inbound: Inbound::gob(decoder, wire) }
}

fn on_native_hello(hello: native::ClientHello, rest: BytesMut) -> Result<Hello, CloseReason> {
    if native::negotiate(hello.min_version, hello.max_version).is_none() {
        let (min, max) = (hello.min_version, hello.max_version);
        let ours = native::VERSION;
        return Err(CloseReason::Unsupported(format!(
            "the client speaks versions {min} to {max} of our protocol, this server only {ours}"
        )));
    }
    let syncer = syncer_named(hello.syncer);
    let wire = Wire::from(native::Compression::choose(&hello.compressions));
    let agent = Agent {
        name: shortened(hello.agent),
        info: String::new(),
        version: shortened(hello.agent_version),
        conn_id: hello.conn_id,
    };
    let filter = Filter::new(hello.prefixes);
    Ok(Hello { agent, syncer, wire, filter, modern_policy_keys: true, inbound: Inbound::native(rest) })
}

fn shortened(mut text: String) -> String {
    if text.len() > MAX_LOGGED {
        let end = (0..=MAX_LOGGED).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::syncers::BGP;
    use crate::syncproto::messages::DecoderRestart;
    use crate::syncserver::client::inbound::ClientEvent;

    fn stream(message: &Message) -> BytesMut {
        let mut bytes = BytesMut::from(&gob::client_prefix()[..]);
        gob::encode(message, &mut bytes);
        bytes
    }

    fn good() -> ClientHello {
        ClientHello {
            hostname: "node-1".to_owned(),
            supports_decoder_restart: true,
            supported_compression_algorithms: vec!["zstd".to_owned(), "snappy".to_owned()],
            supports_modern_policy_keys: true,
            ..ClientHello::default()
        }
    }

    fn outcome(hello: ClientHello) -> Result<(String, Wire), CloseReason> {
        let mut handshake = Handshake::new();
        let done = handshake.on_bytes(&stream(&Message::ClientHello(hello)))?.expect("complete");
        Ok((done.syncer, done.wire))
    }

    #[test]
    fn a_hello_decides_syncer_and_encoding() {
        let snappy = good();
        let no_restart = ClientHello { supports_decoder_restart: false, ..good() };
        let no_snappy = ClientHello { supported_compression_algorithms: vec!["lz4".to_owned()], ..good() };
        let bgp = ClientHello { syncer_type: "bgp".to_owned(), ..good() };
        let cases = [
            (snappy, Ok((FELIX.to_string(), Wire::GobSnappy))),
            (no_restart, Ok((FELIX.to_string(), Wire::GobPlain))),
            (no_snappy, Ok((FELIX.to_string(), Wire::GobPlain))),
            (bgp, Ok((BGP.to_string(), Wire::GobSnappy))),
        ];
        for (hello, expected) in cases {
            assert_eq!(outcome(hello.clone()), expected, "{hello:?}");
        }
    }

    #[test]
    fn messages_after_the_hello_are_not_lost() {
        let mut bytes = stream(&Message::ClientHello(good()));
        gob::encode(&Message::Ack, &mut bytes);
        gob::encode(&Message::Ack, &mut bytes);
        gob::encode(&Message::Ack, &mut bytes);
        let mut hello = Handshake::new().on_bytes(&bytes).expect("good").expect("complete");
        assert_eq!(hello.inbound.next(), Ok(Some(ClientEvent::Ack)));
        assert_eq!(hello.inbound.next(), Ok(Some(ClientEvent::Ack)), "that of the second restart of Calico's server");
        assert!(matches!(hello.inbound.next(), Err(CloseReason::UnexpectedMessage(_))));
    }

    #[test]
    fn anything_but_a_hello_is_refused_with_a_reason() {
        let restart = Message::DecoderRestart(DecoderRestart::default());
        for (bytes, words) in [
            (stream(&Message::Ack), "MsgACK"),
            (stream(&Message::SyncStatus(1)), "MsgSyncStatus"),
            (stream(&restart), "MsgDecoderRestart"),
            (BytesMut::from(&[0x16, 0x03, 0x01][..]), "TLS"),
        ] {
            let Err(CloseReason::NotAHello(said)) = Handshake::new().on_bytes(&bytes) else { panic!("{words}") };
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        assert_eq!(shortened("ä".repeat(200)).len(), 256);
        assert_eq!(shortened("a".to_owned() + &"ä".repeat(200)).len(), 255);
    }
}
