//! The etcd datastore against a real etcd: lists, watches, restarts, compaction, TLS, bad values, dead members.

use std::collections::BTreeMap;

use bulrush::calico::bootstrap::{InitOptions, ensure};
use bulrush::calico::catalog::catalog;
use bulrush::calico::kinds::{BLOCK_AFFINITY, CLUSTER_INFORMATION, IP_POOL, NETWORK_SET, POD, TIER, WORKLOAD_ENDPOINT};
use bulrush::datastore::etcd::{EtcdConfig, EtcdStore};
use bulrush::datastore::write::{Change, Stored, Writable as _, Write, Written};
use bulrush::datastore::{Datastore, Error, Event, Kind, ListPage, Malformed, ObjectId, Selection, WatchBatch};
use bulrush::model::Revision;
use etcd_client::{Client, CompactionOptions, DeleteOptions, GetOptions, Txn, TxnOp};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use crate::real_etcd::{Etcd, free_port};
use crate::wait::in_time;

fn store(etcd: &Etcd) -> EtcdStore {
    EtcdStore::connect(EtcdConfig { catalog: catalog(None), ..EtcdConfig::new([etcd.url()]) }).unwrap()
}

fn key(kind: &Kind, name: &str) -> String {
    format!("{}{name}", kind.etcd_prefix.as_deref().unwrap())
}

async fn list(store: &EtcdStore, kind: &Kind) -> Result<Vec<ListPage>, Error> {
    in_time(store.list(&kind.clone().into()).try_collect()).await
}

/// The content of a kind, as a follower of the datastore holds it: body by id.
async fn content(store: &EtcdStore, kind: &Kind) -> (BTreeMap<String, Vec<u8>>, Revision) {
    let pages = list(store, kind).await.unwrap();
    let revision = pages[0].revision.clone();
    assert!(pages.iter().all(|page| page.revision == revision));
    let objects = pages.into_iter().flat_map(|page| page.objects);
    (objects.map(|object| (object.id.to_string(), object.body.to_vec())).collect(), revision)
}

async fn next(watch: &mut BoxStream<'static, Result<WatchBatch, Error>>) -> Result<WatchBatch, Error> {
    in_time(watch.next()).await.expect("the watch ended")
}

/// The next events, up to `count`, and the position after them.
async fn events(
    watch: &mut BoxStream<'static, Result<WatchBatch, Error>>,
    count: usize,
) -> Result<(Vec<Event>, Revision), Error> {
    let mut all = Vec::new();
    loop {
        let batch = next(watch).await?;
        all.extend(batch.events);
        if all.len() >= count {
            return Ok((all, batch.revision));
        }
    }
}

async fn compact(client: &mut Client) {
    let now = client.get("x", None).await.unwrap().header().unwrap().revision();
    client.compact(now, Some(CompactionOptions::new().with_physical())).await.unwrap();
}

