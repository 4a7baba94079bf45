//! Replays the corpora of the fuzz targets.

use std::path::Path;

use super::super::exercise;
use crate::syncproto::snappy;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("reading {}: {error}", folder.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("an entry of the folder").path();
        run(&std::fs::read(path).expect("a readable file"));
        inputs += 1;
    }
    assert!(inputs > 0, "no inputs in {}", folder.display());
}

#[test]
fn the_corpus_of_gob_decode_does_no_harm() {
    replay("gob_decode", exercise::decode);
}

#[test]
fn the_corpus_of_snappy_decode_does_no_harm() {
    replay("snappy_decode", snappy::exercise::decode);
}
