//! Selects among the objects of lists and watches, where the datastore cannot do that by itself.
//!
//! An object that does not belong to the selection is as if it were not there: a change of such an object is a deletion, for it
//! may have belonged to it before. Files are for the folder alone, which knows them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::inlet::{Event, ListPage, Malformed, WatchBatch};
use super::selection::Selection;
use crate::model::object::Object;
use crate::model::strict;

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Option<BTreeMap<String, Option<String>>>,
}

/// The part of a page that belongs to the selection. An object whose labels cannot be read is malformed.
pub(super) fn page(selection: &Selection, mut page: ListPage) -> ListPage {
    if selection.is_whole() {
        return page;
    }
    page.malformed.retain(|malformed| selection.may_have(&malformed.id));
    page.objects.retain(|object| match has(selection, object) {
        Ok(has) => has,
        Err(reason) => {
            page.malformed.push(Malformed { id: object.id.clone(), reason });
            false
        }
    });
    page
}

/// The part of a batch that concerns the selection.
pub(super) fn batch(selection: &Selection, mut batch: WatchBatch) -> WatchBatch {
    if selection.is_whole() {
        return batch;
    }
    batch.events.retain(|event| match event {
        Event::Put(Object { id, .. }) | Event::Delete { id, .. } | Event::Malformed(Malformed { id, .. }) => {
            selection.may_have(id)
        }
    });
    for event in &mut batch.events {
        let Event::Put(object) = event else { continue };
        let id = object.id.clone();
        match has(selection, object) {
            Ok(true) => {}
            Ok(false) => *event = Event::Delete { id, last: None },
            Err(reason) => *event = Event::Malformed(Malformed { id, reason }),
        }
    }
    batch
}

