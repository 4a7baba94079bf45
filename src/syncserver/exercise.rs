//! The work of the fuzz target on one input, for tests that replay its corpus.

use super::client::handshake::{Handshake, Hello};
use super::client::inbound::{ClientEvent, Inbound};

/// Gives the input, without its first byte, to a server as the bytes of a client: once whole, and once in pieces whose
/// size is the first byte. Panics when the results differ.
pub fn client_says(input: &[u8]) {
    let Some((size, stream)) = input.split_first() else { return };
    let whole = run(stream, stream.len().max(1));
    assert_eq!(whole, run(stream, usize::from(*size).max(1)), "the size of the pieces must not matter");
}

/// The outcome: the request of the hello, the messages after it, and whether the connection has to end.
fn run(stream: &[u8], size: usize) -> (Option<String>, Vec<ClientEvent>, bool) {
    let mut handshake = Handshake::new();
    let (mut hello, mut events) = (None, Vec::new());
    let mut inbound: Option<Inbound> = None;
    for piece in stream.chunks(size) {
        match &mut inbound {
            Some(inbound) => inbound.push(piece),
            None => match handshake.on_bytes(piece) {
                Ok(None) => continue,
                Ok(Some(Hello { agent, syncer, wire, filter, modern_policy_keys: _, inbound: rest })) => {
                    hello = Some(format!("{agent:?} {syncer} {wire:?} {filter:?}"));
                    inbound = Some(rest);
                }
                Err(_) => return (hello, events, true),
            },
        }
        let Some(inbound) = &mut inbound else { continue };
        loop {
            match inbound.next() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => return (hello, events, true),
            }
        }
    }
    (hello, events, false)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_clients_does_no_harm() {
        crate::fuzzing::replay("server_session", super::client_says);
    }
}
