//! Feeds arbitrary bytes to the reader of schemas and objects: CRDs with CEL, JSON Schemas, and objects that they are about.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bulrush::validate::schema::exercise::text(input));