/// Whether an object belongs to the selection; fails if its labels cannot be read.
fn has(selection: &Selection, object: &Object) -> Result<bool, String> {
    if !selection.may_have(&object.id) {
        return Ok(false);
    }
    if selection.labels().is_empty() {
        return Ok(true);
    }
    let body = std::str::from_utf8(&object.body).map_err(|error| format!("its labels cannot be read: {error}"))?;
    let metadata = strict::field::<Option<Metadata>>(body, "metadata");
    let metadata = metadata.map_err(|error| format!("its labels cannot be read: {error}"))?;
    let labels = metadata.flatten().unwrap_or_default().labels.unwrap_or_default();
    let labels = labels.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect();
    Ok(selection.labels().select(&labels))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::calico::kinds::{NAMESPACE, POD};
    use crate::model::no_revision;
    use crate::model::object::{Dialect, ObjectId};

    fn id(text: &str) -> ObjectId {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        ObjectId { namespace: namespace.into(), name: name.into() }
    }

    /// An object of this name, with a label `app` of this value, or with this body.
    fn object(name: &str, app: &str) -> Object {
        let body = match app {
            "" => r#"{"metadata":{"name":"x","labels":null}}"#.to_owned(),
            odd if odd.starts_with('{') => odd.to_owned(),
            app => format!(r#"{{"metadata":{{"labels":{{"app":"{app}","none":null}}}}}}"#),
        };
        Object { id: id(name), revision: no_revision(), dialect: Dialect::Kubernetes, body: body.into(), place: None }
    }

    fn words(event: &Event) -> String {
        match event {
            Event::Put(object) => format!("+{}", object.id),
            Event::Delete { id, .. } => format!("-{id}"),
            Event::Malformed(Malformed { id, .. }) => format!("?{id}"),
        }
    }

    #[test]
    fn pages_and_batches() {
        let all = || Selection::from(POD);
        let web = |selection: Selection| selection.with_labels("app=web").unwrap();
        // A selection, an object with its label, how a list shows it, and how a watch tells of a change of it.
        for (selection, name, app, listed, told) in [
            (all(), "a/x", "web", "+a/x", "+a/x"),
            (all(), "a/x", "{", "+a/x", "+a/x"),
            (all().in_namespaces(["a", "b"]), "a/x", "", "+a/x", "+a/x"),
            (all().in_namespaces(["a", "b"]), "c/x", "", "", ""),
            (web(all()), "a/x", "web", "+a/x", "+a/x"),
            (web(all()), "a/x", "db", "", "-a/x"),
            (web(all()), "a/x", "", "", "-a/x"),
            (web(all()), "a/x", "{}", "", "-a/x"),
            (web(all()), "a/x", "{", "?a/x", "?a/x"),
            (web(all()), "a/x", r#"{"metadata":{"labels":{"app":1}}}"#, "?a/x", "?a/x"),
            (web(all()).in_namespaces(["a"]), "a/x", "web", "+a/x", "+a/x"),
            (web(all()).in_namespaces(["a"]), "b/x", "web", "", ""),
            (all().with_labels("!app").unwrap(), "a/x", "", "+a/x", "+a/x"),
            (all().with_labels("none=").unwrap(), "a/x", "web", "+a/x", "+a/x"),
            (Selection::from(NAMESPACE).in_namespaces(["a"]), "x", "", "+x", "+x"),
        ] {
            let object = object(name, app);
            let before =
                ListPage { objects: vec![object.clone()], malformed: vec![], revision: "7".into(), as_of: None };
            let page = page(&selection, before);
            let malformed = page.malformed.into_iter().map(Event::Malformed);
            let shown: Vec<String> =
                page.objects.into_iter().map(Event::Put).chain(malformed).map(|e| words(&e)).collect();
            assert_eq!((shown.join(" ").as_str(), &*page.revision), (listed, "7"), "{selection}, {app}");
            let events = vec![Event::Put(object)];
            let batch = batch(&selection, WatchBatch { events, revision: "8".into(), as_of: None });
            let said: Vec<String> = batch.events.iter().map(words).collect();
            assert_eq!((said.join(" ").as_str(), &*batch.revision), (told, "8"), "{selection}, {app}");
        }
    }

    #[test]
    fn deletions_and_malformed_objects_are_told_by_their_namespace() {
        let selection = Selection::from(POD).in_namespaces(["a"]).with_labels("app=web").unwrap();
        let bad = |name: &str| Malformed { id: id(name), reason: String::new() };
        let events = ["a/x", "b/x"]
            .into_iter()
            .flat_map(|name| [Event::Delete { id: id(name), last: None }, Event::Malformed(bad(name))]);
        let told = batch(&selection, WatchBatch { events: events.collect(), revision: "8".into(), as_of: None });
        assert_eq!(told.events.iter().map(words).collect::<Vec<_>>(), ["-a/x", "?a/x"]);
        let malformed = vec![bad("a/x"), bad("b/x")];
        let listed = page(&selection, ListPage { objects: vec![], malformed, revision: "8".into(), as_of: None });
        assert_eq!(listed.malformed, [bad("a/x")]);
    }

    proptest! {
        /// A follower of a selection's batches holds the objects that a list of the selection shows.
        #[test]
        fn a_watch_and_a_list_agree(steps in proptest::collection::vec((0_u8..3, 0_u8..3, 0_u8..4), 0..40)) {
            let selection = Selection::from(POD).in_namespaces(["n0", "n1"]).with_labels("app in (v1,v2)").unwrap();
            let (mut store, mut followed) = (BTreeMap::new(), BTreeMap::new());
            for (namespace, name, value) in steps {
                let name = format!("n{namespace}/{name}");
                let event = if value == 0 {
                    store.remove(&id(&name));
                    Event::Delete { id: id(&name), last: None }
                } else {
                    let object = object(&name, &format!("v{value}"));
                    store.insert(object.id.clone(), object.clone());
                    Event::Put(object)
                };
                for event in batch(&selection, WatchBatch { events: vec![event], revision: no_revision(), as_of: None }).events {
                    match event {
                        Event::Put(object) => drop(followed.insert(object.id.clone(), object)),
                        Event::Delete { id, .. } => drop(followed.remove(&id)),
                        Event::Malformed(_) => prop_assert!(false, "all can be read"),
                    }
                }
            }
            let objects = store.into_values().collect();
            let listed = page(&selection, ListPage { objects, malformed: vec![], revision: no_revision(), as_of: None });
            prop_assert_eq!(listed.objects, followed.into_values().collect::<Vec<_>>());
        }
    }
}
