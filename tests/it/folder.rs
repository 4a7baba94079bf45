//! The folder datastore on a real file system with real file events.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bulrush::calico::catalog::catalog;
use bulrush::calico::kinds::{IP_POOL, NAMESPACE, POD};
use bulrush::calico::pipelines::{self, Flavour};
use bulrush::calico::processors::Context;
use bulrush::calico::syncers::{BGP, FELIX, NODE_STATUS, TUNNEL_IP_ALLOCATION};
use bulrush::datastore::file::{FileConfig, FileStatus, FileStore};
use bulrush::datastore::{Datastore, Dialect, Error, Event, Kind, Malformed, WatchBatch};
use bulrush::demand::Demand;
use bulrush::metrics::SyncerMetrics;
use bulrush::model::{Revision, SyncStatus, SyncerEvent};
use bulrush::pipeline::Stages;
use bulrush::syncer::kind_watch::KindHub;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::wait::in_time;

fn pool(name: &str, cidr: &str) -> String {
    format!("---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n")
}

/// Writes a file with a time one hour ago by the system's clock, which goes on while the test's clock is paused.
fn write_long_ago(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
}

fn pools(count: usize) -> String {
    (0..count).map(|i| pool(&format!("p{i:02}"), "10.0.0.0/8")).collect()
}

/// A followed folder, and its status.
struct Bench {
    store: FileStore,
    status: watch::Receiver<FileStatus>,
}

impl Bench {
    fn open(path: &Path) -> Self {
        let store =
            FileStore::open(FileConfig { quiet: Duration::from_millis(40), ..FileConfig::new(path, catalog(None)) });
        let status = store.status();
        Self { store, status }
    }

    async fn until(&mut self, what: impl FnMut(&FileStatus) -> bool) -> FileStatus {
        in_time(self.status.wait_for(what)).await.unwrap().clone()
    }

    async fn names(&self, kind: &Kind) -> (Vec<String>, Revision) {
        let pages: Vec<_> = in_time(self.store.list(&kind.clone().into()).try_collect()).await.unwrap();
        let revision = pages[0].revision.clone();
        let objects = pages.into_iter().flat_map(|page| page.objects);
        (objects.map(|object| format!("{}@{}", object.id, object.revision)).collect(), revision)
    }
}

async fn changes(watch: &mut BoxStream<'static, Result<WatchBatch, Error>>) -> (Vec<String>, Revision) {
    loop {
        let batch = in_time(watch.next()).await.expect("the watch ended").unwrap();
        if batch.events.is_empty() {
            continue;
        }
        let texts = batch.events.iter().map(|event| match event {
            Event::Put(object) => format!("put {}@{}", object.id, object.revision),
            Event::Delete { id, last } => format!("delete {id}, was {}", last.as_ref().unwrap().revision),
            Event::Malformed(Malformed { id, .. }) => format!("malformed {id}"),
        });
        return (texts.collect(), batch.revision);
    }
}

#[tokio::test]
async fn edits_are_followed_live() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.yaml"), pool("a", "1") + &pool("b", "1")).unwrap();
    let bench = Bench::open(dir.path());
    let (names, start) = bench.names(&IP_POOL).await;
    assert_eq!(names, ["a@1", "b@1"]);
    assert_eq!(bench.names(&POD).await.0, Vec::<String>::new(), "an empty kind is one empty page");
    let mut watch = bench.store.watch(&IP_POOL.into(), &start);
    let mut pods = bench.store.watch(&POD.into(), &start);

    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns}\n";
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/b.yml"), pool("c", "1") + pod).unwrap();
    fs::write(dir.path().join("a.yaml"), pool("b", "2")).unwrap();
    // Both watches end at the list's content, whichever reloads the writes fall into.
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.extend(changes(&mut watch).await.0);
    }
    seen.sort();
    assert!(seen[0].starts_with("delete a, was 1") && seen[1].starts_with("put b@") && seen[2].starts_with("put c@"));
    assert_eq!(changes(&mut pods).await.0.len(), 1);
    let object = bench.store.list(&POD.into()).next().await.unwrap().unwrap().objects.remove(0);
    assert_eq!((object.id.to_string().as_str(), object.dialect), ("ns/p", Dialect::Kubernetes));
}

