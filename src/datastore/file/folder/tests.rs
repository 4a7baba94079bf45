//! Reloads as tables: what is in the files, what comes out.

use std::cell::Cell;
use std::path::PathBuf;

use proptest::prelude::*;

use super::super::parse::parse;
use super::*;
use crate::syncer::kinds;

/// Files that count at once are older than anything waits.
const OLD: Duration = Duration::from_secs(3_600);
const QUIET: Duration = Duration::from_millis(250);
const MOMENT: Duration = Duration::from_millis(1);

/// A tree in memory.
#[derive(Clone, Default)]
struct Tree {
    files: BTreeMap<&'static str, String>,
    unreadable: Vec<&'static str>,
    partial: Vec<&'static str>,
    changing: Vec<&'static str>,
    /// Files whose last change is this old; all others are [`OLD`].
    ages: BTreeMap<&'static str, Duration>,
    root: u64,
    /// Goes into all stamps, beside the content.
    touched: i64,
    confirmation: Option<String>,
}

/// A folder and its clock.
struct Bench {
    folder: Folder,
    now: Cell<Instant>,
}

impl Bench {
    fn new() -> Self {
        Self::with(Folder::new(QUIET, false))
    }

    fn with(folder: Folder) -> Self {
        Self { folder, now: Cell::new(Instant::now()) }
    }

    /// A folder that has loaded the tree.
    fn loaded(tree: &Tree) -> Self {
        let mut bench = Self::new();
        assert!(bench.look(tree).applied);
        bench
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }

    fn look(&mut self, tree: &Tree) -> Outcome {
        let scan = tree.scan(&self.folder);
        self.folder.scanned(&scan, self.now.get())
    }

    /// Looks until nothing is left open, as the driver does: what was put and deleted in all.
    fn settle(&mut self, tree: &Tree) -> Outcome {
        let mut total = Outcome::default();
        loop {
            let Outcome { applied, put, deleted, confirmed, again } = self.look(tree);
            total.applied |= applied;
            total.confirmed |= confirmed;
            total.put += put;
            total.deleted += deleted;
            let Some(again) = again else { return total };
            assert!(again > self.now.get(), "looking again at once would never end");
            self.now.set(again);
        }
    }

    /// The code that the folder asks for.
    fn code(&self) -> String {
        let held = self.folder.status().held.expect("held");
        held.split("write ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a code").to_owned()
    }

    fn names(&self) -> Vec<String> {
        let objects = self.folder.objects(&kinds::IP_POOL).1;
        objects.iter().map(|(resource, at)| format!("{}@{at}", resource.identity.id)).collect()
    }
}

