//! Reloads as tables: what is in the files, what comes out.

use std::path::PathBuf;

use proptest::prelude::*;

use super::super::parse::parse;
use super::*;
use crate::syncer::kinds;

/// A tree in memory.
#[derive(Clone, Default)]
struct Tree {
    files: BTreeMap<&'static str, String>,
    unreadable: Vec<&'static str>,
    partial: Vec<&'static str>,
    root: u64,
    touched: u64,
}

impl Tree {
    fn of(files: &[(&'static str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect(), ..Self::default() }
    }

    fn scan(&self, folder: &Folder) -> Scan {
        let known = folder.known();
        let mut files = BTreeMap::new();
        for (path, text) in &self.files {
            let path: Arc<Path> = Arc::from(Path::new(path));
            let digest: Digest = Sha256::digest(text).into();
            let read = if known.get(&path) == Some(&digest) {
                FileRead::Unchanged
            } else {
                let parsed = parse(&path, text.as_bytes()).map(Arc::from);
                FileRead::Read { digest, empty: text.is_empty(), parsed }
            };
            files.insert(path, read);
        }
        for path in &self.unreadable {
            files.insert(Arc::from(Path::new(path)), FileRead::Unreadable("denied".to_owned()));
        }
        let partial = self.partial.iter().map(|path| (PathBuf::from(path), "denied".to_owned())).collect();
        Scan { root: Ok((1, self.root)), files, partial, fingerprint: self.touched }
    }
}

fn away() -> Scan {
    Scan { root: Err("no such folder".to_owned()), files: BTreeMap::new(), partial: Vec::new(), fingerprint: 0 }
}

fn pool(name: &str, cidr: &str) -> String {
    format!("---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n")
}

fn pools(count: usize) -> String {
    (0..count).map(|i| pool(&format!("p{i}"), "x")).collect()
}

fn change(folder: &mut Folder, tree: &Tree) -> Outcome {
    let scan = tree.scan(folder);
    folder.scanned(scan, Cause::Change)
}

fn names(folder: &Folder) -> Vec<String> {
    folder.objects(&kinds::IP_POOL).1.iter().map(|(resource, at)| format!("{}@{at}", resource.identity.id)).collect()
}

fn applied(put: usize, deleted: usize) -> Outcome {
    Outcome::Applied { put, deleted }
}

#[test]
fn a_reload_changes_only_what_changed() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("a.yaml", &[pool("a", "1"), pool("b", "1")].concat()), ("c.yaml", &pool("c", "1"))]);
    assert_eq!(change(&mut folder, &tree), applied(3, 0));
    assert_eq!(names(&folder), ["a@1", "b@1", "c@1"]);
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    tree.files.insert("a.yaml", [pool("a", "1"), pool("b", "2"), pool("d", "1")].concat());
    tree.files.remove("c.yaml");
    assert_eq!(change(&mut folder, &tree), applied(2, 1));
    assert_eq!(names(&folder), ["a@1", "b@2", "d@2"]);
    let changes = folder.changes_after(1).unwrap();
    let [(2, changes)] = &*changes else { panic!("{changes:?}") };
    let texts: Vec<_> = changes
        .iter()
        .map(|change| match change.event() {
            Event::Put(object) => format!("put {}@{}", object.id, object.revision),
            Event::Delete { id, last } => format!("delete {id}, was {}", last.unwrap().revision),
            Event::Malformed(_) => unreachable!("files have none"),
        })
        .collect();
    assert_eq!(texts, ["put b@2", "put d@2", "delete c, was 1"]);
    assert!(folder.changes_after(2).unwrap().is_empty());
    assert!(folder.changes_after(3).is_none());
    assert!(folder.changes_after(0).is_none());
}

#[test]
fn an_empty_folder_is_loaded_too() {
    let mut folder = Folder::default();
    assert_eq!(change(&mut folder, &Tree::default()), applied(0, 0));
    assert_eq!(folder.version(), 1);
    assert!(folder.status().held.is_none());
}

#[test]
fn moving_resources_between_files_changes_nothing() {
    let mut folder = Folder::default();
    change(&mut folder, &Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]));
    let moved = Tree::of(&[("z/all.yml", &[pool("b", "1"), pool("a", "1")].concat())]);
    assert_eq!(change(&mut folder, &moved), Outcome::Unchanged);
}

