//! Feeds arbitrary bytes to the readers of the API server's lists and watches, whole and in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::datastore::kubernetes::exercise::answer(input));