impl Tree {
    fn of(files: &[(&'static str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect(), ..Self::default() }
    }

    fn scan(&self, folder: &Folder) -> Scan {
        let known = folder.known();
        let mut files = BTreeMap::new();
        for (name, text) in &self.files {
            let path: Arc<Path> = Arc::from(Path::new(name));
            let digest: Digest = Sha256::digest(text).into();
            let stamp = Stamp::made_of(&digest, self.touched);
            let read = if known.get(&path) == Some(&digest) {
                FileRead::Unchanged
            } else {
                let parsed = parse(&path, text.as_bytes()).map(Arc::from);
                FileRead::Read { digest, empty: text.is_empty(), parsed }
            };
            let age = self.ages.get(name).copied().unwrap_or(OLD);
            files.insert(path, Found { stamp: Some((stamp, age)), read });
        }
        let odd = |path: &&'static str, read| (Arc::from(Path::new(path)), Found { stamp: None, read });
        files.extend(self.unreadable.iter().map(|path| odd(path, FileRead::Unreadable("denied".to_owned()))));
        files.extend(self.changing.iter().map(|path| odd(path, FileRead::Changing)));
        let partial = self.partial.iter().map(|path| (PathBuf::from(path), "denied".to_owned())).collect();
        let confirmation = self.confirmation.clone();
        Scan { root: Ok((1, self.root)), files, partial, confirmation, fingerprint: 0 }
    }
}

fn away() -> Scan {
    let (files, partial) = (BTreeMap::new(), Vec::new());
    Scan { root: Err("no such folder".to_owned()), files, partial, confirmation: None, fingerprint: 0 }
}

fn pool(name: &str, cidr: &str) -> String {
    format!("---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n")
}

fn pools(count: usize) -> String {
    (0..count).map(|i| pool(&format!("p{i}"), "x")).collect()
}

fn applied(put: usize, deleted: usize) -> Outcome {
    Outcome { applied: true, put, deleted, ..Outcome::default() }
}

fn unchanged() -> Outcome {
    Outcome::default()
}

#[test]
fn a_reload_changes_only_what_changed() {
    let mut bench = Bench::new();
    let mut tree = Tree::of(&[("a.yaml", &[pool("a", "1"), pool("b", "1")].concat()), ("c.yaml", &pool("c", "1"))]);
    assert_eq!(bench.settle(&tree), applied(3, 0));
    assert_eq!(bench.names(), ["a@1", "b@1", "c@1"]);
    assert_eq!(bench.settle(&tree), unchanged());
    tree.files.insert("a.yaml", [pool("a", "1"), pool("b", "2"), pool("d", "1")].concat());
    tree.files.remove("c.yaml");
    assert_eq!(bench.settle(&tree), applied(2, 1));
    assert_eq!(bench.names(), ["a@1", "b@2", "d@2"]);
    let changes = bench.folder.changes_after(1).unwrap();
    let texts: Vec<_> = changes
        .iter()
        .flat_map(|(version, changes)| changes.iter().map(move |change| (version, change.event())))
        .map(|(version, event)| match event {
            Event::Put(object) => format!("{version}: put {}@{}", object.id, object.revision),
            Event::Delete { id, last } => format!("{version}: delete {id}, was {}", last.unwrap().revision),
            Event::Malformed(_) => unreachable!("files have none"),
        })
        .collect();
    assert_eq!(texts, ["2: put b@2", "2: put d@2", "3: delete c, was 1"]);
    assert!(bench.folder.changes_after(3).unwrap().is_empty());
    assert!(bench.folder.changes_after(4).is_none());
    assert!(bench.folder.changes_after(0).is_none());
}

#[test]
fn an_empty_folder_is_loaded_at_first_only_on_demand() {
    let mut bench = Bench::new();
    let comment = Tree::of(&[("a.yaml", "# nothing on purpose\n")]);
    assert_eq!(bench.settle(&Tree::default()), unchanged());
    assert_eq!(bench.folder.version(), 0);
    assert!(bench.folder.status().held.unwrap().contains("not mounted"));
    assert_eq!(bench.settle(&comment), applied(0, 0));
    let status = bench.folder.status();
    assert_eq!((status.version, status.held), (1, None));
    let mut bench = Bench::with(Folder::new(QUIET, true));
    assert_eq!(bench.settle(&Tree::default()), applied(0, 0));
    assert_eq!(bench.folder.status().held, None);
}

#[test]
fn a_first_load_waits_until_every_file_is_good() {
    let good = Tree::of(&[("a.yaml", &pool("a", "1")), ("sub/b.yaml", &pool("b", "1"))]);
    let half = pool("b", "1") + "spec: {\n";
    let with = |text: &str| Tree::of(&[("a.yaml", &pool("a", "1")), ("sub/b.yaml", text)]);
    let denied = |change: &dyn Fn(&mut Tree)| {
        let mut tree = Tree::of(&[("a.yaml", &pool("a", "1"))]);
        change(&mut tree);
        tree
    };
    for (bad, named) in [
        (with(&half), "sub/b.yaml:6: "),
        (with("apiVersion: v1\n"), "sub/b.yaml:1: "),
        (with(""), "sub/b.yaml: it has no bytes"),
        (denied(&|tree| tree.unreadable.push("sub/b.yaml")), "sub/b.yaml: denied"),
        (denied(&|tree| tree.partial.push("sub")), "sub: this folder cannot be read whole"),
    ] {
        let mut bench = Bench::new();
        for _ in 0..2 {
            assert_eq!(bench.settle(&bad), unchanged());
            let status = bench.folder.status();
            assert_eq!((status.version, status.objects, status.error_count), (0, 0, 1), "{named}");
            let held = status.held.unwrap();
            assert!(held.contains(named), "{named}: {held}");
        }
        assert_eq!(bench.settle(&good), applied(2, 0), "{named}");
        assert_eq!((bench.folder.status().held, bench.folder.status().errors), (None, vec![]));
        let mut bench = Bench::with(Folder::new(QUIET, true));
        assert_eq!(bench.settle(&bad), applied(1, 0), "{named}");
        assert_eq!(bench.names(), ["a@1"]);
    }
}

#[test]
fn a_resource_in_two_files_does_not_keep_a_first_load_waiting() {
    let mut bench = Bench::new();
    let both = Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("a", "2"))]);
    assert_eq!(bench.settle(&both), applied(1, 0));
    assert_eq!(bench.folder.status().error_count, 1);
}

