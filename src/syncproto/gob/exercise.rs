//! The fuzz target's check of one input; tests replay its corpus with it.

use super::{Decoder, Limits};

/// Decodes `input` whole and in pieces, and panics when the results differ or the decoder holds more than it may.
///
/// The first byte of the input chooses the size of the pieces.
pub fn decode(input: &[u8]) {
    let Some((size, stream)) = input.split_first() else { return };
    let limits = Limits { max_message_bytes: 1 << 16, ..Limits::server() };
    let whole = run(stream, stream.len().max(1), limits);
    let pieces = run(stream, usize::from(*size).max(1), limits);
    assert_eq!(whole, pieces, "the size of the pieces must not matter");
}

/// Decodes in pieces. Returns the number of messages, and the error's class.
fn run(stream: &[u8], size: usize, limits: Limits) -> (usize, Option<super::ErrorClass>) {
    let mut decoder = Decoder::new(limits);
    let mut messages = 0;
    for piece in stream.chunks(size) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(_)) => messages += 1,
                Ok(None) => break,
                Err(error) => return (messages, Some(error.class())),
            }
        }
        // A buffer grows by doubling, frames stay whole, and definitions are few.
        let bound = 4 * limits.max_message_bytes + 2 * piece.len() + (64 << 10);
        assert!(decoder.held() <= bound, "{} bytes held", decoder.held());
    }
    (messages, decoder.finish().err().map(|error| error.class()))
}
