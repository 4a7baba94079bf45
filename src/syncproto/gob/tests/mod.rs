//! Tests of the gob codec as a whole.

mod bounds;
mod corpus;
mod golden;
mod properties;
mod vectors;

use super::{Decoder, Envelope, Error, Limits};
use crate::syncproto::vectors_tests::unhex;

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

/// The opposite of [`unhex`].
fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