#[test]
fn moving_resources_between_files_changes_nothing() {
    let mut bench = Bench::new();
    bench.settle(&Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]));
    let moved = Tree::of(&[("z/all.yml", &[pool("b", "1"), pool("a", "1")].concat())]);
    assert_eq!(bench.settle(&moved), unchanged());
}

#[test]
fn a_bad_file_keeps_its_last_good_resources() {
    let mut bench = Bench::new();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]);
    bench.settle(&tree);
    for (round, bad) in ["a: [", "apiVersion: v1\n", ""].into_iter().enumerate() {
        tree.files.insert("a.yaml", bad.to_owned());
        tree.files.insert("b.yaml", pool("b", &format!("round {round}")));
        assert_eq!(bench.settle(&tree), applied(1, 0), "{bad:?}");
        assert_eq!(bench.names().len(), 2);
        let status = bench.folder.status();
        assert_eq!(status.errors[0].file, "a.yaml");
        // The same bad file again is still named, though nothing is parsed.
        assert_eq!(bench.settle(&tree), unchanged());
        assert_eq!(bench.folder.status().errors, status.errors);
    }
    tree.files.remove("a.yaml");
    tree.unreadable.push("a.yaml");
    assert_eq!(bench.settle(&tree), unchanged());
    assert!(bench.folder.status().errors[0].reason.contains("denied"));
    tree.unreadable.clear();
    assert_eq!(bench.settle(&tree), applied(0, 1));
    assert_eq!(bench.folder.status().errors, []);
}

#[test]
fn a_comment_empties_a_file_and_a_bad_file_without_history_is_named() {
    let mut bench = Bench::new();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1"))]);
    assert_eq!(bench.settle(&tree), applied(1, 0));
    tree.files.insert("new.yaml", "{".to_owned());
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.folder.status().errors.len(), 1);
    tree.files.insert("a.yaml", "# nothing here\n".to_owned());
    assert_eq!(bench.settle(&tree), applied(0, 1));
}

#[test]
fn a_folder_that_cannot_be_read_keeps_its_files() {
    let mut bench = Bench::new();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("sub/b.yaml", &pool("b", "1"))]);
    bench.settle(&tree);
    tree.files.remove("sub/b.yaml");
    tree.partial.push("sub");
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.folder.status().errors[0].file, "sub");
    tree.partial.clear();
    assert_eq!(bench.settle(&tree), applied(0, 1));
}

