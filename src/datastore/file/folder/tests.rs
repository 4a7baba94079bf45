//! Reloads as tables: what is in the files, what comes out.

mod followers;
mod holds;
mod versions;
mod writing;

use std::cell::Cell;
use std::path::PathBuf;

use sha2::Digest as _;

use super::super::parse::{Digest, parse};
use super::super::scan::{FileRead, Found, Stamp};
use super::*;
use crate::calico::catalog::catalog;
use crate::calico::kinds;
use crate::datastore::Event;

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
        Self::with(Folder::new(QUIET, false, catalog(None)))
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

    fn names(&mut self) -> Vec<String> {
        let objects = self.folder.objects(&kinds::IP_POOL.into()).1;
        objects.iter().map(|stored| format!("{}@{}", stored.resource.identity.id, stored.revision)).collect()
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
            let digest: Digest = sha2::Sha256::digest(text).into();
            let stamp = Stamp::made_of(&digest, self.touched);
            let read = if known.get(&path).is_some_and(|seen| seen.digest == digest) {
                FileRead::Unchanged
            } else {
                let parsed = parse(&path, text.as_bytes(), &catalog(None)).map(Arc::from);
                FileRead::Read { digest, empty: text.is_empty(), parsed }
            };
            let age = self.ages.get(name).copied().unwrap_or(OLD);
            files.insert(path, Found { stamp: Some((stamp, age)), seal: None, read });
        }
        let odd = |path: &&'static str, read| (Arc::from(Path::new(path)), Found { stamp: None, seal: None, read });
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
        .flat_map(|(version, changes)| {
            changes.iter().filter_map(move |change| Some((version, change.event(&kinds::IP_POOL.into())?)))
        })
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
    let mut bench = Bench::with(Folder::new(QUIET, true, catalog(None)));
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
        let mut bench = Bench::with(Folder::new(QUIET, true, catalog(None)));
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
fn moving_a_resource_out_of_the_selected_part_deletes_it_there_alone() {
    let mut bench = Bench::loaded(&Tree::of(&[("in/a.yaml", &[pool("a", "1"), pool("b", "1")].concat())]));
    let whole = Selection::from(kinds::IP_POOL);
    let part = whole.clone().below("in");
    assert_eq!(bench.folder.objects(&part).1.len(), 2);
    bench.settle(&Tree::of(&[("in/a.yaml", &pool("a", "1")), ("inside.yaml", &pool("b", "1"))]));
    bench.settle(&Tree::of(&[("in/c.yaml", &pool("a", "1")), ("in/sub/b.yaml", &pool("b", "1"))]));
    let told = |selection: &Selection| -> Vec<String> {
        let changes = bench.folder.changes_after(1).unwrap();
        let events =
            changes.iter().flat_map(|(_, changes)| changes.iter().filter_map(|change| change.event(selection)));
        let words = events.map(|event| match event {
            Event::Put(object) => format!("put {}@{}", object.id, object.revision),
            Event::Delete { id, .. } => format!("delete {id}"),
            Event::Malformed(_) => unreachable!("files have none"),
        });
        words.collect()
    };
    assert_eq!((told(&whole), told(&part)), (vec![], vec!["delete b".to_owned(), "put b@1".to_owned()]));
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
fn unknown_kinds_of_calico_are_counted() {
    let mut bench = Bench::new();
    let text = "{apiVersion: projectcalico.org/v3, kind: IPPol, metadata: {name: a}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n";
    bench.settle(&Tree::of(&[("a.yaml", text)]));
    let status = bench.folder.status();
    assert_eq!((status.objects, status.unknown, status.files), (2, 1, 1));
}
