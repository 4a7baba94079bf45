//! Feeds arbitrary bytes to the gob decoder, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncproto::gob::exercise::decode(input));
