//! Kinds that may not be read, and kinds that are not there.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_datastore_that_refuses_is_asked_again_and_nothing_is_said_meanwhile() {
    let store = MemoryStore::new();
    store.refuse(&IP_POOL, 6);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    let start = tokio::time::Instant::now();
    expect!(watched, "start", "end");
    let elapsed = start.elapsed();
    // 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 s, each with up to half of it off.
    assert!((6_300..=12_600).contains(&elapsed.as_millis()), "{elapsed:?}");
    assert_eq!(watched.store.lists(&IP_POOL), 7);
}

#[tokio::test(start_paused = true)]
async fn a_refused_watch_does_not_lead_to_a_list() {
    let mut watched = Watched::start(MemoryStore::new(), &IP_POOL, 1);
    expect!(watched, "start", "end");
    watched.store.watched(&IP_POOL, 1).await;
    watched.store.refuse(&IP_POOL, 3);
    watched.store.end_watches(&IP_POOL, WatchFault::Breaks);
    watched.store.put(&IP_POOL, object("a"));
    expect!(watched, "~ +a");
    assert_eq!((watched.store.lists(&IP_POOL), watched.store.watches(&IP_POOL)), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn an_absent_kind_is_told_and_looked_for_again() {
    for (kind, pause) in [(&IP_POOL, Duration::from_secs(5)), (&VM_INSTANCE_MIGRATION, LOOK_SELDOM)] {
        let store = MemoryStore::new();
        store.set_absent(kind, true);
        let mut watched = Watched::start(store, kind, 1);
        expect!(watched, "absent");
        assert_eq!(watched.phase(), Phase::Absent);
        let start = tokio::time::Instant::now();
        let mut status = watched.statuses.borrow()[0].clone();
        status.mark_unchanged();
        expect!(watched, "absent");
        assert_eq!(start.elapsed(), pause);
        expect!(watched, "absent");
        assert!(!status.has_changed().expect("the watch runs"), "to look for it is no news");
        watched.store.set_absent(kind, false);
        watched.store.put(kind, object("a"));
        expect!(watched, "start", "objects a", "end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_becomes_absent_is_told_without_a_delete_until_it_is_certainly_gone() {
    let store = MemoryStore::new();
    store.put(&IP_POOL, object("a"));
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "start", "objects a", "end");
    // First nobody knows for certain.
    watched.store.set_absent(&IP_POOL, true);
    expect!(watched, "absent");
    watched.store.set_gone(&IP_POOL);
    // Told as an empty list, once.
    expect!(watched, "start", "end", "absent", "absent");
    watched.store.set_absent(&IP_POOL, false);
    expect!(watched, "start", "objects a", "end");
    watched.store.set_gone(&IP_POOL);
    expect!(watched, "start", "end", "absent");
}

#[tokio::test(start_paused = true)]
async fn forbidden_is_lost_in_the_end_and_heals_when_permitted() {
    let store = MemoryStore::new();
    store.set_forbidden(&IP_POOL, true);
    let mut watched = Watched::start(store, &IP_POOL, 1);
    expect!(watched, "lost");
    assert!(watched.store.lists(&IP_POOL) < 30, "asked slowly");
    let error = watched.statuses.borrow()[0].borrow().error.clone().expect("the status says why");
    assert!(error.contains("not permitted"), "{error}");
    watched.store.set_forbidden(&IP_POOL, false);
    expect!(watched, "start", "end");
}

/// The role of an older release permits only what its own Typha reads, and the API server says of kinds that are not installed that they
/// are not permitted.
#[tokio::test(start_paused = true)]
async fn a_kind_that_the_clusters_calico_does_not_read_is_not_missed_where_it_is_not_permitted() {
    let store = MemoryStore::new();
    store.set_forbidden(&TIER, true);
    let release = tokio::sync::watch::Sender::new(None);
    let mut hub = KindHub::new(Arc::new(store.clone()), 1).with_policy(Cluster::of(release.subscribe()));
    let (sender, mut events) = mpsc::channel(8);
    hub.subscribe(TIER, Subscriber::new(7, sender));
    let (other, _others) = mpsc::channel(8);
    hub.subscribe(POD, Subscriber::new(8, other));
    let statuses = hub.statuses();
    let running = tokio::spawn(hub.run(CancellationToken::new()));
    let silent = async |events: &mut mpsc::Receiver<(usize, KindEvent)>| {
        tokio::time::timeout(Duration::from_secs(300), next(events)).await.expect_err("nothing comes")
    };
    let status = || {
        let all = statuses.borrow();
        all.iter().map(|status| status.borrow().clone()).find(|status| status.kind == TIER.to_string()).unwrap()
    };
    let phase = || status().phase;
    silent(&mut events).await;
    assert_eq!(phase(), Phase::Retrying, "nobody knows what the cluster runs");
    release.send_replace(Some(Release::V3_29));
    silent(&mut events).await;
    assert_eq!(phase(), Phase::Retrying, "3.29 reads tiers");
    let told = Instant::now();
    release.send_replace(Some(Release::V3_28));
    assert_eq!(next(&mut events).await, "absent");
    assert_eq!(told.elapsed(), Duration::ZERO, "at once");
    assert_eq!(phase(), Phase::Absent);
    let error = status().error.unwrap();
    assert!(error.contains("not permitted") && error.contains("v3.28"), "{error}");
    // The cluster is upgraded, its role first.
    store.put(&TIER, object("a"));
    store.set_forbidden(&TIER, false);
    for expected in ["start", "objects a", "end"] {
        loop {
            let event = next(&mut events).await;
            if event != "absent" {
                assert_eq!(event, expected);
                break;
            }
        }
    }
    assert_eq!(status().error, None);
    // Objects that were there once are missed.
    store.set_forbidden(&TIER, true);
    silent(&mut events).await;
    assert_eq!(phase(), Phase::Retrying);
    running.abort();
}

/// An API server that has just begun permits nothing until it has read its roles. Its refusal tells nothing of the kind.
#[tokio::test(start_paused = true)]
async fn a_refusal_before_anything_was_permitted_makes_no_kind_absent() {
    let store = MemoryStore::new();
    store.put(&TIER, object("a"));
    for kind in [&TIER, &POD] {
        store.set_forbidden(kind, true);
    }
    let release = tokio::sync::watch::Sender::new(Some(Release::V3_28));
    let mut hub = KindHub::new(Arc::new(store.clone()), 1).with_policy(Cluster::of(release.subscribe()));
    let (sender, mut events) = mpsc::channel(8);
    let (other, _others) = mpsc::channel(8);
    hub.subscribe(TIER, Subscriber::new(7, sender));
    hub.subscribe(POD, Subscriber::new(8, other));
    let running = tokio::spawn(hub.run(CancellationToken::new()));
    tokio::time::timeout(Duration::from_secs(300), next(&mut events)).await.expect_err("nothing comes");
    for kind in [&TIER, &POD] {
        store.set_forbidden(kind, false);
    }
    for expected in ["start", "objects a", "end"] {
        assert_eq!(next(&mut events).await, expected);
    }
    running.abort();
}