#[tokio::test]
async fn one_reload_is_one_batch_with_one_version_for_all_kinds() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("none.yaml"), "# nothing\n").unwrap();
    let mut bench = Bench::open(dir.path());
    let (_, start) = bench.names(&IP_POOL).await;
    let (mut watch, mut namespaces) =
        (bench.store.watch(&IP_POOL.into(), &start), bench.store.watch(&NAMESPACE.into(), &start));
    let fresh = dir.path().join(".new");
    fs::write(&fresh, pools(30) + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n").unwrap();
    fs::rename(&fresh, dir.path().join("all.yaml")).unwrap();
    let (puts, at) = changes(&mut watch).await;
    assert_eq!((puts.len(), changes(&mut namespaces).await.1), (30, at.clone()));
    assert_eq!(bench.until(|status| status.objects == 31).await.version.to_string(), *at);
}

#[tokio::test]
async fn a_bad_file_keeps_its_resources_and_is_named_with_its_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, pool("a", "1")).unwrap();
    let mut bench = Bench::open(dir.path());
    bench.names(&IP_POOL).await;
    let half = pool("a", "2") + "---\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {na";
    fs::write(&path, &half).unwrap();
    let status = bench.until(|status| status.error_count == 1).await;
    assert_eq!(status.errors[0].file, "a.yaml");
    assert!(status.errors[0].line.is_some_and(|line| line >= 6), "{status:?}");
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1"]);
    fs::write(&path, half + "me: b}\n").unwrap();
    bench.until(|status| status.error_count == 0 && status.objects == 2).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@2", "b@2"]);
}

#[tokio::test]
async fn a_truncated_file_counts_as_half_written() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, pool("a", "1")).unwrap();
    let mut bench = Bench::open(dir.path());
    bench.names(&IP_POOL).await;
    fs::write(&path, "").unwrap();
    bench.until(|status| status.error_count == 1).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1"]);
    fs::remove_file(&path).unwrap();
    bench.until(|status| status.objects == 0).await;
}

#[tokio::test]
async fn the_same_resource_in_two_files_names_both() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.yaml"), pool("x", "1")).unwrap();
    let mut bench = Bench::open(dir.path());
    bench.names(&IP_POOL).await;
    fs::write(dir.path().join("b.yaml"), pool("x", "2")).unwrap();
    let error = bench.until(|status| status.error_count == 1).await.errors.remove(0);
    assert!(error.file == "b.yaml" && error.reason.contains("a.yaml"), "{error:?}");
    assert_eq!(bench.names(&IP_POOL).await.0, ["x@1"]);
}

#[tokio::test]
async fn a_renamed_file_changes_nothing() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.yaml"), pool("a", "1")).unwrap();
    let mut bench = Bench::open(dir.path());
    let (_, start) = bench.names(&IP_POOL).await;
    let mut watch = bench.store.watch(&IP_POOL.into(), &start);
    fs::rename(dir.path().join("a.yaml"), dir.path().join("z.yaml")).unwrap();
    fs::write(dir.path().join("marker.yaml"), pool("marker", "1")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put marker@2"]);
    bench.until(|status| status.files == 2).await;
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
    generation("..1", &pool("a", "1"));
    symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
    let bench = Bench::open(root);
    let (names, start) = bench.names(&IP_POOL).await;
    assert_eq!(names, ["a@1"]);
    let mut watch = bench.store.watch(&IP_POOL.into(), &start);
    generation("..2", &(pool("a", "2") + &pool("b", "1")));
    fs::remove_dir_all(root.join("..1")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put a@2", "put b@2"]);
}

#[tokio::test]
async fn the_folder_itself_may_be_a_symlink_that_is_swapped() {
    let dir = TempDir::new().unwrap();
    let root = dir.path();
    for (name, cidr) in [("one", "1"), ("two", "2")] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("a.yaml"), pool("a", cidr)).unwrap();
    }
    symlink("one", root.join("current")).unwrap();
    let bench = Bench::open(&root.join("current"));
    let (_, start) = bench.names(&IP_POOL).await;
    let mut watch = bench.store.watch(&IP_POOL.into(), &start);
    symlink("two", root.join("next")).unwrap();
    fs::rename(root.join("next"), root.join("current")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put a@2"]);
    fs::write(root.join("two/b.yaml"), pool("b", "1")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put b@3"], "the new folder is followed");
}

#[tokio::test]
async fn a_folder_that_comes_late_or_goes_away_deletes_nothing() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("late");
    let mut bench = Bench::open(&root);
    let error = in_time(bench.store.list(&IP_POOL.into()).next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Retry { .. }), "{error:?}");
    assert!(error.to_string().contains("late"), "{error}");

    fs::create_dir(&root).unwrap();
    fs::write(root.join("a.yaml"), pool("a", "1")).unwrap();
    bench.until(|status| status.objects == 1 && status.held.is_none()).await;
    fs::rename(&root, dir.path().join("elsewhere")).unwrap();
    bench.until(|status| status.held.is_some()).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1"]);
    // As after an unmount: another folder, which is empty.
    fs::create_dir(&root).unwrap();
    bench.until(|status| status.held.as_ref().is_some_and(|held| held.contains("empty"))).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1"]);
    fs::remove_dir(&root).unwrap();
    fs::rename(dir.path().join("elsewhere"), &root).unwrap();
    bench.until(|status| status.held.is_none()).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1"]);
}