#[tokio::test]
async fn lists_and_watches_from_the_list_on() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    let (empty, start) = content(&store, &IP_POOL).await;
    assert!(empty.is_empty());
    assert_eq!(list(&store, &IP_POOL).await.unwrap().len(), 1, "an empty kind is one empty page");

    let mut watch = store.watch(&IP_POOL.into(), &start);
    client.put(key(&IP_POOL, "a"), r#"{"a":1}"#, None).await.unwrap();
    client.put("/calico/resources/v3/projectcalico.org/ippoolsx/z", "{}", None).await.unwrap();
    client.put(key(&IP_POOL, "a"), r#"{"a":2}"#, None).await.unwrap();
    client.put(key(&IP_POOL, "b"), "not json", None).await.unwrap();
    client.delete(key(&IP_POOL, "a"), None).await.unwrap();
    client.put(key(&IP_POOL, "c"), r#"{"c":3}"#, None).await.unwrap();
    let (events, position) = events(&mut watch, 5).await.unwrap();
    let Event::Put(first) = &events[0] else { panic!("{events:?}") };
    assert_eq!((&*first.body, &*first.revision), (&br#"{"a":1}"#[..], "2"));
    let Event::Malformed(Malformed { id, reason }) = &events[2] else { panic!("{events:?}") };
    assert_eq!(&*id.name, "b");
    assert!(reason.contains("JSON"), "{reason}");
    let Event::Delete { id, last: None } = &events[3] else { panic!("{events:?}") };
    assert_eq!(&*id.name, "a");
    assert_eq!(&*position, "7");

    let (now, _) = content(&store, &IP_POOL).await;
    assert_eq!(now.keys().collect::<Vec<_>>(), ["c"], "the bad value is left out");
    let pages = list(&store, &IP_POOL).await.unwrap();
    let named: Vec<_> = pages.iter().flat_map(|page| &page.malformed).map(|malformed| &*malformed.id.name).collect();
    assert_eq!(named, ["b"], "and named");
}

#[tokio::test]
async fn a_quiet_watch_confirms_that_it_is_up_to_date() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    let (_, start) = content(&store, &IP_POOL).await;
    client.put("/elsewhere", "x", None).await.unwrap();
    let mut watch = store.watch(&IP_POOL.into(), &start);
    let batch = next(&mut watch).await.unwrap();
    assert!(batch.events.is_empty());
    assert_eq!(&*batch.revision, "2");
    assert_eq!(&*batch.as_of.unwrap().revision, "2");
}

#[tokio::test]
async fn kinds_without_a_prefix_are_absent() {
    let store = EtcdStore::connect(EtcdConfig::new(["http://127.0.0.1:1"])).unwrap();
    assert!(matches!(list(&store, &POD).await, Err(Error::KindAbsent { .. })));
    let mut watch = store.watch(&POD.into(), &Revision::from("1"));
    assert!(matches!(next(&mut watch).await, Err(Error::KindAbsent { .. })));
}

#[tokio::test]
async fn ids_and_empty_affinities() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    client.put(key(&BLOCK_AFFINITY, "n1/ipv4/block/10.0.0.0-26"), "", None).await.unwrap();
    client.put(key(&WORKLOAD_ENDPOINT, "ns/w"), "{}", None).await.unwrap();
    client.put(key(&WORKLOAD_ENDPOINT, "no-namespace"), "{}", None).await.unwrap();
    let (affinities, _) = content(&store, &BLOCK_AFFINITY).await;
    assert_eq!(affinities.into_iter().next().unwrap(), ("n1/ipv4/block/10.0.0.0-26".to_owned(), b"{}".to_vec()));
    let (endpoints, _) = content(&store, &WORKLOAD_ENDPOINT).await;
    assert_eq!(endpoints.keys().collect::<Vec<_>>(), ["ns/w"]);
}

#[tokio::test]
async fn twenty_thousand_keys_in_pages_at_one_revision() {
    const KEYS: usize = 20_000;
    let Some(etcd) = Etcd::start().await else { return };
    let config = EtcdConfig { page_limit: 1_000, ..EtcdConfig::new([etcd.url()]) };
    let (mut client, store) = (etcd.client().await, EtcdStore::connect(config).unwrap());
    let body = format!(r#"{{"spec":"{}"}}"#, "x".repeat(800));
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let puts: Vec<_> = chunk
            .iter()
            .map(|i| TxnOp::put(key(&WORKLOAD_ENDPOINT, &format!("ns/w{i}")), body.as_str(), None))
            .collect();
        client.txn(Txn::new().and_then(puts)).await.unwrap();
    }
    let mut pages = store.list(&WORKLOAD_ENDPOINT.into());
    let first = in_time(pages.next()).await.unwrap().unwrap();
    // Written while the list is read: part not of the list, but of the watch after it.
    client.put(key(&WORKLOAD_ENDPOINT, "ns/zz-late"), "{}", None).await.unwrap();
    client.delete(key(&WORKLOAD_ENDPOINT, "ns/w9"), None).await.unwrap();
    let mut names: Vec<String> = first.objects.iter().map(|object| object.id.to_string()).collect();
    let (mut count, mut as_of) = (1, first.as_of);
    while let Some(page) = in_time(pages.next()).await {
        let page = page.unwrap();
        assert_eq!(page.revision, first.revision);
        assert!(as_of.is_none(), "only the last page confirms the time of the list");
        names.extend(page.objects.iter().map(|object| object.id.to_string()));
        (count, as_of) = (count + 1, page.as_of);
    }
    assert!(as_of.is_some());
    assert!(count >= 20, "{count} pages");
    assert_eq!(names.len(), KEYS);
    names.dedup();
    assert_eq!(names.len(), KEYS);
    let mut watch = store.watch(&WORKLOAD_ENDPOINT.into(), &first.revision);
    let (late, _) = events(&mut watch, 2).await.unwrap();
    assert!(matches!(&late[0], Event::Put(object) if &*object.id.name == "zz-late"));
    assert!(matches!(&late[1], Event::Delete { id, .. } if &*id.name == "w9"));

    // One request deletes all keys, which makes more than one message.
    drop(watch);
    let (_, position) = content(&store, &WORKLOAD_ENDPOINT).await;
    let mut watch = store.watch(&WORKLOAD_ENDPOINT.into(), &position);
    let prefix = key(&WORKLOAD_ENDPOINT, "");
    let deleted = client.delete(prefix, Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let (gone, after) = events(&mut watch, KEYS).await.unwrap();
    assert_eq!(gone.len(), KEYS);
    assert_eq!(*after, deleted.header().unwrap().revision().to_string());
    assert!(gone.iter().all(|event| matches!(event, Event::Delete { .. })));
}

#[tokio::test]
async fn a_page_beyond_the_message_limit_is_asked_for_in_halves() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    let body = format!(r#"{{"spec":"{}"}}"#, "x".repeat(1_400_000));
    for i in 0..50 {
        client.put(key(&IP_POOL, &format!("p{i:02}")), body.as_str(), None).await.unwrap();
    }
    let pages = list(&store, &IP_POOL).await.unwrap();
    assert!(pages.len() > 1);
    assert_eq!(pages.iter().map(|page| page.objects.len()).sum::<usize>(), 50);
}

#[tokio::test]
async fn a_killed_server_is_followed_on_after_its_restart() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let store = store(&etcd);
    let mut client = etcd.client().await;
    let (_, start) = content(&store, &IP_POOL).await;
    let mut watch = store.watch(&IP_POOL.into(), &start);
    client.put(key(&IP_POOL, "a"), "{}", None).await.unwrap();
    let (_, position) = events(&mut watch, 1).await.unwrap();
    etcd.kill();
    let error = loop {
        match in_time(watch.next()).await {
            Some(Ok(_)) => {}
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    assert!(matches!(error, None | Some(Error::Retry { .. })), "{error:?}");
    let away = list(&store, &IP_POOL).await.unwrap_err();
    assert!(matches!(away, Error::Retry { .. }), "{away:?}");
    assert!(away.to_string().contains(&etcd.url()), "{away}");
    etcd.run().await;
    let mut client = etcd.client().await;
    client.put(key(&IP_POOL, "b"), "{}", None).await.unwrap();
    let mut watch = store.watch(&IP_POOL.into(), &position);
    let (after, _) = events(&mut watch, 1).await.unwrap();
    assert!(matches!(&after[0], Event::Put(object) if &*object.id.name == "b"), "{after:?}");
    assert_eq!(content(&store, &IP_POOL).await.0.len(), 2);
}

#[tokio::test]
async fn compaction_during_a_pause_means_a_relist_that_misses_nothing() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    client.put(key(&IP_POOL, "gone"), "{}", None).await.unwrap();
    let (_, position) = content(&store, &IP_POOL).await;
    client.delete(key(&IP_POOL, "gone"), None).await.unwrap();
    client.put(key(&IP_POOL, "new"), "{}", None).await.unwrap();
    compact(&mut client).await;
    let mut watch = store.watch(&IP_POOL.into(), &position);
    let error = next(&mut watch).await.unwrap_err();
    assert!(matches!(error, Error::Relist { .. }), "{error:?}");
    let (now, position) = content(&store, &IP_POOL).await;
    assert_eq!(now.keys().collect::<Vec<_>>(), ["new"]);
    let mut watch = store.watch(&IP_POOL.into(), &position);
    client.put(key(&IP_POOL, "later"), "{}", None).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn compaction_between_pages_means_a_relist() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut client = etcd.client().await;
    let store = EtcdStore::connect(EtcdConfig { page_limit: 2, ..EtcdConfig::new([etcd.url()]) }).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        client.put(key(&IP_POOL, name), "{}", None).await.unwrap();
    }
    let mut pages = store.list(&IP_POOL.into());
    assert_eq!(in_time(pages.next()).await.unwrap().unwrap().objects.len(), 2);
    client.put(key(&IP_POOL, "f"), "{}", None).await.unwrap();
    compact(&mut client).await;
    let error = in_time(pages.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Relist { .. }), "{error:?}");
    assert!(in_time(pages.next()).await.is_none());
    assert_eq!(content(&store, &IP_POOL).await.0.len(), 6);
}

#[tokio::test]
async fn a_position_that_the_cluster_never_had_means_a_relist() {
    let Some(etcd) = Etcd::start().await else { return };
    let store = store(&etcd);
    for from in ["4711", "", "x", "-3"] {
        let mut watch = store.watch(&IP_POOL.into(), &Revision::from(from));
        let result = in_time(watch.next()).await;
        assert!(matches!(result, Some(Err(Error::Relist { .. }))), "{from}: {result:?}");
    }
}

#[tokio::test]
async fn a_dead_first_endpoint_is_passed_over() {
    let Some(etcd) = Etcd::start().await else { return };
    let mut client = etcd.client().await;
    client.put(key(&IP_POOL, "a"), "{}", None).await.unwrap();
    let dead = format!("http://127.0.0.1:{}", free_port());
    let store = EtcdStore::connect(EtcdConfig::new([dead, etcd.url()])).unwrap();
    let (objects, position) = content(&store, &IP_POOL).await;
    assert_eq!(objects.len(), 1);
    let mut watch = store.watch(&IP_POOL.into(), &position);
    client.put(key(&IP_POOL, "b"), "{}", None).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap().0.len(), 1);
}

