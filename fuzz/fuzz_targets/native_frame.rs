//! Feeds arbitrary bytes to the decoders of the native protocol, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncproto::native::exercise::decode(input));
