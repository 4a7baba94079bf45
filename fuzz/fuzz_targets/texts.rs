//! Feeds arbitrary bytes to the readers of selectors, networks, durations, ports and times.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::calico::exercise::text(input));
