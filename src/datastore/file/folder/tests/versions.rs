//! Kinds that are asked for by pattern, versions of objects, and the places of objects.

use super::*;
use crate::datastore::pattern::Pattern;
use crate::model::object::Kind;

fn object(version: &str, name: &str, namespace: &str) -> String {
    format!("---\napiVersion: mesh.io/{version}\nkind: Route\nmetadata: {{name: {name}, namespace: {namespace}}}\n")
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A kind as its patterns make it known.
fn route(bench: &Bench, version: &str) -> Kind {
    bench.folder.kinds(&patterns(&[&format!("mesh.io/{version}/Route")])).kinds.remove(0)
}

impl Bench {
    fn kinds(&self, texts: &[&str]) -> String {
        let kinds = self.folder.kinds(&patterns(texts)).kinds;
        let scope = |kind: &Kind| if kind.namespaced { "" } else { " cluster" };
        kinds.iter().map(|kind| format!("{kind}{}", scope(kind))).collect::<Vec<_>>().join(", ")
    }

    /// The changes after a version as somebody who follows the kind hears them.
    fn told(&self, after: u64, kind: &Kind) -> Vec<String> {
        let changes = self.folder.changes_after(after).unwrap();
        let events = changes.iter().flat_map(|(_, changes)| &**changes);
        let words = |event| match event {
            Event::Put(object) => format!("put {} {}", object.id, object.place.unwrap_or_default()),
            Event::Delete { id, last } => format!("delete {id} {}", last.is_some()),
            Event::Malformed(_) => unreachable!("files have none"),
        };
        events.filter_map(|change| change.event(&kind.clone().into())).map(words).collect()
    }

    fn places(&mut self, kind: &Kind) -> Vec<String> {
        let objects = to_objects(&self.folder.objects(&kind.clone().into()).1);
        objects.into_iter().map(|object| object.place.unwrap_or_default().to_string()).collect()
    }
}

#[test]
fn the_kinds_are_those_of_the_objects() {
    let mut tree = Tree::of(&[("a.yaml", &(object("v1", "a", "ns") + &pool("p", "10.0.0.0/8")))]);
    let mut bench = Bench::loaded(&tree);
    let asked = ["mesh.io/*", "projectcalico.org/v3/IPPool", "mesh.io/v1/Late", "v1/Node"];
    assert_eq!(
        bench.kinds(&asked),
        "v1/Node cluster, mesh.io/v1/Late, mesh.io/*/Route, projectcalico.org/v3/IPPool cluster"
    );
    for (text, kinds) in [
        (object("v1", "a", "\"\""), "mesh.io/*/Route cluster"),
        (object("v1", "a", "\"\"") + &object("v1", "b", "ns"), "mesh.io/*/Route"),
        (object("v1", "a", "ns") + &object("v1beta1", "b", "ns"), "mesh.io/*/Route"),
        ("# none\n".to_owned(), ""),
    ] {
        tree.files.insert("a.yaml", text);
        bench.settle(&tree);
        assert_eq!(bench.kinds(&["mesh.io/*"]), kinds);
    }
}

#[test]
fn an_object_whose_version_changes_goes_from_one_kind_to_the_other() {
    let mut tree = Tree::of(&[("a.yaml", &(object("v1beta1", "a", "ns") + &object("v1", "b", "ns")))]);
    let mut bench = Bench::loaded(&tree);
    let (old, new) = (route(&bench, "v1beta1"), route(&bench, "v1"));
    let at = bench.folder.version();
    tree.files.insert("a.yaml", object("v1", "a", "ns") + &object("v1", "b", "ns"));
    bench.settle(&tree);
    assert_eq!(bench.told(at, &old), ["delete ns/a false"]);
    assert_eq!(bench.told(at, &new), ["put ns/a a.yaml:2"]);
    // Those who follow all versions hear of one change.
    let any = bench.folder.kinds(&patterns(&["mesh.io/*"])).kinds.remove(0);
    assert_eq!(bench.told(at, &any), ["put ns/a a.yaml:2"]);
    assert_eq!(bench.places(&any), ["a.yaml:2", "a.yaml:6"]);
}

#[test]
fn objects_in_a_version_that_nobody_asks_for_are_named() {
    let mut tree = Tree::of(&[
        ("a.yaml", &(object("v1", "a", "ns") + &object("v1beta1", "b", "ns"))),
        ("b.yaml", &object("v1beta1", "c", "ns")),
    ]);
    let mut bench = Bench::loaded(&tree);
    assert_eq!(bench.folder.status().errors, [], "nobody asks yet");
    bench.folder.ask(&patterns(&["mesh.io/v1/Route", "other.io/*"]));
    let status = bench.folder.status();
    let said: Vec<String> = status.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "a.yaml:6: 2 objects of mesh.io Route are in version v1beta1, which no syncer asks for: write v1 into apiVersion, or \
          add the version to Kinds"
        ]
    );
    assert_eq!(status.error_count, 1);
    tree.files.insert("b.yaml", object("v1", "c", "ns"));
    bench.settle(&tree);
    assert!(bench.folder.status().errors[0].reason.starts_with("1 object of mesh.io Route is in"));
    bench.folder.ask(&patterns(&["mesh.io/*"]));
    assert_eq!(bench.folder.status().errors, []);
}

#[test]
fn an_object_has_its_file_and_line_and_moving_it_is_no_change() {
    let mut tree = Tree::of(&[
        ("a.yaml", &object("v1", "a", "ns")),
        ("sub/b.json", "\n{\"apiVersion\":\"mesh.io/v1\",\"kind\":\"Route\",\"metadata\":{\"name\":\"b\"}}"),
    ]);
    let mut bench = Bench::loaded(&tree);
    let kind = route(&bench, "v1");
    assert_eq!(bench.places(&kind), ["sub/b.json:2", "a.yaml:2"]);
    let at = bench.folder.version();
    tree.files.insert("a.yaml", format!("# a comment\n\n{}", object("v1", "a", "ns")));
    assert!(!bench.settle(&tree).applied);
    assert_eq!(bench.places(&kind), ["sub/b.json:2", "a.yaml:4"], "people find it where it is now");
    tree.files.remove("a.yaml");
    tree.files.insert("c.yaml", object("v1", "a", "ns"));
    assert!(!bench.settle(&tree).applied);
    assert_eq!(bench.places(&kind), ["sub/b.json:2", "c.yaml:2"]);
    assert!(bench.told(at, &kind).is_empty());
}
