//! Feeds arbitrary bytes to the reader of framed snappy, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncproto::snappy::exercise::decode(input));
