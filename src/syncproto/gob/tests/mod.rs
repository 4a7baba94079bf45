//! Tests of the gob codec as a whole.

mod bounds;
mod corpus;
mod golden;
mod properties;
mod vectors;

use super::{Decoder, Envelope, Error, Limits};

/// Decodes a stream that arrives in these pieces; returns the messages and how it ended.
fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits) -> (Vec<Envelope>, Result<(), Error>) {
    let mut decoder = Decoder::new(limits);
    let mut messages = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(envelope)) => messages.push(envelope),
                Ok(None) => break,
                Err(error) => return (messages, Err(error)),
            }
        }
    }
    let end = decoder.finish();
    (messages, end)
}

/// Cuts `bytes` at these places, in any order and as far as they exist.
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut pieces = Vec::new();
    let mut start = 0;
    for place in places.into_iter().chain([bytes.len()]) {
        pieces.push(&bytes[start..place]);
        start = place;
    }
    pieces
}

/// Bytes from hexadecimal digits; white space does not matter.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    assert_eq!(digits.len() % 2, 0, "odd number of digits");
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit");
    digits.chunks(2).map(|pair| u8::try_from(digit(pair[0]) << 4 | digit(pair[1])).expect("two digits")).collect()
}

/// The opposite of [`unhex`].
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
