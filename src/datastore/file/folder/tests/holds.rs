//! Deletions that have to be confirmed, and folders that are away.

use super::super::hold::HOLD_TIME;
use super::*;
use crate::datastore::file::scan::CONFIRM_FILE;

#[test]
fn a_reload_that_deletes_too_much_is_held_until_confirmed() {
    let mut tree = Tree::of(&[("a.yaml", &pools(41))]);
    let mut bench = Bench::loaded(&tree);
    // 20 is not over 20; 21 of 41 is more than half and over 20. New objects are held as well.
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
fn without_the_guard_nothing_is_held() {
    let unguarded = || Bench::with(Folder::new(QUIET, false, catalog(None)).unguarded());
    let mut tree = Tree::of(&[("a.yaml", &pools(50))]);
    let mut bench = unguarded();
    assert!(bench.look(&tree).applied);
    tree.files.insert("a.yaml", pools(3));
    assert_eq!(bench.settle(&tree), applied(0, 47));
    // Another folder is at the path, and it is empty.
    tree.files.clear();
    tree.root += 1;
    assert_eq!(bench.settle(&tree), applied(0, 3));
    assert_eq!(bench.folder.status().held, None);
    // A folder that is away or cannot be read keeps its content all the same.
    let mut bench = unguarded();
    assert!(bench.look(&Tree::of(&[("a.yaml", &pools(50))])).applied);
    let broken = Tree::of(&[("a.yaml", "{")]);
    assert_eq!(bench.settle(&broken), unchanged());
    assert_eq!(bench.names().len(), 50);
}