#[test]
fn a_bad_file_keeps_its_last_good_resources() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("b.yaml", &pool("b", "1"))]);
    change(&mut folder, &tree);
    for (round, bad) in ["a: [", "apiVersion: v1\n", ""].into_iter().enumerate() {
        tree.files.insert("a.yaml", bad.to_owned());
        tree.files.insert("b.yaml", pool("b", &format!("round {round}")));
        assert_eq!(change(&mut folder, &tree), applied(1, 0), "{bad:?}");
        assert_eq!(names(&folder).len(), 2);
        let status = folder.status();
        assert_eq!(status.errors[0].file, "a.yaml");
        // The same bad file again is still named, though nothing is parsed.
        assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
        assert_eq!(folder.status().errors, status.errors);
    }
    tree.files.remove("a.yaml");
    tree.unreadable.push("a.yaml");
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    assert!(folder.status().errors[0].reason.contains("denied"));
    tree.unreadable.clear();
    assert_eq!(change(&mut folder, &tree), applied(0, 1));
    assert_eq!(folder.status().errors, []);
}

#[test]
fn a_comment_empties_a_file_and_a_bad_file_without_history_is_named() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("new.yaml", "{")]);
    assert_eq!(change(&mut folder, &tree), applied(1, 0));
    assert_eq!(folder.status().errors.len(), 1);
    tree.files.insert("a.yaml", "# nothing here\n".to_owned());
    assert_eq!(change(&mut folder, &tree), applied(0, 1));
}

#[test]
fn a_folder_that_cannot_be_read_keeps_its_files() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("a.yaml", &pool("a", "1")), ("sub/b.yaml", &pool("b", "1"))]);
    change(&mut folder, &tree);
    tree.files.remove("sub/b.yaml");
    tree.partial.push("sub");
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    assert_eq!(folder.status().errors[0].file, "sub");
    tree.partial.clear();
    assert_eq!(change(&mut folder, &tree), applied(0, 1));
}

#[test]
fn the_first_file_has_a_resource_that_two_files_have() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("b.yaml", &pool("x", "b"))]);
    change(&mut folder, &tree);
    tree.files.insert("c.yaml", pool("x", "c"));
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    let error = &folder.status().errors[0];
    assert_eq!((error.file.as_str(), error.line), ("c.yaml", Some(2)));
    assert!(error.reason.contains("b.yaml") && error.reason.contains("IPPool"), "{error:?}");
    tree.files.insert("a.yaml", pool("x", "a"));
    assert_eq!(change(&mut folder, &tree), applied(1, 0));
    assert_eq!(folder.status().errors.len(), 2);
    tree.files.remove("a.yaml");
    tree.files.remove("b.yaml");
    assert_eq!(change(&mut folder, &tree), applied(1, 0));
    assert_eq!(folder.status().errors, []);
    tree.files.insert("c.yaml", [pool("x", "c"), pool("x", "d")].concat());
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    assert_eq!(folder.status().errors.len(), 1);
}

#[test]
fn a_reload_that_deletes_too_much_is_held_until_confirmed() {
    let mut folder = Folder::default();
    let mut tree = Tree::of(&[("a.yaml", &pools(41))]);
    change(&mut folder, &tree);
    // 20 is not over 20; 21 of 41 is more than half and over 20.
    tree.files.insert("a.yaml", pools(20));
    tree.touched = 1;
    let Outcome::Held(reason) = change(&mut folder, &tree) else { panic!("not held") };
    assert!(reason.contains("21 of 41"), "{reason}");
    assert_eq!(names(&folder).len(), 41);
    assert_eq!(folder.status().held, Some(reason));
    assert!(matches!(change(&mut folder, &tree), Outcome::Held(_)), "the same look again confirms nothing");
    // Another content is another reload.
    tree.files.insert("a.yaml", pools(19));
    tree.touched = 2;
    assert!(matches!(change(&mut folder, &tree), Outcome::Held(_)));
    tree.touched = 3;
    assert_eq!(change(&mut folder, &tree), applied(0, 22));
    assert_eq!(folder.status().held, None);
    // Nineteen are left: all may go at once.
    tree.files.insert("a.yaml", "# none\n".to_owned());
    assert_eq!(change(&mut folder, &tree), applied(0, 19));
}

