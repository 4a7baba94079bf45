//! Feeds arbitrary bytes to all update processors as an object's body.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::calico::processors::exercise::object(input));
