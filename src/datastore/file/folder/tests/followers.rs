//! Watches that follow the log, and the changes that they are given.

use proptest::prelude::*;

use super::super::log::MAX_LOG_RELOADS;
use super::*;

#[test]
fn the_log_is_bounded() {
    let mut bench = Bench::new();
    for i in 0..2 * MAX_LOG_RELOADS {
        bench.settle(&Tree::of(&[("a.yaml", &pool("a", &i.to_string()))]));
    }
    assert!(bench.folder.changes_after(1).is_none());
    let floor = (1..=bench.folder.version()).find(|version| bench.folder.changes_after(*version).is_some()).unwrap();
    assert_eq!(bench.folder.changes_after(floor).unwrap().len(), MAX_LOG_RELOADS);
}

/// Revision and body.
type Content = (String, Vec<u8>);

proptest! {
    /// A follower of the log holds the content that a list shows, in any course of the files: of the whole folder, and of a part
    /// of it, in and out of which objects move.
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
        let mut bench = Bench::with(Folder::new(QUIET, true, catalog(None)));
        let mut tree = Tree::default();
        let whole = Selection::from(kinds::IP_POOL);
        let part = whole.clone().below("sub");
        let mut followers = [whole.clone(), part].map(|selection| (selection, BTreeMap::<String, Content>::new()));
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
                for (selection, follower) in &mut followers {
                    for event in changes.iter().filter_map(|change| change.event(selection)) {
                        match event {
                            Event::Put(object) => {
                                let content = (object.revision.to_string(), object.body.to_vec());
                                follower.insert(object.id.to_string(), content);
                            }
                            Event::Delete { id, .. } => {
                                let was_there = follower.remove(&id.to_string()).is_some();
                                prop_assert!(was_there || *selection != whole);
                            }
                            Event::Malformed(_) => unreachable!("files have none"),
                        }
                    }
                }
            }
            for (selection, follower) in &followers {
                let listed: BTreeMap<_, _> = to_objects(&bench.folder.objects(selection).1)
                    .into_iter()
                    .map(|object| (object.id.to_string(), (object.revision.to_string(), object.body.to_vec())))
                    .collect();
                prop_assert_eq!(follower, &listed, "{}", selection);
            }
        }
    }
}