#[test]
fn the_operator_confirms_and_a_return_of_the_content_cancels() {
    let mut folder = Folder::default();
    let tree = Tree::of(&[("a.yaml", &pools(50))]);
    change(&mut folder, &tree);
    let fewer = Tree::of(&[("a.yaml", &pools(3))]);
    assert!(matches!(change(&mut folder, &fewer), Outcome::Held(_)));
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    assert_eq!(folder.status().held, None);
    let scan = fewer.scan(&folder);
    assert!(matches!(folder.scanned(scan.clone(), Cause::Operator), Outcome::Held(_)), "the first one, too");
    assert_eq!(folder.scanned(scan, Cause::Operator), applied(0, 47));
}

#[test]
fn half_may_go_without_asking() {
    let mut folder = Folder::default();
    change(&mut folder, &Tree::of(&[("a.yaml", &pools(60))]));
    assert_eq!(change(&mut folder, &Tree::of(&[("a.yaml", &pools(30))])), applied(0, 30));
}

#[test]
fn a_folder_that_is_away_keeps_everything() {
    let mut folder = Folder::default();
    let tree = Tree::of(&[("a.yaml", &pools(3))]);
    assert!(matches!(folder.scanned(away(), Cause::Change), Outcome::Held(_)));
    assert_eq!(folder.version(), 0);
    change(&mut folder, &tree);
    for _ in 0..3 {
        assert!(matches!(folder.scanned(away(), Cause::Operator), Outcome::Held(_)));
        assert_eq!(names(&folder).len(), 3);
    }
    assert_eq!(change(&mut folder, &tree), Outcome::Unchanged);
    assert_eq!(folder.status().held, None);
}

#[test]
fn an_unmounted_folder_is_not_an_emptied_one() {
    let mut folder = Folder::default();
    change(&mut folder, &Tree::of(&[("a.yaml", &pools(3))]));
    let unmounted = Tree { root: 9, ..Tree::default() };
    assert!(matches!(change(&mut folder, &unmounted), Outcome::Held(_)));
    assert!(matches!(change(&mut folder, &unmounted), Outcome::Held(_)));
    let emptied = Tree { touched: 5, ..Tree::default() };
    assert_eq!(change(&mut folder, &emptied), applied(0, 3), "the same folder without files");
}

#[test]
fn unknown_kinds_of_calico_are_counted() {
    let mut folder = Folder::default();
    let text = "{apiVersion: projectcalico.org/v3, kind: IPPol, metadata: {name: a}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}\n";
    change(&mut folder, &Tree::of(&[("a.yaml", text)]));
    let status = folder.status();
    assert_eq!((status.objects, status.unknown, status.files), (2, 1, 1));
}

#[test]
fn the_log_is_bounded() {
    let mut folder = Folder::default();
    for i in 0..2 * MAX_LOG_RELOADS {
        change(&mut folder, &Tree::of(&[("a.yaml", &pool("a", &i.to_string()))]));
    }
    assert_eq!(folder.log.len(), MAX_LOG_RELOADS);
    assert!(folder.changes_after(1).is_none());
    let floor = folder.log_floor;
    assert_eq!(folder.changes_after(floor).unwrap().len(), MAX_LOG_RELOADS);
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
        let mut folder = Folder::default();
        let mut tree = Tree::default();
        let mut follower: BTreeMap<String, (String, Vec<u8>)> = BTreeMap::new();
        change(&mut folder, &tree);
        let mut at = folder.version();
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
            let before = folder.version();
            let outcome = change(&mut folder, &tree);
            prop_assert_eq!(matches!(outcome, Outcome::Applied { .. }), folder.version() > before);
            for (version, changes) in folder.changes_after(at).unwrap() {
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
            let listed: BTreeMap<_, _> = to_objects(&folder.objects(&kinds::IP_POOL).1)
                .into_iter()
                .map(|object| (object.id.to_string(), (object.revision.to_string(), object.body.to_vec())))
                .collect();
            prop_assert_eq!(&follower, &listed);
        }
    }
}
