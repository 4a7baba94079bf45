//! Feeds arbitrary bytes to a server as what a client sends, hello and all, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncserver::exercise::client_says(input));