#[tokio::test]
async fn another_cluster_behind_the_next_endpoint_means_a_relist() {
    let Some(mut old) = Etcd::start().await else { return };
    let Some(new) = Etcd::start().await else { return };
    let store = EtcdStore::connect(EtcdConfig::new([old.url(), new.url()])).unwrap();
    let mut client = new.client().await;
    for name in ["a", "b", "c"] {
        client.put(key(&IP_POOL, name), "{}", None).await.unwrap();
    }
    let (_, position) = content(&store, &IP_POOL).await;
    old.kill();
    let mut watch = store.watch(&IP_POOL.into(), &position);
    let error = next(&mut watch).await.unwrap_err();
    assert!(matches!(error, Error::Relist { .. }), "{error:?}");
    assert_eq!(content(&store, &IP_POOL).await.0.len(), 3);
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let Some(etcd) = Etcd::start_with_tls().await else { return };
    let mut client = etcd.client().await;
    client.put(key(&IP_POOL, "a"), "{}", None).await.unwrap();
    let tls = etcd.tls();
    let mut config = EtcdConfig::new([etcd.url()]);
    config.ca_file = Some(tls.ca.clone());
    config.cert_file = Some(tls.client_cert.clone());
    config.key_file = Some(tls.client_key.clone());
    let store = EtcdStore::connect(config.clone()).unwrap();
    let (objects, position) = content(&store, &IP_POOL).await;
    assert_eq!(objects.len(), 1);
    let mut watch = store.watch(&IP_POOL.into(), &position);
    client.put(key(&IP_POOL, "b"), "{}", None).await.unwrap();
    assert_eq!(events(&mut watch, 1).await.unwrap().0.len(), 1);

    let anonymous = EtcdConfig { cert_file: None, key_file: None, ..config.clone() };
    let error = list(&EtcdStore::connect(anonymous).unwrap(), &IP_POOL).await.unwrap_err();
    assert!(matches!(error, Error::Retry { .. }), "{error:?}");
    assert!(error.to_string().contains("EtcdCertFile"), "{error}");
    let stranger = EtcdConfig { ca_file: Some(tls.client_cert.clone()), ..config };
    let error = list(&EtcdStore::connect(stranger).unwrap(), &IP_POOL).await.unwrap_err();
    assert!(error.to_string().contains("EtcdCaFile"), "{error}");
}

