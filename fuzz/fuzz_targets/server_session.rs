//! Feeds arbitrary bytes to a server as a client's bytes from the hello on, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::syncserver::exercise::client_says(input));
