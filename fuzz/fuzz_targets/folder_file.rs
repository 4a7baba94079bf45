//! Feeds arbitrary bytes to the reader of a folder's YAML and JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::datastore::file::exercise::file(input));
