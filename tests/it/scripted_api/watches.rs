//! Watches: their position after a cut, reasons for a new list, and unreadable events.

use bulrush::calico::kinds;
use bulrush::datastore::Datastore;
use futures_util::StreamExt;

use super::*;
use crate::scripted::{self, Asked, Feed, ScriptedApi, status};

/// A kind watch that listed `a@5` at revision 10 and follows the returned stream.
async fn following() -> (Watching, ScriptedApi, Feed) {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let feed = listed(api.watch(PODS).await, &[pod("a", "5")], "10");
    watching.says_in_turn(&["list", "objects n/a@5", "listed 10"]).await;
    (watching, api, feed)
}

/// Answers with a streaming list.
fn listed(asked: Asked, objects: &[Json], revision: &str) -> Feed {
    assert!(asked.wants_initial_events());
    let feed = asked.stream();
    for object in objects {
        feed.event("ADDED", object);
    }
    feed.bookmark(revision, true);
    feed
}

#[tokio::test(start_paused = true)]
async fn a_cut_watch_goes_on_at_the_last_revision_without_a_list() {
    let (mut watching, mut api, mut feed) = following().await;
    for (round, revision) in ["12", "14", "16", "18"].into_iter().enumerate() {
        feed.event("MODIFIED", &pod("a", revision));
        assert_eq!(watching.says().await, format!("put n/a@{revision} to {revision}"));
        match round {
            0 => drop(feed),
            1 => feed.cut(),
            // Half a line, then an end or a break: the unfinished event comes again.
            2 => {
                feed.raw(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namesp"#);
                drop(feed);
            }
            _ => {
                feed.raw(
                    r#"{"type":"DELETED","object":{"metadata":{"name":"a","namespace":"n","resourceVersion":"19"}}}"#,
                );
                feed.cut();
            }
        }
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), (revision, false), "round {round}");
        feed = asked.stream();
    }
    watching.assert_silent();
    feed.event("DELETED", &pod("a", "19"));
    assert_eq!(watching.says().await, "gone n/a to 19");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_position_and_confirm_that_the_watch_is_up_to_date() {
    let (mut watching, mut api, feed) = following().await;
    feed.bookmark("30", false);
    let KindEvent::Changes(batch) = watching.next().await.1 else { panic!("a batch") };
    assert_eq!((batch.events.len(), &*batch.revision), (0, "30"));
    assert_eq!(batch.as_of.as_ref().map(|as_of| &*as_of.revision), Some("30"));
    // The same position again confirms nothing: the server's own watch may hang.
    feed.bookmark("30", false);
    let KindEvent::Changes(batch) = watching.next().await.1 else { panic!("a batch") };
    assert_eq!((&*batch.revision, &batch.as_of), ("30", &None));
    // A bookmark without a position is ignored.
    feed.event("BOOKMARK", &json!({"metadata": {}}));
    feed.event("BOOKMARK", &json!(7));
    drop(feed);
    let asked = loop {
        tokio::select! {
            asked = api.next() => break asked,
            said = watching.says() => assert_eq!(said, " to 30"),
        }
    };
    assert_eq!(asked.query("resourceVersion"), "30");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_sign_of_life_is_opened_again_where_it_was() {
    // Another program is at fault, or nothing has happened in the whole cluster; also if the newest revision is unknown.
    for newest in ["10", "12", "not a number", ""] {
        let (mut watching, mut api, feed) = following().await;
        let asked = api.page(PODS).await;
        assert_eq!((asked.query("limit"), asked.query("resourceVersion")), ("1", ""));
        match newest {
            "" => asked.refuse(500, "InternalError", "etcd is away"),
            newest => asked.json(&page(&[pod("a", "5")], newest, "")),
        }
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false));
        assert!(!feed.is_read());
        watching.assert_silent();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_gone_back_in_time_is_listed() {
    let relisted = async |mut watching: Watching, mut api: ScriptedApi| {
        let _feed = listed(api.watch(PODS).await, &[pod("b", "4")], "6");
        watching.says_in_turn(&["list", "objects n/b@4", "listed 6"]).await;
        api.assert_idle();
    };
    // A bookmark shows it, and confirms nothing.
    let (watching, api, feed) = following().await;
    feed.bookmark("5", false);
    relisted(watching, api).await;
    // No event comes, until history would repeat.
    let (watching, mut api, _feed) = following().await;
    api.page(PODS).await.json(&page(&[pod("b", "4")], "6", ""));
    relisted(watching, api).await;
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_gone_means_one_list() {
    // As an answer, and as an event, in the words of servers.
    for answer in [
        (410, "Expired", "too old resource version: 10 (99)"),
        (410, "Gone", "gone"),
        (504, "Timeout", "Too large resource version: 10, current: 3"),
    ] {
        let (mut watching, mut api, feed) = following().await;
        drop(feed);
        let asked = api.watch(PODS).await;
        assert_eq!(asked.query("resourceVersion"), "10");
        asked.refuse(answer.0, answer.1, answer.2);
        let _feed = listed(api.watch(PODS).await, &[pod("b", "7")], "99");
        for expected in ["list", "objects n/b@7", "listed 99"] {
            assert_eq!(watching.says().await, expected, "{answer:?}");
        }
        api.assert_idle();
    }
    for (code, reason) in [(410, "Expired"), (410, "Gone"), (404, "NotFound"), (400, "BadRequest")] {
        let (mut watching, mut api, feed) = following().await;
        feed.event("ERROR", &status(code, reason, "too old resource version: 10 (99)"));
        let _feed = listed(api.watch(PODS).await, &[pod("b", "7")], "99");
        for expected in ["list", "objects n/b@7", "listed 99"] {
            assert_eq!(watching.says().await, expected, "{code} {reason}");
        }
        api.assert_idle();
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_says_nothing_about_the_position_means_no_list() {
    for object in
        [status(500, "InternalError", "etcd is away"), status(429, "TooManyRequests", "later"), json!({}), json!([])]
    {
        let (mut watching, mut api, feed) = following().await;
        feed.event("ERROR", &object);
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false), "{object}");
        watching.assert_silent();
    }
}

#[tokio::test(start_paused = true)]
async fn events_before_an_error_are_delivered_first() {
    let (mut watching, mut api, feed) = following().await;
    let put = json!({"type": "MODIFIED", "object": pod("a", "11")});
    let error = json!({"type": "ERROR", "object": status(410, "Expired", "gone")});
    feed.raw(format!("{put}\n{error}\n{put}\n"));
    assert_eq!(watching.says().await, "put n/a@11 to 11");
    let _feed = listed(api.watch(PODS).await, &[pod("a", "11")], "20");
    watching.says_in_turn(&["list", "objects n/a@11", "listed 20"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_no_event_means_a_list_and_nothing_is_lost() {
    for line in ["{\"type\":\"ADDED\",\"obj", "junk", "{}", "[]", "{\"type\":7,\"object\":{}}", "\u{0}"] {
        let (mut watching, mut api, feed) = following().await;
        feed.raw(format!("{line}\n"));
        // Later events of the same stream may depend on the line.
        feed.event("MODIFIED", &pod("a", "11"));
        let _feed = listed(api.watch(PODS).await, &[pod("a", "11"), pod("b", "9")], "20");
        for expected in ["list", "objects n/a@11 n/b@9", "listed 20"] {
            assert_eq!(watching.says().await, expected, "{line:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_reported_and_delays_nothing() {
    let (mut watching, mut api, feed) = following().await;
    let bad = |metadata: Json| json!({"kind": "Pod", "metadata": metadata});
    feed.event("MODIFIED", &bad(json!({"name": "a", "namespace": "n", "resourceVersion": 7})));
    assert_eq!(watching.says().await, "bad n/a to 10");
    feed.event("MODIFIED", &bad(json!({"name": "a", "namespace": "n", "resourceVersion": "12", "annotations": []})));
    assert_eq!(watching.says().await, "bad n/a to 10");
    feed.event("DELETED", &bad(json!({"name": "a", "namespace": "n", "resourceVersion": {}})));
    assert_eq!(watching.says().await, "gone n/a to 10");
    // Objects without a name cannot be reported.
    for object in [bad(json!({"name": 7})), bad(json!(["a", "n", "7"])), json!(["a"]), json!(null), json!("a")] {
        for what in ["ADDED", "MODIFIED", "DELETED", "SOMETHING NEW"] {
            feed.event(what, &object);
        }
    }
    feed.event("ADDED", &pod("b", "20"));
    let said = loop {
        match watching.says().await {
            said if said == " to 10" => {}
            said => break said,
        }
    };
    assert_eq!(said, "put n/b@20 to 20");
    api.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn an_event_of_absurd_length_leaves_its_object_out_and_nothing_else() {
    let (mut watching, mut api, feed) = following().await;
    feed.event("MODIFIED", &pod("b", "11"));
    assert_eq!(watching.says().await, "put n/b@11 to 11");
    let mut huge = pod("a", "12");
    huge["metadata"]["annotations"] = json!({"a": "x".repeat(33 << 20)});
    feed.event("MODIFIED", &huge);
    // The new list leaves it out as well, so agents' form of it is known to be outdated.
    let feed = listed(api.watch(PODS).await, &[huge, pod("b", "11")], "20");
    watching.says_in_turn(&["list", "objects n/b@11", "listed 20"]).await;
    feed.event("MODIFIED", &pod("b", "21"));
    assert_eq!(watching.says().await, "put n/b@21 to 21");
}

#[tokio::test(start_paused = true)]
async fn lines_may_arrive_in_pieces_of_any_size() {
    let (store, mut api) = scripted::start(|_| {});
    let batches = tokio::spawn(store.watch(&kinds::POD.into(), &"10".into()).collect::<Vec<_>>());
    let feed = api.watch(PODS).await.stream();
    let text: String =
        (11..20).map(|n| format!("{}\r\n\n", json!({"type": "ADDED", "object": pod("ä", &n.to_string())}))).collect();
    for piece in text.as_bytes().chunks(3) {
        feed.raw(piece.to_vec());
    }
    drop(feed);
    let batches = batches.await.expect("no panic");
    let said: String =
        batches.into_iter().map(|batch| words(KindEvent::Changes(Arc::new(batch.expect("good")))) + "; ").collect();
    let expected: String = (11..20).map(|n| format!("put n/ä@{n} to {n}; ")).collect();
    assert_eq!(said, expected);
}
