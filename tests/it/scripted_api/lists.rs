//! Lists: as a stream that goes on as the watch, in pages, and with faults.

use bulrush::calico::kinds;
use bulrush::datastore::{Datastore, Error};
use futures_util::StreamExt;

use super::*;
use crate::scripted::{self, ScriptedApi, status};

/// Refuses the streaming list, as servers before 1.32 do.
async fn refuse_stream(api: &mut ScriptedApi) {
    let asked = api.watch(PODS).await;
    assert!(asked.wants_initial_events());
    asked.refuse(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_goes_on_as_the_watch() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let asked = api.watch(PODS).await;
    let parameters = ["sendInitialEvents", "resourceVersionMatch", "allowWatchBookmarks", "resourceVersion"];
    assert_eq!(parameters.map(|name| asked.query(name)), ["true", "NotOlderThan", "true", ""]);
    let feed = asked.stream();
    feed.event("ADDED", &pod("a", "5"));
    feed.event("ADDED", &pod("b", "3"));
    feed.bookmark("10", true);
    watching.says_in_turn(&["list", "objects n/a@5 n/b@3", "listed 10"]).await;
    feed.event("MODIFIED", &pod("a", "11"));
    assert_eq!(watching.says().await, "put n/a@11 to 11");
    api.assert_idle();
    // An end after that costs a watch from the same position, and no list.
    drop(feed);
    let asked = api.watch(PODS).await;
    assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("11", false));
}

