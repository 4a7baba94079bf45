//! Runs the checks of fuzz targets as plain tests: on the files of their corpora, and on damaged copies of them.
//!
//! The seed alone determines the damage, so a failure can be repeated. It is printed with its input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Damaged copies per input of a corpus; all targets together stay within seconds in a debug build.
const COPIES: usize = 25;
/// Most damaged places in a copy.
const MAX_DAMAGE: usize = 6;
/// Seed of the damage.
const SEED: u64 = 0x0b01_2005;
/// Bytes with a meaning to parsers.
const PIECES: [&[u8]; 14] = [
    b"\0",
    b"\n",
    b"\"",
    b"{",
    b"}",
    b"[",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"---\n",
    b"\\u0000",
    b"\xff\xfe",
    b"99999999999999999999",
];

/// Feeds the corpus of a target, then damaged copies of it, to `run`.
///
/// # Panics
/// When `run` panics, after printing the input; when there is no corpus.
pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("reading {}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no inputs in {}", folder.display());
    let inputs: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a readable file")).collect();
    let mut random = StdRng::seed_from_u64(SEED);
    for (path, input) in paths.iter().zip(&inputs) {
        attempt(&path.display().to_string(), input, &run);
        for copy in 0..COPIES {
            let other = &inputs[random.random_range(0..inputs.len())];
            let damaged = damage(input, other, &mut random);
            attempt(&format!("copy {copy} of {}", path.display()), &damaged, &run);
        }
    }
}

fn attempt(name: &str, input: &[u8], run: impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        #[allow(clippy::print_stderr, reason = "a failing test prints its input")]
        {
            eprintln!("{name}: {:?}", String::from_utf8_lossy(input));
        }
        std::panic::resume_unwind(panic);
    }
}

/// A copy in which bytes were changed, inserted and removed, and parts of another input inserted.
fn damage(input: &[u8], other: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut copy = input.to_vec();
    for _ in 0..random.random_range(1..=MAX_DAMAGE) {
        let at = random.random_range(0..=copy.len());
        let end = (at + random.random_range(0..16_usize)).min(copy.len());
        match random.random_range(0..6) {
            0 if at < copy.len() => copy[at] = random.random(),
            1 => drop(copy.drain(at..end)),
            2 => {
                let again = copy[at..end].to_vec();
                copy.splice(at..at, again);
            }
            3 if !other.is_empty() => {
                let from = random.random_range(0..other.len());
                let part = other[from..(from + 32).min(other.len())].to_vec();
                copy.splice(at..at, part);
            }
            4 => copy.truncate(at),
            _ => drop(copy.splice(at..at, PIECES[random.random_range(0..PIECES.len())].iter().copied())),
        }
    }
    copy
}