/// The runtime's clock is paused: it jumps to the next timer whenever nothing is read, so the test need not wait for a hold to end.
#[tokio::test(start_paused = true)]
async fn a_mass_deletion_is_held_until_it_is_confirmed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    write_long_ago(&path, &pools(50));
    let store = FileStore::open(FileConfig::new(dir.path(), catalog(None)));
    let mut status = store.status();
    // Longer than any wait, by the paused clock.
    let patience = Duration::from_secs(3_600);
    let loaded = tokio::time::timeout(patience, status.wait_for(|status| status.objects == 50)).await;
    assert_eq!(loaded.unwrap().unwrap().version, 1);
    write_long_ago(&path, &pools(3));
    let held = tokio::time::timeout(patience, status.wait_for(|status| status.held.is_some())).await;
    let held = held.unwrap().unwrap().held.clone().unwrap();
    assert!(held.contains("47 of 50"), "{held}");
    store.reload();
    let let_go = status.wait_for(|status| status.objects != 50 || status.held.as_ref() != Some(&held));
    assert!(tokio::time::timeout(patience, let_go).await.is_err(), "a reload confirms nothing");
    let code = held.split("write ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    write_long_ago(&dir.path().join(".bulrush-confirm-deletion"), code);
    let gone = tokio::time::timeout(patience, status.wait_for(|status| status.objects == 3)).await;
    let gone = gone.unwrap().unwrap().clone();
    assert_eq!((gone.held, gone.errors[0].file.as_str()), (None, ".bulrush-confirm-deletion"));
    fs::remove_file(dir.path().join(".bulrush-confirm-deletion")).unwrap();
    let clean = tokio::time::timeout(patience, status.wait_for(|status| status.error_count == 0)).await;
    assert!(clean.is_ok());
}

#[tokio::test]
async fn a_first_load_with_a_broken_file_is_not_served_until_it_is_mended() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("policies.yaml");
    fs::write(dir.path().join("pools.yaml"), pool("a", "1")).unwrap();
    fs::write(&path, pool("b", "1") + "spec: {\n").unwrap();
    let mut bench = Bench::open(dir.path());
    let error = in_time(bench.store.list(&IP_POOL.into()).next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Retry { .. }), "{error:?}");
    assert!(error.to_string().contains("policies.yaml:"), "file and line are named: {error}");
    let status = bench.until(|status| status.error_count == 1).await;
    assert_eq!((status.version, status.objects), (0, 0), "{status:?}");
    fs::write(&path, pool("b", "1")).unwrap();
    bench.until(|status| status.version == 1 && status.held.is_none()).await;
    assert_eq!(bench.names(&IP_POOL).await.0, ["a@1", "b@1"]);
}

#[tokio::test]
async fn an_empty_folder_is_not_served_at_first() {
    let dir = TempDir::new().unwrap();
    let mut bench = Bench::open(dir.path());
    let error = in_time(bench.store.list(&IP_POOL.into()).next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Retry { .. }), "{error:?}");
    fs::write(dir.path().join("a.yaml"), "# nothing on purpose\n").unwrap();
    bench.until(|status| status.version == 1).await;
    assert_eq!(bench.names(&IP_POOL).await.0, [] as [String; 0]);
}

#[tokio::test]
async fn a_file_that_is_cut_between_two_documents_deletes_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, pool("a", "1") + &pool("b", "1")).unwrap();
    let bench = Bench::open(dir.path());
    let (_, start) = bench.names(&IP_POOL).await;
    let mut watch = bench.store.watch(&IP_POOL.into(), &start);
    // The first half of the file.
    fs::write(&path, pool("a", "2")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put a@2"]);
    fs::write(&path, pool("a", "2") + &pool("b", "2")).unwrap();
    assert_eq!(changes(&mut watch).await.0, ["put b@3"]);
}

