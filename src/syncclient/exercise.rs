//! The work of the fuzz target on one input, for tests that replay its corpus.

use bytes::BytesMut;

use super::Identity;
use super::session::calico::CalicoSession;
use super::session::native::NativeSession;
use super::session::{Incoming, Session};
use crate::calico::release::Release;
use crate::calico::syncers::FELIX;
use crate::syncproto::native::Compression;

/// Most messages that are taken from one input: a compressed one may hold many.
const MAX_MESSAGES: usize = 10_000;

/// Gives the input, without its first byte, to a client's session as a server's bytes, whole and in pieces whose size the
/// first byte chooses, in each protocol. Panics when the pieces matter, or when anything comes before the server's hello.
pub fn server_says(input: &[u8]) {
    let Some((size, stream)) = input.split_first() else { return };
    for protocol in 0..3 {
        let whole = run(protocol, stream, stream.len().max(1));
        let pieces = run(protocol, stream, usize::from(*size).max(1));
        assert_eq!(whole, pieces, "the size of the pieces must not matter");
        assert!(whole.0.first().is_none_or(|first| matches!(first, Incoming::Hello(_))), "{:?}", whole.0);
    }
}

fn session(protocol: usize) -> Box<dyn Session> {
    let identity = Identity {
        agent: "agent".to_owned(),
        version: "1".to_owned(),
        syncer: FELIX,
        prefixes: Vec::new(),
        dialect: Release::Master,
    };
    match protocol {
        0 => Box::new(CalicoSession::new(identity, false, 1)),
        1 => Box::new(CalicoSession::new(identity, true, 1)),
        _ => Box::new(NativeSession::new(identity, vec![Compression::Zstd, Compression::None], 1)),
    }
}

/// The outcome: the messages, the answers, and whether the session ended with an error.
fn run(protocol: usize, stream: &[u8], size: usize) -> (Vec<Incoming>, BytesMut, bool) {
    let (mut session, mut incoming) = (session(protocol), Vec::new());
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    session.start(&mut out);
    for piece in stream.chunks(size) {
        input.extend_from_slice(piece);
        loop {
            match session.on_input(&mut input, &mut out) {
                Ok(Some(_)) if incoming.len() == MAX_MESSAGES => return (incoming, BytesMut::new(), false),
                Ok(Some(message)) => incoming.push(message),
                Ok(None) => break,
                Err(_) => return (incoming, out, true),
            }
        }
    }
    (incoming, out, false)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_sessions_does_no_harm() {
        crate::fuzzing::replay("client_session", super::server_says);
    }
}
