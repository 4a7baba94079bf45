//! A server that is busy, broken or away, or that refuses our credentials.

use bulrush::calico::kinds;
use tokio::time::Instant;

use super::*;
use crate::scripted::{self, ScriptedApi};

const NODES: &str = "/api/v1/nodes";

/// Waits until the kind watch has delivered a whole list.
async fn until_listed(watching: &mut Watching, revision: &str) {
    loop {
        match watching.says().await {
            said if said == format!("listed {revision}") => return,
            said => assert!(said == "list" || said.starts_with("objects"), "{said}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_asked_again_before_the_time_that_it_asks_for() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let asked = api.watch(PODS).await;
    let at = asked.at;
    asked.answer(429, &[("retry-after", "17")], "too many requests");
    let asked = api.watch(PODS).await;
    let waited = asked.at - at;
    assert!((17.0..30.0).contains(&waited.as_secs_f64()), "{waited:?}");
    // In the status instead of the header, and longer than we are willing to wait.
    let at = asked.at;
    let mut status = scripted::status(429, "TooManyRequests", "busy");
    status["details"] = json!({"retryAfterSeconds": 3600});
    asked.answer(429, &[], status.to_string());
    let asked = api.watch(PODS).await;
    let waited = asked.at - at;
    assert!((60.0..75.0).contains(&waited.as_secs_f64()), "{waited:?}");
    serve(asked, &[pod("a", "1")], "10");
    until_listed(&mut watching, "10").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_too_busy_for_one_kind_is_not_asked_for_others() {
    let (store, mut api) = scripted::start(|_| {});
    let watching = Watching::start(store, &[kinds::POD, kinds::K8S_NODE]);
    let (first, second) = (api.next().await, api.next().await);
    let at = first.at;
    first.answer(429, &[("retry-after", "20")], "");
    drop(second);
    for _ in 0..2 {
        let asked = api.next().await;
        assert!(asked.at - at >= Duration::from_secs(20), "{:?}", asked.at - at);
        serve(asked, &[], "10");
    }
    drop(watching);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_too_busy_is_not_asked_for_all_kinds_at_once() {
    const KINDS: [bulrush::datastore::Kind; 6] =
        [kinds::POD, kinds::K8S_NODE, kinds::NAMESPACE, kinds::SERVICE_ACCOUNT, kinds::SERVICE, kinds::ENDPOINT_SLICE];
    let (store, mut api) = scripted::start(|_| {});
    let watching = Watching::start(store, &KINDS);
    let mut asked = Vec::new();
    for _ in KINDS {
        asked.push(api.next().await);
    }
    let at = asked[0].at;
    for asked in asked {
        asked.answer(429, &[("retry-after", "20")], "");
    }
    // The first kind to ask is refused again: the others learn of it before they ask.
    let first = api.next().await;
    let again = first.at;
    assert!((20.0..22.1).contains(&(again - at).as_secs_f64()), "{:?}", again - at);
    first.answer(429, &[("retry-after", "30")], "");
    let mut waited = Vec::new();
    for _ in KINDS {
        let asked = api.next().await;
        waited.push((asked.at - again).as_secs_f64());
        serve(asked, &[], "10");
    }
    assert!(waited.iter().all(|waited| (30.0..32.1).contains(waited)), "{waited:?}");
    assert!(waited[5] - waited[0] > 0.1, "spread: {waited:?}");
    drop(watching);
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_ever_more_slowly_and_never_lose_anything() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let mut last = Instant::now();
    let mut pauses = Vec::new();
    for round in 0..12 {
        let asked = api.watch(PODS).await;
        pauses.push((asked.at - last).as_secs_f64());
        last = asked.at;
        match round % 4 {
            0 => asked.refuse(500, "InternalError", "etcd is away"),
            1 => asked.answer(503, &[], "no backends"),
            2 => asked.answer(502, &[("content-type", "text/html")], "<html>bad gateway</html>"),
            // No answer at all.
            _ => drop(asked),
        }
    }
    assert!(pauses[1] < 1.0 && pauses[11] > 2.0, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause < 20.0), "{pauses:?}");
    watching.assert_silent();
    serve(api.watch(PODS).await, &[pod("a", "1")], "10");
    watching.says_in_turn(&["list", "objects n/a@1", "listed 10"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_be_opened_again_costs_no_list() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let feed = api.watch(PODS).await.stream();
    feed.bookmark("10", true);
    until_listed(&mut watching, "10").await;
    feed.cut();
    for code in [500, 503, 401] {
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false));
        asked.answer(code, &[], "");
    }
    drop(api.watch(PODS).await);
    let asked = api.watch(PODS).await;
    assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false));
    let feed = asked.stream();
    feed.event("ADDED", &pod("a", "11"));
    assert_eq!(watching.says().await, "put n/a@11 to 11");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_again_and_again_at_the_server_is_replaced_by_a_list() {
    for (refused, reason) in [(0, ""), (500, "InternalError"), (400, "BadRequest")] {
        let (store, mut api) = scripted::start(|_| {});
        let mut watching = Watching::start(store, &[kinds::POD]);
        serve_then_drop(&mut api, &mut watching).await;
        let began = Instant::now();
        let mut watches = 0;
        let asked = loop {
            let asked = api.watch(PODS).await;
            if asked.wants_initial_events() {
                break asked;
            }
            watches += 1;
            match refused {
                0 => asked.stream().event("ERROR", &scripted::status(500, "InternalError", "cannot convert")),
                code => asked.refuse(code, reason, "cannot convert"),
            }
        };
        assert_eq!(watches, 5, "{refused}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        serve(asked, &[], "20");
        watching.says_in_turn(&["list", "listed 20"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_busy_for_minutes_costs_no_list() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    serve_then_drop(&mut api, &mut watching).await;
    let began = Instant::now();
    for round in 0.. {
        let asked = api.watch(PODS).await;
        assert_eq!((asked.query("resourceVersion"), asked.wants_initial_events()), ("10", false));
        if began.elapsed() > Duration::from_secs(300) {
            break;
        }
        match round % 6 {
            0 => drop(asked),
            1 => asked.refuse(503, "ServiceUnavailable", "shutting down"),
            2 => asked.refuse(429, "TooManyRequests", "later"),
            3 => asked.answer(502, &[], "bad gateway"),
            4 => asked.refuse(504, "Timeout", "etcd does not answer"),
            _ => asked.refuse(401, "Unauthorized", "Unauthorized"),
        }
    }
    watching.assert_silent();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up_and_asked_again() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    let hanging = api.watch(PODS).await;
    let asked = api.watch(PODS).await;
    assert!(asked.at - hanging.at >= Duration::from_secs(60), "{:?}", asked.at - hanging.at);
    serve(asked, &[], "10");
    until_listed(&mut watching, "10").await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_told_that_the_datastore_is_lost_after_ten_minutes_and_nothing_is_deleted() {
    let (store, mut api) = scripted::start(|_| {});
    let mut watching = Watching::start(store, &[kinds::POD]);
    serve_then_drop(&mut api, &mut watching).await;
    let silent_since = Instant::now();
    let said = loop {
        tokio::select! {
            asked = api.next() => drop(asked),
            said = watching.says() => break said,
        }
    };
    assert_eq!(said, "lost");
    assert!(silent_since.elapsed() >= Duration::from_secs(600));
    serve(api.next().await, &[pod("a", "1")], "20");
    until_listed(&mut watching, "20").await;
}

async fn serve_then_drop(api: &mut ScriptedApi, watching: &mut Watching) {
    let feed = api.watch(PODS).await.stream();
    feed.event("ADDED", &pod("a", "1"));
    feed.bookmark("10", true);
    until_listed(watching, "10").await;
    feed.cut();
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_tried_again() {
    let (store, mut api) = scripted::start(|_| {});
    let mut hub = KindHub::new(Arc::new(store), 1);
    let (sender, _events) = mpsc::channel(100);
    hub.subscribe(kinds::POD, Subscriber::new(0, sender));
    let statuses = hub.statuses();
    let _running = tokio::spawn(hub.run(CancellationToken::new()));
    api.watch(PODS).await.refuse(401, "Unauthorized", "Unauthorized");
    let asked = api.watch(PODS).await;
    let error = statuses.borrow()[0].borrow().error.clone().expect("the status has the reason");
    assert!(error.contains("list pods") && error.contains("token"), "{error}");
    serve(asked, &[], "10");
    let mut status = statuses.borrow()[0].clone();
    let good = tokio::time::timeout(PATIENCE, status.wait_for(|status| status.error.is_none())).await;
    good.expect("in time").expect("the watch runs");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_named_with_its_missing_rule_while_other_kinds_go_on() {
    let (store, mut api) = scripted::start(|_| {});
    let mut hub = KindHub::new(Arc::new(store), 1);
    let (sender, mut events) = mpsc::channel(100);
    for (tag, kind) in [kinds::IP_POOL, kinds::K8S_NODE].into_iter().enumerate() {
        hub.subscribe(kind, Subscriber::new(tag, sender.clone()));
    }
    let statuses = hub.statuses();
    let _running = tokio::spawn(hub.run(CancellationToken::new()));
    let mut refused = Vec::new();
    while refused.len() < 4 {
        let asked = api.next().await;
        if asked.path == NODES {
            serve(asked, &[json!({"metadata": {"name": "n1", "resourceVersion": "3"}})], "10");
            continue;
        }
        assert_eq!(asked.path, "/apis/crd.projectcalico.org/v1/ippools");
        refused.push(asked.at);
        asked.refuse(403, "Forbidden", "ippools is forbidden: User \"u\" cannot list resource \"ippools\"");
    }
    let mut said = Vec::new();
    while let Ok((tag, event)) = events.try_recv() {
        said.push(format!("{tag} {}", words(event)));
    }
    assert_eq!(said, ["1 list", "1 objects n1@3", "1 listed 10"]);
    // Pauses of 5, 10 and 20 seconds, each less a jitter of at most half.
    let apart: Vec<Duration> = refused.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (apart, whole) in apart.iter().zip([5, 10, 20].map(Duration::from_secs)) {
        assert!((whole / 2..whole + Duration::from_secs(1)).contains(apart), "{apart:?}, not {whole:?}: {refused:?}");
    }
    let errors: Vec<String> = statuses.borrow().iter().filter_map(|status| status.borrow().error.clone()).collect();
    let [error] = &errors[..] else { panic!("one kind is in trouble: {errors:?}") };
    for part in [
        "list ippools.crd.projectcalico.org",
        "cannot list resource",
        r#"{apiGroups: ["crd.projectcalico.org"], resources: ["ippools"], verbs: ["list", "watch"]}"#,
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_requests_is_kept() {
    let (store, mut api) = scripted::start(|config| {
        config.qps = 2.0;
        config.burst = 1;
    });
    let all = [kinds::POD, kinds::K8S_NODE, kinds::NAMESPACE, kinds::SERVICE, kinds::TIER];
    let watching = Watching::start(store, &all);
    let mut times = Vec::new();
    for _ in &all {
        let asked = api.next().await;
        times.push(asked.at);
        serve(asked, &[], "10");
    }
    assert!(times[4] - times[1] >= Duration::from_millis(1500), "{times:?}");
    drop(watching);
}
