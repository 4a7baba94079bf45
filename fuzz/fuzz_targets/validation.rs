//! Feeds arbitrary bytes to all update processors as an object's body, and what comes out to the validation stage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::validate::exercise::object(input));
