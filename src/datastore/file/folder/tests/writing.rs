//! Files that are being written, and what is missing in them meanwhile.

use super::super::files::{WRITING_PATIENCE, WRITING_RETRY};
use super::*;

#[test]
fn what_is_missing_is_deleted_when_its_file_has_been_still() {
    let mut tree = Tree::of(&[("a.yaml", &[pool("a", "1"), pool("b", "1")].concat())]);
    let mut bench = Bench::loaded(&tree);
    // Cut between two documents; the first one is new already.
    tree.files.insert("a.yaml", pool("a", "2"));
    let first = bench.look(&tree);
    assert_eq!((first.put, first.deleted, first.again), (1, 0, Some(bench.now.get() + SETTLE)));
    // Still growing, so the time begins anew.
    bench.pass(SETTLE.saturating_sub(MOMENT));
    tree.files.insert("a.yaml", [pool("a", "2"), pool("c", "1")].concat());
    assert_eq!(bench.look(&tree).deleted, 0);
    bench.pass(SETTLE.saturating_sub(MOMENT));
    tree.touched += 1;
    assert_eq!(bench.look(&tree).deleted, 0);
    bench.pass(SETTLE.saturating_sub(MOMENT));
    assert_eq!(bench.look(&tree).deleted, 0);
    bench.pass(MOMENT);
    assert_eq!(bench.look(&tree), applied(0, 1));
    assert_eq!(bench.names(), ["a@2", "c@3"]);
}

#[test]
fn what_comes_back_in_time_was_never_away() {
    let whole = Tree::of(&[("a.yaml", &[pool("a", "1"), pool("b", "1")].concat())]);
    let mut bench = Bench::loaded(&whole);
    let cut = Tree::of(&[("a.yaml", &pool("a", "1"))]);
    // A file that is deleted and written anew is missing for a moment.
    let gone = Tree::of(&[("other.yaml", "# nothing\n")]);
    for missing in [cut, gone] {
        for _ in 0..3 {
            assert!(!bench.look(&missing).applied);
            bench.pass(SETTLE.saturating_sub(MOMENT));
            assert_eq!(bench.look(&whole), unchanged());
            bench.pass(SETTLE);
        }
    }
    assert_eq!(bench.names(), ["a@1", "b@1"]);
}

#[test]
fn a_broken_file_deletes_nothing_that_it_had_before_it_was_cut() {
    let mut tree = Tree::of(&[("a.yaml", &[pool("a", "1"), pool("b", "1")].concat())]);
    let mut bench = Bench::loaded(&tree);
    tree.files.insert("a.yaml", pool("a", "1"));
    bench.look(&tree);
    tree.files.insert("a.yaml", "{".to_owned());
    assert_eq!(bench.settle(&tree), unchanged());
    bench.pass(10 * SETTLE);
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.names(), ["a@1", "b@1"]);
}

#[test]
fn a_file_that_is_being_written_waits_without_any_event() {
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1"))]);
    let mut bench = Bench::loaded(&tree);
    // Changed while it was read.
    let torn = Tree { changing: vec!["a.yaml"], ..Tree::default() };
    assert_eq!(bench.look(&torn), Outcome { again: Some(bench.now.get() + QUIET), ..unchanged() });
    assert_eq!(bench.folder.status().errors, []);
    // Whole now, but a moment ago it was not.
    tree.files.insert("a.yaml", pool("a", "2"));
    tree.ages.insert("a.yaml", QUIET.saturating_sub(MOMENT));
    assert_eq!(bench.look(&tree), Outcome { again: Some(bench.now.get() + MOMENT), ..unchanged() });
    bench.pass(MOMENT);
    assert_eq!(bench.look(&tree), applied(1, 0));
    // By a clock that is ahead of ours, it is the time since we saw it that counts.
    tree.files.insert("a.yaml", pool("a", "3"));
    tree.ages.insert("a.yaml", Duration::ZERO);
    assert_eq!(bench.look(&tree).again, Some(bench.now.get() + QUIET));
    bench.pass(QUIET);
    assert_eq!(bench.look(&tree), applied(1, 0));
}

#[test]
fn a_first_load_waits_for_files_that_are_being_written() {
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]);
    tree.ages.insert("b.yaml", Duration::from_millis(400));
    let mut bench = Bench::new();
    let wait = bench.look(&tree);
    assert_eq!(wait, Outcome { again: Some(bench.now.get() + SETTLE - Duration::from_millis(400)), ..unchanged() });
    assert_eq!(bench.folder.status().held, None, "that is nothing to be told of");
    assert_eq!(bench.settle(&tree), applied(2, 0));
}

#[test]
fn a_file_that_is_written_to_without_a_pause_is_named() {
    let tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]);
    let torn = Tree { changing: vec!["a.yaml"], ..Tree::of(&[("b.yaml", &pool("b", "1"))]) };
    for first in [true, false] {
        let mut bench = if first { Bench::new() } else { Bench::loaded(&tree) };
        let began = bench.now.get();
        while bench.folder.status().errors.is_empty() {
            let outcome = bench.look(&torn);
            bench.now.set(outcome.again.unwrap());
            assert!(bench.now.get() < began + 2 * WRITING_PATIENCE, "it is never named");
        }
        assert!(bench.now.get() >= began + WRITING_PATIENCE);
        let status = bench.folder.status();
        assert_eq!((status.errors[0].file.as_str(), status.held.is_some()), ("a.yaml", first));
        assert_eq!(bench.look(&torn).again, Some(bench.now.get() + WRITING_RETRY));
        assert_eq!(bench.settle(&tree).applied, first);
        assert_eq!((bench.names().len(), bench.folder.status().errors), (2, vec![]));
    }
}