#[test]
fn the_first_file_has_a_resource_that_two_files_have() {
    let mut bench = Bench::new();
    let mut tree = Tree::of(&[("b.yaml", &pool("x", "b"))]);
    bench.settle(&tree);
    tree.files.insert("c.yaml", pool("x", "c"));
    assert_eq!(bench.settle(&tree), unchanged());
    let error = &bench.folder.status().errors[0];
    assert_eq!((error.file.as_str(), error.line), ("c.yaml", Some(2)));
    assert!(error.reason.contains("b.yaml") && error.reason.contains("IPPool"), "{error:?}");
    tree.files.insert("a.yaml", pool("x", "a"));
    assert_eq!(bench.settle(&tree), applied(1, 0));
    assert_eq!(bench.folder.status().errors.len(), 2);
    tree.files.remove("a.yaml");
    tree.files.remove("b.yaml");
    assert_eq!(bench.settle(&tree), applied(1, 0));
    assert_eq!(bench.folder.status().errors, []);
    tree.files.insert("c.yaml", [pool("x", "c"), pool("x", "d")].concat());
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.folder.status().errors.len(), 1);
}

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

#[test]
fn a_reload_that_deletes_too_much_is_held_until_confirmed() {
    let mut tree = Tree::of(&[("a.yaml", &pools(41))]);
    let mut bench = Bench::loaded(&tree);
    // 20 is not over 20; 21 of 41 is more than half and over 20. What is new is held as well.
    tree.files.insert("a.yaml", pools(20));
    tree.files.insert("b.yaml", pool("new", "1"));
    assert!(bench.look(&tree).again.is_some());
    assert_eq!(bench.folder.status().held, None, "it may be a file that is being written");
    assert_eq!(bench.settle(&tree), unchanged());
    let reason = bench.folder.status().held.unwrap();
    assert!(reason.contains("21 of 41") && reason.contains(CONFIRM_FILE), "{reason}");
    assert_eq!(bench.names().len(), 41);
    // Neither time nor touching confirms, nor another code.
    for given in [None, Some("yes".to_owned())] {
        tree.confirmation = given;
        tree.touched += 1;
        bench.pass(OLD);
        assert_eq!(bench.settle(&tree), unchanged());
    }
    let code = bench.code();
    // The code of one deletion does not confirm another.
    tree.confirmation = Some(code);
    tree.files.insert("a.yaml", pools(19));
    assert_eq!(bench.settle(&tree), unchanged());
    bench.pass(OLD);
    assert_eq!(bench.settle(&tree), unchanged());
    tree.confirmation = Some(bench.code());
    assert_eq!(bench.settle(&tree), Outcome { confirmed: true, ..applied(1, 22) });
    let status = bench.folder.status();
    assert_eq!((status.held, status.errors[0].file.as_str()), (None, CONFIRM_FILE), "it has to be removed");
    // Twenty are left: all may go without asking.
    tree.confirmation = None;
    tree.files.insert("a.yaml", "# none\n".to_owned());
    tree.files.insert("b.yaml", "# none\n".to_owned());
    assert_eq!(bench.settle(&tree), applied(0, 20));
    assert_eq!(bench.folder.status().errors, []);
}

#[test]
fn a_confirmation_counts_when_the_deletion_has_been_the_same_for_long_enough() {
    let mut bench = Bench::loaded(&Tree::of(&[("a.yaml", &pools(50))]));
    let mut fewer = Tree::of(&[("a.yaml", &pools(3))]);
    let began = bench.now.get();
    bench.look(&fewer);
    bench.pass(SETTLE);
    assert_eq!(bench.look(&fewer), unchanged());
    fewer.confirmation = Some(bench.code());
    assert_eq!(bench.look(&fewer), Outcome { again: Some(began + HOLD_TIME), ..unchanged() });
    bench.now.set(began + HOLD_TIME - MOMENT);
    assert!(!bench.look(&fewer).applied);
    bench.pass(MOMENT);
    assert_eq!(bench.look(&fewer), Outcome { confirmed: true, ..applied(0, 47) });
}

