//! A server that does not know a kind, for a time or for ever, and the definitions of kinds.

use bulrush::calico::bootstrap::{InitOptions, initialise};
use bulrush::calico::catalog::{CalicoGroup, catalog};
use bulrush::calico::kinds;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::*;
use crate::scripted::{self, Asked, Definitions};

const POOLS: &str = "/apis/crd.projectcalico.org/v1/ippools";
/// The name of the pools' definition.
const POOLS_DEFINED: &str = "ippools.crd.projectcalico.org";

/// Answers as an API server does for an unknown path.
fn not_known(asked: Asked) {
    asked.answer(404, &[], "404 page not found\n");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_does_not_know_is_absent_and_noticed_within_seconds_of_its_definition() {
    let definitions = Definitions::of(&["others.example.org"]);
    let (store, mut api) = scripted::start_with(&definitions, |_| {});
    let mut watching = Watching::start(store, &[kinds::IP_POOL]);
    let began = Instant::now();
    not_known(api.watch(POOLS).await);
    assert_eq!(watching.says().await, "absent");
    assert_eq!(began.elapsed(), Duration::ZERO, "nothing defines it");
    definitions.add(POOLS_DEFINED);
    let since = Instant::now();
    // A kind is served a moment after its definition.
    for _ in 0..2 {
        not_known(api.watch(POOLS).await);
        assert_eq!(watching.says().await, "absent");
    }
    let asked = api.watch(POOLS).await;
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    serve(asked, &[json!({"metadata": {"name": "p", "resourceVersion": "7"}})], "10");
    watching.says_in_turn(&["list", "objects p@7"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_defined_kind_that_the_server_does_not_know_at_first_is_not_absent() {
    let (store, mut api) = scripted::start_with(&Definitions::of(&[POOLS_DEFINED]), |_| {});
    let mut watching = Watching::start(store, &[kinds::IP_POOL]);
    not_known(api.watch(POOLS).await);
    let asked = api.watch(POOLS).await;
    watching.says_nothing_for(Duration::from_secs(5)).await;
    serve(asked, &[json!({"metadata": {"name": "p", "resourceVersion": "7"}})], "10");
    watching.says_in_turn(&["list", "objects p@7", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_absent_within_seconds_where_definitions_may_not_be_seen_or_do_not_help() {
    // The definition may be of another version.
    for definitions in [Definitions::default(), Definitions::of(&[POOLS_DEFINED])] {
        let (store, mut api) = scripted::start_with(&definitions, |_| {});
        let mut watching = Watching::start(store, &[kinds::IP_POOL]);
        let began = Instant::now();
        let said = loop {
            tokio::select! {
                asked = api.next() => not_known(asked),
                said = watching.says() => break said,
            }
        };
        assert_eq!(said, "absent");
        assert!((3..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_that_never_come_are_asked_for_again() {
    let definitions = Definitions::silent();
    let (store, mut api) = scripted::start_with(&definitions, |_| {});
    let mut watching = Watching::start(store, &[kinds::IP_POOL]);
    let began = Instant::now();
    let mut served = false;
    let said = loop {
        tokio::select! {
            asked = api.next() => not_known(asked),
            said = watching.says() => break said,
        }
        if !std::mem::replace(&mut served, true) {
            definitions.serve(&[]);
        }
    };
    assert_eq!(said, "absent");
    assert!((60..90).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_a_restarting_server_cuts_off_does_not_make_the_kind_absent() {
    let (store, mut api) = scripted::start_with(&Definitions::of(&[POOLS_DEFINED]), |_| {});
    let mut watching = Watching::start(store, &[kinds::IP_POOL]);
    let feed = api.watch(POOLS).await.stream();
    for n in 0..500 {
        feed.event("ADDED", &json!({"metadata": {"name": format!("p{n}"), "resourceVersion": "7"}}));
    }
    assert_eq!(watching.says().await, "list");
    assert!(watching.says().await.starts_with("objects"));
    feed.cut();
    not_known(api.watch(POOLS).await);
    let asked = api.watch(POOLS).await;
    watching.assert_silent();
    serve(asked, &[], "10");
    watching.says_in_turn(&["list", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_at_which_there_is_no_api_server_promises_nothing() {
    const PATIENCE: Duration = Duration::from_secs(300);
    for (group, body) in [
        (None, "404 page not found\n"),
        (Some(CalicoGroup::CrdV1), "404 page not found\n"),
        (Some(CalicoGroup::CrdV1), "<html>nothing here</html>"),
    ] {
        let (store, mut api) =
            scripted::start_with(&Definitions::not_found(), |config| config.catalog = catalog(group));
        let mut watching = Watching::start(store.clone(), &[kinds::POD, kinds::TIER, kinds::CALICO_NODE_STATUS]);
        let (may_serve, mut told) = oneshot::channel();
        let initialising = tokio::spawn(async move { initialise(&store, &InitOptions::default(), may_serve).await });
        let answering = async {
            while let Some(asked) = api.recv().await {
                asked.answer(404, &[], body);
            }
        };
        assert!(tokio::time::timeout(PATIENCE, answering).await.is_err(), "the store goes on asking");
        watching.assert_silent();
        assert!(told.try_recv().is_err(), "{group:?}: there is nothing to serve");
        initialising.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_that_every_server_has_are_never_deleted_because_of_an_answer() {
    let (store, mut api) = scripted::start_with(&Definitions::of(&[]), |_| {});
    let mut watching = Watching::start(store, &[kinds::POD, kinds::IP_POOL]);
    let mut feed = None;
    for _ in 0..2 {
        let asked = api.next().await;
        if asked.path == PODS {
            let pods = asked.stream();
            pods.event("ADDED", &pod("a", "5"));
            pods.bookmark("10", true);
            feed = Some(pods);
        } else {
            not_known(asked);
        }
    }
    for _ in 0..4 {
        let said = watching.says().await;
        assert!(["absent", "list", "objects n/a@5", "listed 10"].contains(&&*said), "{said}");
    }
    feed.expect("pods are watched").cut();
    for _ in 0..20 {
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false));
        not_known(asked);
    }
    watching.assert_silent();
    api.watch(PODS).await.stream().event("ADDED", &pod("b", "11"));
    assert_eq!(watching.says().await, "put n/b@11 to 11");
}

#[tokio::test(start_paused = true)]
async fn objects_are_gone_with_the_definition_that_they_had_and_never_without_one() {
    for defined in [true, false] {
        let definitions = Definitions::of(if defined { &[POOLS_DEFINED] } else { &[] });
        let (store, mut api) = scripted::start_with(&definitions, |_| {});
        let mut watching = Watching::start(store, &[kinds::IP_POOL]);
        let feed = api.watch(POOLS).await.stream();
        feed.event("ADDED", &json!({"metadata": {"name": "p", "resourceVersion": "7"}}));
        feed.bookmark("10", true);
        watching.says_in_turn(&["list", "objects p@7", "listed 10"]).await;
        definitions.remove(POOLS_DEFINED);
        // The kind's own watch is still open.
        watching.says_nothing_for(Duration::from_secs(1)).await;
        feed.cut();
        let said = loop {
            tokio::select! {
                asked = api.next() => not_known(asked),
                said = watching.says() => break said,
            }
        };
        if defined {
            assert_eq!(said, "list");
            watching.says_in_turn(&["listed ", "absent"]).await;
        } else {
            assert_eq!(said, "absent");
        }
        watching.assert_silent();
    }
}

#[tokio::test(start_paused = true)]
async fn the_group_of_calicos_kinds_is_asked_for_once() {
    let (store, mut api) = scripted::start(|config| config.catalog = catalog(None));
    let mut watching = Watching::start(store, &[kinds::IP_POOL, kinds::TIER, kinds::K8S_NODE]);
    let mut paths = Vec::new();
    while paths.len() < 5 {
        let asked = api.next().await;
        paths.push(asked.path.clone());
        match asked.path.as_str() {
            // A failed discovery decides nothing.
            "/apis" if paths.iter().filter(|path| *path == "/apis").count() == 1 => drop(asked),
            "/apis" => asked
                .json(&json!({"kind": "APIGroupList", "groups": [{"name": "apps"}, {"name": "projectcalico.org"}]})),
            _ => serve(asked, &[], "10"),
        }
    }
    paths.sort_unstable();
    let expected =
        ["/api/v1/nodes", "/apis", "/apis", "/apis/projectcalico.org/v3/ippools", "/apis/projectcalico.org/v3/tiers"];
    assert_eq!(paths, expected);
    for _ in 0..6 {
        watching.next().await;
    }
    api.assert_idle();
}