#[tokio::test(start_paused = true)]
async fn changes_that_come_before_the_end_of_the_initial_events_belong_to_the_watch() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("a", "5"));
    feed.event("DELETED", &pod("a", "8"));
    feed.event("ADDED", &pod("b", "9"));
    feed.bookmark("10", true);
    watching.says_in_turn(&["list", "objects n/a@5", "listed 10", "gone n/a, put n/b@9 to 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_asked_for_pages_and_not_for_a_stream_again() {
    let (store, mut api) = scripted::start(|config| config.page_limit = 2);
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    let asked = api.page(PODS).await;
    assert_eq!((asked.query("limit"), asked.query("continue")), ("2", ""));
    asked.json(&page(&[pod("a", "1"), pod("b", "2")], "10", "more"));
    let asked = api.page(PODS).await;
    assert_eq!((asked.query("limit"), asked.query("continue")), ("2", "more"));
    asked.json(&page(&[pod("c", "3")], "10", ""));
    watching.says_in_turn(&["list", "objects n/a@1 n/b@2", "objects n/c@3", "listed 10"]).await;
    let asked = api.watch(PODS).await;
    assert_eq!(asked.query("resourceVersion"), "10");
    asked.refuse(410, "Expired", "too old resource version: 10 (20)");
    let asked = api.page(PODS).await;
    asked.json(&page(&[], "20", ""));
    watching.says_in_turn(&["list", "listed 20"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_an_end_of_the_initial_events_is_replaced_by_pages() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    // A server that does not know the parameter watches from now on, or replays without a mark at the end.
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("a", "5"));
    api.page(PODS).await.json(&page(&[pod("a", "5"), pod("b", "6")], "10", ""));
    assert!(!feed.is_read());
    watching.says_in_turn(&["list", "objects n/a@5 n/b@6", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_begins_anew_and_ends_once() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("a", "5"));
    feed.cut();
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("b", "6"));
    feed.bookmark("10", true);
    watching.says_in_turn(&["list", "objects n/b@6", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_expired_makes_the_list_begin_anew() {
    let (store, mut api) = scripted::start(|config| config.page_limit = 1);
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    api.page(PODS).await.json(&page(&[pod("a", "1")], "10", "more"));
    let asked = api.page(PODS).await;
    assert_eq!(asked.query("continue"), "more");
    asked.refuse(410, "Expired", "The provided continue parameter is too old");
    let asked = api.page(PODS).await;
    assert_eq!(asked.query("continue"), "");
    asked.json(&page(&[pod("b", "12")], "20", ""));
    watching.says_in_turn(&["list", "objects n/a@1", "list", "objects n/b@12", "listed 20"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_further_page_that_is_put_off_costs_no_new_list() {
    let (store, mut api) = scripted::start(|config| config.page_limit = 1);
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    api.page(PODS).await.json(&page(&[pod("a", "1")], "10", "more"));
    for code in [429, 503] {
        let asked = api.page(PODS).await;
        let at = asked.at;
        asked.answer(code, &[("retry-after", "7")], "busy");
        let again = api.page(PODS).await;
        assert_eq!(again.query("continue"), "more");
        assert!((again.at - at).as_secs() >= 7);
        again.answer(429, &[("retry-after", "1")], "busy");
    }
    api.page(PODS).await.json(&page(&[pod("b", "2")], "10", ""));
    watching.says_in_turn(&["list", "objects n/a@1", "objects n/b@2", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_is_asked_for_again_if_the_answer_is_no_list() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    // A status instead of a list, half a list, a compressed answer that was not asked for, a list of non-objects.
    api.page(PODS).await.json(&status(200, "", "fine"));
    api.page(PODS).await.answer(
        200,
        &[],
        &br#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"meta"#[..],
    );
    api.page(PODS).await.answer(200, &[("content-encoding", "gzip")], &b"\x1f\x8b\x08\0\0\0\0\0"[..]);
    api.page(PODS).await.json(&json!({"metadata": {"resourceVersion": "7"}, "items": {"a": 1}}));
    api.page(PODS).await.json(&json!([{"resourceVersion": "7"}, []]));
    watching.assert_silent();
    // Go sometimes writes an empty list as null.
    api.page(PODS).await.json(&json!({"metadata": {"resourceVersion": "7"}, "items": null}));
    watching.says_in_turn(&["list", "listed 7"]).await;
}

/// Objects without a name or version, and unreadable ones, among two good ones.
fn mixed() -> Vec<Json> {
    let mut items = vec![pod("a", "1")];
    items.push(json!({"metadata": {"name": "versionless", "namespace": "n"}}));
    items.push(json!({"metadata": {"name": "number", "namespace": "n", "resourceVersion": 7}}));
    items.push(json!({"metadata": {"name": ["list"], "resourceVersion": "7"}}));
    items.push(json!({"metadata": ["in-order", "n", "7"]}));
    items.push(json!({"metadata": null}));
    items.push(json!(["not", "an", "object"]));
    items.push(json!("text"));
    items.push(Json::Null);
    items.push(pod("z", "2"));
    items
}

#[tokio::test(start_paused = true)]
async fn bad_objects_of_a_list_are_named_and_the_others_arrive() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store.clone(), &[kinds::POD]);
    let feed = api.watch(PODS).await.stream();
    for item in mixed() {
        feed.event("ADDED", &item);
    }
    feed.bookmark("10", true);
    watching.says_in_turn(&["list", "objects n/a@1 n/z@2", "bad n/versionless n/number", "listed 10"]).await;

    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    api.page(PODS).await.json(&page(&mixed(), "10", ""));
    watching.says_in_turn(&["list", "objects n/a@1 n/z@2", "bad n/versionless n/number", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_utf8_harms_nothing_but_itself() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let mut line = format!("{}\n", json!({"type": "ADDED", "object": pod("a?", "5")})).into_bytes();
    let at = line.iter().position(|byte| *byte == b'?').expect("it is there");
    line[at] = 0xff;
    let feed = api.watch(PODS).await.stream();
    feed.raw(line);
    feed.event("ADDED", &pod("b", "6"));
    feed.bookmark("10", true);
    watching.says_in_turn(&["list", "objects n/a\u{fffd}@5 n/b@6", "listed 10"]).await;

    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    refuse_stream(&mut api).await;
    let mut body = page(&[pod("a?", "5"), pod("b", "6")], "10", "").to_string().into_bytes();
    let at = body.iter().position(|byte| *byte == b'?').expect("it is there");
    body[at] = 0xff;
    api.page(PODS).await.answer(200, &[], body);
    watching.says_in_turn(&["list", "objects n/a\u{fffd}@5 n/b@6", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_absurdly_large_object_is_left_out_and_the_others_arrive() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("a", "1"));
    let mut huge = pod("huge", "2");
    huge["metadata"]["annotations"] = json!({"a": "x".repeat(33 << 20)});
    feed.event("ADDED", &huge);
    feed.event("ADDED", &pod("b", "3"));
    // Large, but within the limit.
    let mut large = pod("large", "4");
    large["metadata"]["annotations"] = json!({"a": "x".repeat(8 << 20)});
    feed.event("ADDED", &large);
    feed.bookmark("10", true);
    assert_eq!(watching.says().await, "list");
    let mut objects = String::new();
    loop {
        match watching.says().await {
            said if said == "listed 10" => break,
            said => objects += said.strip_prefix("objects").expect("objects"),
        }
    }
    assert_eq!(objects, " n/a@1 n/b@3 n/large@4");
}

#[tokio::test(start_paused = true)]
async fn names_of_maximal_length_and_many_pages_arrive_whole() {
    let (store, mut api) = scripted::start(|config| config.page_limit = 3);
    let pages = tokio::spawn(store.list(&kinds::POD.into()).collect::<Vec<_>>());
    refuse_stream(&mut api).await;
    let name = |n: usize| format!("{}{n:03}", "x".repeat(250));
    for n in 0..50 {
        let more = if n < 49 { "more" } else { "" };
        api.page(PODS).await.json(&page(&[pod(&name(n), "1")], "10", more));
    }
    let pages: Vec<_> = pages.await.expect("no panic").into_iter().map(|page| page.expect("no failure")).collect();
    let names: Vec<_> = pages.iter().flat_map(|page| &page.objects).map(|object| object.id.name.to_string()).collect();
    assert_eq!(names, (0..50).map(name).collect::<Vec<_>>());
    assert!(pages.iter().all(|page| &*page.revision == "10"));
    let vouched: Vec<bool> = pages.iter().map(|page| page.as_of.is_some()).collect();
    assert_eq!(vouched.iter().filter(|vouched| **vouched).count(), 1);
    assert_eq!(vouched.last(), Some(&true));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_again_in_halves() {
    let (store, mut api) = scripted::start(|config| config.page_limit = 4);
    let pages = tokio::spawn(store.list(&kinds::POD.into()).collect::<Vec<_>>());
    refuse_stream(&mut api).await;
    let asked = api.page(PODS).await;
    assert_eq!(asked.query("limit"), "4");
    asked.answer(200, &[], vec![b' '; 257 << 20]);
    let asked = api.page(PODS).await;
    assert_eq!(asked.query("limit"), "2");
    asked.json(&page(&[pod("a", "1")], "10", ""));
    let pages = pages.await.expect("no panic");
    assert!(matches!(&pages[..], [Ok(page)] if page.objects.len() == 1), "{pages:?}");
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_failed_list_names_the_request() {
    let (store, mut api) =
        scripted::start(|config| config.endpoint = Some("https://api.example:6443".to_owned().into()));
    let pages = tokio::spawn(store.list(&kinds::IP_POOL.into()).collect::<Vec<_>>());
    api.watch("/apis/crd.projectcalico.org/v1/ippools").await.refuse(500, "InternalError", "etcdserver: no leader");
    let pages = pages.await.expect("no panic");
    let [Err(Error::Retry { doing, reason })] = &pages[..] else { panic!("{pages:?}") };
    assert_eq!(doing, "list ippools.crd.projectcalico.org from the API server at https://api.example:6443");
    assert!(reason.contains("etcdserver: no leader"), "{reason}");
}