#[tokio::test]
async fn initialisation_is_idempotent_even_when_many_do_it_at_once() {
    let Some(etcd) = Etcd::start().await else { return };
    let store = store(&etcd);
    let options = InitOptions::default();
    let all = futures_util::future::join_all((0..8).map(|_| ensure(&store, &options))).await;
    let written: usize = all.into_iter().map(Result::unwrap).sum();
    assert_eq!(written, 4, "each object once");
    let (tiers, _) = content(&store, &TIER).await;
    assert_eq!(tiers.keys().collect::<Vec<_>>(), ["default", "kube-admin", "kube-baseline"]);
    let (clusters, _) = content(&store, &CLUSTER_INFORMATION).await;
    let cluster: serde_json::Value = serde_json::from_slice(&clusters["default"]).unwrap();
    assert_eq!(cluster["spec"]["datastoreReady"], true);
    let mut client = etcd.client().await;
    let before = client.get("/", Some(GetOptions::new().with_all_keys())).await.unwrap().header().unwrap().revision();
    assert_eq!(ensure(&store, &options).await.unwrap(), 0);
    let after = client.get("/", None).await.unwrap().header().unwrap().revision();
    assert_eq!(before, after, "nothing is written twice");
}

#[tokio::test]
async fn a_write_happens_only_if_the_object_is_as_it_must_be() {
    let Some(etcd) = Etcd::start().await else { return };
    let store = store(&etcd);
    for (kind, namespace) in [(TIER, ""), (NETWORK_SET, "ns")] {
        let id = ObjectId { namespace: namespace.into(), name: "x".into() };
        let write = async |change: Change<'_>, dry_run: bool| {
            store.write(Write { kind: &kind, id: &id, change, dry_run }).await.unwrap()
        };
        let body = |order: u32| format!("{{\"order\":{order}}}").into_bytes();
        let create = |order| Change::Create { body: body(order) };
        let now = async || store.read(&kind, &id).await.unwrap();

        assert!(matches!(write(create(1), true).await, Written::Done(_)));
        assert_eq!(now().await, None, "a dry run stores nothing");
        let Written::Done(first) = write(create(1), false).await else { panic!("it did not exist") };
        assert_eq!(now().await, Some(Stored { body: body(1), revision: first.clone() }));
        assert_eq!(write(create(2), false).await, Written::Conflict);
        assert_eq!(write(create(2), true).await, Written::Conflict);

        let update = Change::Update { body: body(2), before: &first };
        assert!(matches!(write(update.clone(), true).await, Written::Done(_)));
        let Written::Done(second) = write(update.clone(), false).await else { panic!("it was as it must be") };
        assert_eq!(write(update, false).await, Written::Conflict);
        assert_eq!(now().await, Some(Stored { body: body(2), revision: second.clone() }));

        assert_eq!(write(Change::Delete { before: &first }, false).await, Written::Conflict);
        assert!(matches!(write(Change::Delete { before: &second }, true).await, Written::Done(_)));
        assert!(now().await.is_some());
        assert!(matches!(write(Change::Delete { before: &second }, false).await, Written::Done(_)));
        assert_eq!((now().await, write(Change::Delete { before: &second }, false).await), (None, Written::Conflict));
    }
}