#[test]
fn a_return_of_the_content_ends_the_hold_and_an_old_confirmation_is_none() {
    let tree = Tree::of(&[("a.yaml", &pools(50))]);
    let mut bench = Bench::loaded(&tree);
    let mut fewer = Tree::of(&[("a.yaml", &pools(3))]);
    bench.settle(&fewer);
    let code = bench.code();
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.folder.status().held, None);
    // The code is left in the folder, and the same accident happens later.
    let left = Tree { confirmation: Some(code.clone()), ..tree };
    assert_eq!(bench.settle(&left), unchanged());
    assert_eq!(bench.folder.status().errors[0].file, CONFIRM_FILE);
    fewer.confirmation = Some(code);
    bench.settle(&fewer);
    bench.pass(OLD);
    assert_eq!(bench.settle(&fewer), unchanged());
    assert!(bench.folder.status().held.unwrap().contains("remove the file first"));
    // Removed and written again, it counts.
    let again = fewer.confirmation.take();
    bench.settle(&fewer);
    fewer.confirmation = again;
    assert!(bench.settle(&fewer).confirmed);
}

#[test]
fn a_replica_that_sees_deletion_and_confirmation_together_goes_along() {
    let (all, mut fewer) = (Tree::of(&[("a.yaml", &pools(50))]), Tree::of(&[("a.yaml", &pools(3))]));
    let (mut one, mut other) = (Bench::loaded(&all), Bench::loaded(&all));
    one.settle(&fewer);
    fewer.confirmation = Some(one.code());
    assert_eq!(other.settle(&fewer), Outcome { confirmed: true, ..applied(0, 47) });
}

#[test]
fn renaming_most_objects_is_held_as_a_whole() {
    let mut bench = Bench::loaded(&Tree::of(&[("a.yaml", &pools(30))]));
    let renamed: String = (0..30).map(|i| pool(&format!("q{i}"), "x")).collect();
    let mut tree = Tree::of(&[("a.yaml", &renamed)]);
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.names()[0], "p0@1");
    tree.confirmation = Some(bench.code());
    assert_eq!(bench.settle(&tree), Outcome { confirmed: true, ..applied(30, 30) });
}

#[test]
fn half_may_go_without_asking() {
    let mut bench = Bench::new();
    bench.settle(&Tree::of(&[("a.yaml", &pools(60))]));
    assert_eq!(bench.settle(&Tree::of(&[("a.yaml", &pools(30))])), applied(0, 30));
}

#[test]
fn a_folder_that_is_away_keeps_everything() {
    let mut bench = Bench::new();
    let tree = Tree::of(&[("a.yaml", &pools(3))]);
    assert_eq!(bench.folder.scanned(&away(), bench.now.get()), unchanged());
    assert_eq!((bench.folder.version(), bench.folder.status().held.is_some()), (0, true));
    bench.settle(&tree);
    for _ in 0..3 {
        bench.pass(OLD);
        assert_eq!(bench.folder.scanned(&away(), bench.now.get()), unchanged());
        assert!(bench.folder.status().held.unwrap().contains("away"));
        assert_eq!(bench.names().len(), 3);
    }
    assert_eq!(bench.settle(&tree), unchanged());
    assert_eq!(bench.folder.status().held, None);
}

