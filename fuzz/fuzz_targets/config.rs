//! Feeds arbitrary bytes to the readers of configuration files and variables.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::config::exercise::load(input));