#[tokio::test]
async fn neither_a_reload_nor_a_further_change_confirms_a_mass_deletion() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, pools(50)).unwrap();
    let mut bench = Bench::open(dir.path());
    bench.names(&IP_POOL).await;
    fs::write(&path, pools(3)).unwrap();
    bench.until(|status| status.held.is_some()).await;
    bench.store.reload();
    fs::write(dir.path().join("b.yaml"), "{").unwrap();
    bench.until(|status| status.error_count == 1).await;
    fs::File::options().append(true).open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::write(dir.path().join("c.yaml"), "{").unwrap();
    let status = bench.until(|status| status.error_count == 2).await;
    assert!(status.held.is_some(), "{status:?}");
    assert_eq!(bench.names(&IP_POOL).await.0.len(), 50);
}

#[tokio::test]
async fn the_operator_reloads_without_any_event() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("none.yaml"), "# nothing\n").unwrap();
    let store =
        FileStore::open(FileConfig { quiet: Duration::from_secs(3_600), ..FileConfig::new(dir.path(), catalog(None)) });
    let mut bench = Bench { status: store.status(), store };
    bench.names(&IP_POOL).await;
    fs::write(dir.path().join("a.yaml"), pool("a", "1")).unwrap();
    bench.store.reload();
    bench.until(|status| status.objects == 1).await;
}

#[tokio::test]
async fn a_position_of_another_run_means_a_relist() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("none.yaml"), "# nothing\n").unwrap();
    let bench = Bench::open(dir.path());
    bench.names(&IP_POOL).await;
    for from in ["0", "99", "", "x"] {
        let result = in_time(bench.store.watch(&IP_POOL.into(), &Revision::from(from)).next()).await;
        assert!(matches!(result, Some(Err(Error::Relist { .. }))), "{from}: {result:?}");
    }
}

#[tokio::test]
async fn large_lists_come_in_pages_of_which_the_last_confirms_the_time() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.yaml"), (0..2_500).map(|i| pool(&format!("p{i}"), "x")).collect::<String>()).unwrap();
    let bench = Bench::open(dir.path());
    let pages: Vec<_> = in_time(bench.store.list(&IP_POOL.into()).try_collect()).await.unwrap();
    assert_eq!(pages.iter().map(|page| page.objects.len()).collect::<Vec<_>>(), [1_000, 1_000, 500]);
    assert_eq!(pages.iter().map(|page| page.as_of.is_some()).collect::<Vec<_>>(), [false, false, true]);
}

#[tokio::test]
async fn the_quickstart_folder_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/quickstart");
    let mut bench = Bench::open(&path);
    let status = bench.until(|status| status.version > 0).await;
    assert_eq!((status.error_count, status.unknown), (0, 0), "{:?}", status.errors);
    assert!(status.objects >= 30, "{status:?}");
}

#[tokio::test]
async fn every_object_of_the_quickstart_folder_is_valid_for_every_syncer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/quickstart");
    let store = Arc::new(FileStore::open(FileConfig::new(path, catalog(None))));
    for (spec, expected) in pipelines::calico(Flavour::Folder, &Context::default()).into_iter().zip([
        (FELIX, "/calico/v1/host/worker-1/workload/k8s/shop%2ffrontend-7c9d8b6f5d-4xk2p/endpoint/eth0"),
        (BGP, "/calico/resources/v3/projectcalico.org/bgpfilters/only-cluster"),
        (TUNNEL_IP_ALLOCATION, "/calico/v1/ipam/v4/pool/10.244.0.0-16"),
        (NODE_STATUS, "/calico/resources/v3/projectcalico.org/caliconodestatuses/worker-1"),
    ]) {
        assert_eq!(spec.syncer, expected.0);
        let metrics = SyncerMetrics::unregistered();
        let mut hub = KindHub::new(store.clone(), 1);
        let (stages, mut received) = Stages::new(spec, &metrics, &mut hub, Demand::default());
        let (problems, cancel) = (stages.problems().clone(), CancellationToken::new());
        tokio::spawn(hub.run(cancel.clone()));
        tokio::spawn(stages.run(cancel.clone()));
        let mut keys = Vec::new();
        'until_in_sync: loop {
            let mut batch = Vec::new();
            assert!(in_time(received.recv_batch(&mut batch, 100)).await > 0, "the pipeline ended");
            for event in batch {
                match event {
                    SyncerEvent::Updates(updates) => {
                        for update in updates {
                            assert!(update.value.is_some(), "{} was blanked", update.key);
                            keys.push(update.key.to_string());
                        }
                    }
                    SyncerEvent::Status(SyncStatus::InSync) => break 'until_in_sync,
                    _ => {}
                }
            }
        }
        cancel.cancel();
        assert!(problems.is_empty(), "{}: {:?}", expected.0, problems.snapshot(100));
        assert!(keys.iter().any(|key| key == expected.1), "{}: {keys:#?}", expected.0);
    }
}