#[test]
fn an_unmounted_folder_is_not_an_emptied_one() {
    let tree = Tree::of(&[("a.yaml", &pools(3))]);
    let mut bench = Bench::loaded(&tree);
    let mut unmounted = Tree { root: 9, ..Tree::default() };
    for _ in 0..3 {
        assert_eq!(bench.settle(&unmounted), unchanged());
        assert!(bench.folder.status().held.unwrap().contains("not mounted"));
        bench.pass(OLD);
    }
    // A file that is broken when the volume is back still has its last good content.
    let back = Tree { root: 9, ..Tree::of(&[("a.yaml", "{")]) };
    assert_eq!(bench.settle(&back), unchanged());
    assert_eq!((bench.names().len(), bench.folder.status().held), (3, None));
    let emptied = Tree { touched: 5, ..unmounted.clone() };
    assert_eq!(bench.settle(&emptied), applied(0, 3), "the same folder without files");

    let mut bench = Bench::loaded(&tree);
    bench.settle(&unmounted);
    unmounted.confirmation = Some(bench.code());
    assert_eq!(bench.settle(&unmounted), Outcome { confirmed: true, ..applied(0, 3) });
    assert_eq!(bench.folder.status().held, None);
}

#[test]
fn unknown_kinds_of_calico_are_counted() {
    let mut bench = Bench::new();
    let text = "{apiVersion: projectcalico.org/v3, kind: IPPol, metadata: {name: a}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n";
    bench.settle(&Tree::of(&[("a.yaml", text)]));
    let status = bench.folder.status();
    assert_eq!((status.objects, status.unknown, status.files), (2, 1, 1));
}

#[test]
fn the_log_is_bounded() {
    let mut bench = Bench::new();
    for i in 0..2 * MAX_LOG_RELOADS {
        bench.settle(&Tree::of(&[("a.yaml", &pool("a", &i.to_string()))]));
    }
    assert_eq!(bench.folder.log.len(), MAX_LOG_RELOADS);
    assert!(bench.folder.changes_after(1).is_none());
    let floor = bench.folder.log_floor;
    assert_eq!(bench.folder.changes_after(floor).unwrap().len(), MAX_LOG_RELOADS);
}

proptest! {
    /// Whatever happens to the files, a follower of the log holds what a list shows.
    #[test]
    fn following_the_log_leads_to_the_list(
        steps in proptest::collection::vec(
            (0_usize..3, prop_oneof![
                Just(None),
                proptest::collection::btree_map(0_u8..6, 0_u8..3, 0..5).prop_map(Some),
            ], any::<bool>()),
            1..30,
        )
    ) {
        const PATHS: [&str; 3] = ["a.yaml", "b.yaml", "sub/c.yaml"];
        let mut bench = Bench::with(Folder::new(QUIET, true));
        let mut tree = Tree::default();
        let mut follower: BTreeMap<String, (String, Vec<u8>)> = BTreeMap::new();
        bench.settle(&tree);
        let mut at = bench.folder.version();
        for (file, content, broken) in steps {
            tree.touched += 1;
            match content {
                None => { tree.files.remove(PATHS[file]); }
                Some(_) if broken => { tree.files.insert(PATHS[file], "{".to_owned()); }
                Some(content) => {
                    let text = content.iter().map(|(name, cidr)| pool(&format!("p{name}"), &cidr.to_string())).collect();
                    tree.files.insert(PATHS[file], text);
                }
            }
            let before = bench.folder.version();
            let outcome = bench.settle(&tree);
            prop_assert_eq!(outcome.applied, bench.folder.version() > before);
            for (version, changes) in bench.folder.changes_after(at).unwrap() {
                prop_assert!(version > at);
                at = version;
                for change in &*changes {
                    match change.event() {
                        Event::Put(object) => {
                            follower.insert(object.id.to_string(), (object.revision.to_string(), object.body.to_vec()));
                        }
                        Event::Delete { id, .. } => prop_assert!(follower.remove(&id.to_string()).is_some()),
                        Event::Malformed(_) => unreachable!("files have none"),
                    }
                }
            }
            let listed: BTreeMap<_, _> = to_objects(&bench.folder.objects(&kinds::IP_POOL).1)
                .into_iter()
                .map(|object| (object.id.to_string(), (object.revision.to_string(), object.body.to_vec())))
                .collect();
            prop_assert_eq!(&follower, &listed);
        }
    }
}
