//! Folders with objects of any kind, on a real file system with real file events: their kinds, swaps, and several at once.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulrush::datastore::catalog::Catalog;
use bulrush::datastore::file::{FileConfig, FileStore};
use bulrush::datastore::{Datastore as _, Error, Event, Kind, KindsNow, Pattern};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use tempfile::TempDir;

use crate::wait::in_time;

type Kinds = BoxStream<'static, Result<KindsNow, Error>>;

fn object(api_version: &str, kind: &str, name: &str, host: &str) -> String {
    format!("---\napiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{host: {host}}}\n")
}

fn route(name: &str, host: &str) -> String {
    object("mesh.io/v1", "Route", name, host)
}

fn open(path: &Path) -> FileStore {
    let catalog = Arc::new(Catalog::of_kubernetes());
    FileStore::open(FileConfig { quiet: Duration::from_millis(40), ..FileConfig::new(path, catalog) })
}

fn ask(store: &FileStore, patterns: &[&str]) -> Kinds {
    let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
    store.kinds(&patterns)
}

/// The next item, in words.
async fn said(kinds: &mut Kinds) -> String {
    match in_time(kinds.next()).await.expect("it does not end") {
        Ok(KindsNow { kinds, unknown }) => {
            let unknown = unknown.iter().map(|unknown| format!("? {}", unknown.pattern));
            kinds.iter().map(ToString::to_string).chain(unknown).collect::<Vec<_>>().join(", ")
        }
        Err(error) => format!("! {error}"),
    }
}

/// The only kind that meets the pattern.
async fn kind(store: &FileStore, pattern: &str) -> Kind {
    let now = in_time(ask(store, &[pattern]).next()).await.unwrap().unwrap();
    now.kinds.into_iter().next().unwrap()
}

/// Names, places and the revision of a kind's objects.
async fn listed(store: &FileStore, kind: &Kind) -> (Vec<String>, bulrush::model::Revision) {
    let pages: Vec<_> = in_time(store.list(&kind.clone().into()).try_collect()).await.unwrap();
    let revision = pages[0].revision.clone();
    let objects = pages.into_iter().flat_map(|page| page.objects);
    (objects.map(|object| format!("{} {}", object.id, object.place.unwrap_or_default())).collect(), revision)
}

/// The next changes of a watch.
async fn changed(watch: &mut BoxStream<'static, Result<bulrush::datastore::WatchBatch, Error>>) -> Vec<String> {
    loop {
        let batch = in_time(watch.next()).await.expect("the watch ended").unwrap();
        let words = |event: &Event| match event {
            Event::Put(object) => format!("put {} {}", object.id, object.place.as_deref().unwrap_or_default()),
            Event::Delete { id, .. } => format!("delete {id}"),
            Event::Malformed(malformed) => format!("malformed {}", malformed.id),
        };
        if !batch.events.is_empty() {
            return batch.events.iter().map(words).collect();
        }
    }
}

#[tokio::test]
async fn kinds_come_and_go_with_their_objects() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.yaml");
    let store = open(dir.path());
    let mut kinds = ask(&store, &["mesh.io/*", "v1/ConfigMap", "v1/Servcie"]);
    let refused = said(&mut kinds).await;
    assert!(refused.starts_with("! look for kinds in folder ") && refused.contains("has no file"), "{refused}");
    fs::write(&file, object("v1", "ConfigMap", "a", "x")).unwrap();
    assert_eq!(said(&mut kinds).await, "v1/ConfigMap, ? mesh.io/*, ? v1/Servcie");
    let maps = kind(&store, "v1/ConfigMap").await;
    assert_eq!(listed(&store, &maps).await.0, ["default/a a.yaml:2"]);
    fs::write(&file, route("a", "x") + &object("mesh.io/v1beta1", "Gate", "g", "x")).unwrap();
    assert_eq!(said(&mut kinds).await, "v1/ConfigMap, mesh.io/*/Gate, mesh.io/*/Route, ? v1/Servcie");
    fs::write(&file, route("b", "x")).unwrap();
    assert_eq!(said(&mut kinds).await, "v1/ConfigMap, mesh.io/*/Route, ? v1/Servcie");
}

#[tokio::test]
async fn a_mounted_config_map_is_swapped() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    let generation = |name: &str, text: &str| {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("a.yaml"), text).unwrap();
        symlink(name, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    generation("..1", &route("a", "one"));
    symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    let store = open(root);
    let mut kinds = ask(&store, &["mesh.io/*"]);
    assert_eq!(said(&mut kinds).await, "mesh.io/*/Route");
    let routes = kind(&store, "mesh.io/v1/Route").await;
    let (names, start) = listed(&store, &routes).await;
    assert_eq!(names, ["a a.yaml:2"]);
    let mut watch = store.watch(&routes.into(), &start);
    generation("..2", &(route("a", "two") + &route("b", "one") + &object("mesh.io/v1", "Gate", "g", "x")));
    fs::remove_dir_all(root.join("..1")).unwrap();
    assert_eq!(changed(&mut watch).await, ["put a a.yaml:2", "put b a.yaml:7"]);
    assert_eq!(said(&mut kinds).await, "mesh.io/*/Gate, mesh.io/*/Route");
}

#[tokio::test]
async fn two_folders_at_once_know_nothing_of_each_other() {
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let stores = dirs.each_ref().map(|dir| {
        fs::write(dir.path().join("a.yaml"), route("a", "x")).unwrap();
        open(dir.path())
    });
    let routes = kind(&stores[0], "mesh.io/v1/Route").await;
    assert_eq!(kind(&stores[1], "mesh.io/v1/Route").await, routes);
    let (_, start) = listed(&stores[0], &routes).await;
    let (_, other_start) = listed(&stores[1], &routes).await;
    let mut watch = stores[0].watch(&routes.clone().into(), &start);
    let mut other = stores[1].watch(&routes.clone().into(), &other_start);
    fs::write(dirs[0].path().join("b.yaml"), route("b", "x")).unwrap();
    fs::write(dirs[1].path().join("bad.yaml"), "{").unwrap();
    fs::write(dirs[1].path().join("c.yaml"), route("c", "x")).unwrap();
    assert_eq!(changed(&mut watch).await, ["put b b.yaml:2"]);
    assert_eq!(changed(&mut other).await, ["put c c.yaml:2"]);
    let mut status = stores[1].status();
    in_time(status.wait_for(|status| status.error_count == 1)).await.unwrap();
    assert_eq!(stores[0].status().borrow().errors, []);
    // The end of one is not the end of the other.
    let [first, second] = stores;
    drop((first, watch));
    fs::write(dirs[1].path().join("d.yaml"), route("d", "x")).unwrap();
    assert_eq!(changed(&mut other).await, ["put d d.yaml:2"]);
    drop(second);
}
