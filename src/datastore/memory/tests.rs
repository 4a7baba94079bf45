//! The test datastore keeps the promises of the trait, and its faults do what they say.

use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};

use super::*;
use crate::calico::kinds::{IP_POOL, POD};
use crate::datastore::Dialect;

fn object(name: &str, revision: &str) -> Object {
    Object {
        id: ObjectId { namespace: "".into(), name: name.into() },
        revision: revision.into(),
        dialect: Dialect::V3,
        body: Bytes::from_static(b"{}"),
        place: None,
    }
}

async fn list(store: &MemoryStore) -> (Vec<String>, Revision) {
    let pages: Vec<ListPage> = store.list(&IP_POOL.into()).try_collect().await.expect("no fault was asked for");
    let revision = pages.last().expect("there is always a page").revision.clone();
    assert!(pages.iter().all(|page| page.revision == revision));
    (pages.iter().flat_map(|page| &page.objects).map(|object| object.id.to_string()).collect(), revision)
}

#[tokio::test]
async fn an_empty_kind_has_one_empty_page() {
    let store = MemoryStore::new();
    assert_eq!(store.list(&IP_POOL.into()).collect::<Vec<_>>().await.len(), 1);
    assert_eq!(store.lists(&IP_POOL), 1);
}

#[tokio::test]
async fn a_list_and_the_watch_from_it_miss_and_repeat_nothing() {
    let store = MemoryStore::new();
    store.set_page_size(2);
    for name in ["a", "b", "c"] {
        store.put(&IP_POOL, object(name, ""));
    }
    let (names, revision) = list(&store).await;
    assert_eq!(names, ["a", "b", "c"]);
    store.put(&IP_POOL, object("d", "77"));
    store.put(&POD, object("not-this-kind", ""));
    let mut watch = store.watch(&IP_POOL.into(), &revision);
    let batch = watch.next().await.expect("the watch is open").expect("and works");
    assert_eq!((batch.revision.as_ref(), batch.events.len()), ("77", 1));
    assert!(watch.next().now_or_never().is_none());
    store.delete(&IP_POOL, &object("a", "").id);
    let batch = watch.next().await.expect("the watch is open").expect("and works");
    assert!(matches!(&batch.events[..], [Event::Delete { id, last: Some(_) }] if &*id.name == "a"));
    // From the middle, too.
    let mut watch = store.watch(&IP_POOL.into(), &"77".into());
    assert!(matches!(watch.next().await, Some(Ok(batch)) if matches!(batch.events[..], [Event::Delete { .. }])));
}

#[tokio::test]
async fn faults_do_what_they_say() {
    let store = MemoryStore::new();
    let (_, revision) = list(&store).await;
    for (fault, good) in [(WatchFault::Ends, true), (WatchFault::Breaks, true), (WatchFault::Expires, false)] {
        let mut watch = store.watch(&IP_POOL.into(), &revision);
        assert!(watch.next().now_or_never().is_none());
        store.end_watches(&IP_POOL, fault);
        match (fault, watch.next().await) {
            (WatchFault::Ends, None)
            | (WatchFault::Breaks, Some(Err(Error::Retry { .. })))
            | (WatchFault::Expires, Some(Err(Error::Relist { .. }))) => {}
            (fault, other) => panic!("{fault:?} gave {other:?}"),
        }
        let again = store.watch(&IP_POOL.into(), &revision).next().now_or_never();
        assert_eq!(again.is_none(), good, "{again:?}");
    }
    store.refuse(&IP_POOL, 1);
    assert!(matches!(store.list(&IP_POOL.into()).next().await, Some(Err(Error::Retry { .. }))));
    let (_, revision) = list(&store).await;
    let mut watch = store.watch(&IP_POOL.into(), &revision);
    store.set_absent(&IP_POOL, true);
    assert!(matches!(watch.next().await, Some(Err(Error::KindAbsent { .. }))));
    assert!(matches!(store.list(&IP_POOL.into()).next().await, Some(Err(Error::KindAbsent { .. }))));
    store.set_absent(&IP_POOL, false);
    store.set_forbidden(&IP_POOL, true);
    assert!(matches!(store.list(&IP_POOL.into()).next().await, Some(Err(Error::Forbidden { .. }))));
}

#[tokio::test]
async fn pages_that_are_held_twice_are_all_released() {
    let store = MemoryStore::new();
    store.hold_pages(&IP_POOL);
    let mut first = store.list(&IP_POOL.into());
    assert!(first.next().now_or_never().is_none());
    store.hold_pages(&IP_POOL);
    let mut second = store.list(&IP_POOL.into());
    assert!(second.next().now_or_never().is_none());
    store.release_pages(&IP_POOL, 2);
    for list in [&mut first, &mut second] {
        assert!(matches!(list.next().now_or_never(), Some(Some(Ok(_)))));
    }
}

#[tokio::test]
async fn held_pages_come_as_they_are_released() {
    let store = MemoryStore::new();
    store.set_page_size(1);
    store.load(&IP_POOL, vec![object("a", "1"), object("b", "2")], "9".into());
    store.hold_pages(&IP_POOL);
    let mut pages = store.list(&IP_POOL.into());
    assert!(pages.next().now_or_never().is_none());
    store.release_pages(&IP_POOL, 1);
    assert!(matches!(pages.next().await, Some(Ok(page)) if &*page.revision == "9"));
    assert!(pages.next().now_or_never().is_none());
    store.release_pages(&IP_POOL, 1);
    assert!(pages.next().await.is_some() && pages.next().await.is_none());
}

#[tokio::test]
async fn kinds_are_those_that_were_put_until_they_are_absent() {
    let store = MemoryStore::new();
    let patterns = ["projectcalico.org/*", "v1/Pod"].map(|text| text.parse().unwrap());
    let mut kinds = store.kinds(&patterns);
    let mut said = async || {
        let KindsNow { kinds, unknown } = kinds.next().await.expect("it does not end").expect("it does not fail");
        let unknown = unknown.iter().map(|unknown| format!("? {}", unknown.pattern));
        kinds.iter().map(ToString::to_string).chain(unknown).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(said().await, "? projectcalico.org/*, ? v1/Pod");
    store.put(&POD, object("a", ""));
    assert_eq!(said().await, "v1/Pod, ? projectcalico.org/*");
    store.put(&POD, object("b", ""));
    store.put(&IP_POOL, object("a", ""));
    assert_eq!(said().await, "v1/Pod, projectcalico.org/v3/IPPool");
    store.set_gone(&POD);
    assert_eq!(said().await, "projectcalico.org/v3/IPPool, ? v1/Pod");
}
