//! Feeds arbitrary bytes to all update processors as an object's body, and their results to the validation stage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::calico::validate::exercise::object(input));
