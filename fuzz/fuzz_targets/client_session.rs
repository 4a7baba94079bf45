//! Feeds arbitrary bytes to the client library's sessions as a server's bytes, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncclient::exercise::server_says(input));