#[tokio::test]
async fn a_selection_is_listed_and_followed() {
    let Some(etcd) = Etcd::start().await else { return };
    let (mut client, store) = (etcd.client().await, store(&etcd));
    let prefix = NETWORK_SET.etcd_prefix.clone().unwrap();
    let set = |app: &str| format!(r#"{{"metadata":{{"labels":{{"app":"{app}"}}}}}}"#);
    for (name, app) in [("a/x", "web"), ("a/y", "db"), ("ab/x", "web"), ("b/x", "web")] {
        client.put(format!("{prefix}{name}"), set(app), None).await.unwrap();
    }
    let all = || Selection::from(NETWORK_SET);
    let web = all().with_labels("app=web").unwrap();
    for (selection, expected) in [
        (all(), &["a/x", "a/y", "ab/x", "b/x"][..]),
        (all().in_namespaces(["a"]), &["a/x", "a/y"]),
        (web.clone(), &["a/x", "ab/x", "b/x"]),
        (web.clone().in_namespaces(["a", "b"]), &["a/x", "b/x"]),
    ] {
        let pages: Vec<ListPage> = in_time(store.list(&selection).try_collect()).await.unwrap();
        let names: Vec<String> =
            pages.iter().flat_map(|page| &page.objects).map(|object| object.id.to_string()).collect();
        assert_eq!(names, expected, "{selection}");
    }
    let selection = web.in_namespaces(["a"]);
    let pages: Vec<ListPage> = in_time(store.list(&selection).try_collect()).await.unwrap();
    let mut watch = store.watch(&selection, &pages[0].revision);
    for (name, app) in [("b/x", "new"), ("a/y", "web"), ("a/x", "db")] {
        client.put(format!("{prefix}{name}"), set(app), None).await.unwrap();
    }
    let mut said = Vec::new();
    while said.len() < 2 {
        for event in in_time(watch.next()).await.unwrap().unwrap().events {
            said.push(match event {
                Event::Put(object) => format!("put {}", object.id),
                Event::Delete { id, .. } => format!("delete {id}"),
                Event::Malformed(malformed) => format!("malformed {}", malformed.id),
            });
        }
    }
    assert_eq!(said, ["put a/y", "delete a/x"]);
}
