//! The kinds that meet patterns, by discovery: requests, late and deleted definitions, versions, and answers that fail.

use std::collections::BTreeMap;

use bulrush::datastore::{Datastore as _, Error, KindsNow, Pattern};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::scripted::{self, Definitions, ScriptedApi};

const MESH: &str = "/apis/mesh.io/v1";
const MESH_BETA: &str = "/apis/mesh.io/v1beta1";
const ROUTES_DEFINED: &str = "routes.mesh.io";
/// Longer than the slow look.
const A_WHILE: Duration = Duration::from_secs(70);

/// A server that answers discovery as a test says, and somebody who asks for kinds.
struct Bench {
    api: ScriptedApi,
    answers: BTreeMap<String, Json>,
    /// Codes of paths that fail.
    failing: BTreeMap<String, u16>,
    /// The requests, and when they came.
    asked: Vec<(String, Instant)>,
    kinds: BoxStream<'static, Result<KindsNow, Error>>,
    _store: KubernetesStore,
}

impl Bench {
    fn start(definitions: &Definitions, patterns: &[&str]) -> Self {
        let (store, api) = scripted::start_with(definitions, |_| {});
        let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
        let kinds = store.kinds(&patterns);
        let mut bench =
            Self { api, answers: BTreeMap::new(), failing: BTreeMap::new(), asked: Vec::new(), kinds, _store: store };
        bench.groups(&[("apps", &["v1"])]);
        bench.serves("/api/v1", &["Pod", "Service", "ConfigMap"]);
        bench.serves("/apis/apps/v1", &["Deployment"]);
        bench
    }

    /// The API groups besides the core group, with their versions, the preferred one first.
    fn groups(&mut self, groups: &[(&str, &[&str])]) {
        let groups: Vec<Json> = groups
            .iter()
            .map(|(name, versions)| {
                let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
                let versions: Vec<Json> = versions.iter().map(version).collect();
                json!({"name": name, "preferredVersion": versions[0], "versions": versions})
            })
            .collect();
        self.answers.insert("/apis".to_owned(), json!({"kind": "APIGroupList", "groups": groups}));
    }

    /// The kinds of a version.
    fn serves(&mut self, path: &str, kinds: &[&str]) {
        let resource = |kind: &&str| {
            let plural = format!("{}s", kind.to_lowercase());
            json!({"name": plural, "kind": kind, "namespaced": true, "verbs": ["get", "list", "watch"]})
        };
        let resources: Vec<Json> = kinds.iter().map(resource).collect();
        self.answers.insert(path.to_owned(), json!({"kind": "APIResourceList", "resources": resources}));
    }

    fn mesh(&mut self, versions: &[&str]) {
        self.groups(&[("apps", &["v1"]), ("mesh.io", versions)]);
    }

    /// The next item, in words.
    async fn says(&mut self) -> String {
        loop {
            tokio::select! {
                item = self.kinds.next() => return match item.expect("it does not end") {
                    Ok(KindsNow { kinds, unknown }) => {
                        let unknown = unknown.iter().map(|unknown| format!("? {}: {}", unknown.pattern, unknown.reason));
                        kinds.iter().map(ToString::to_string).chain(unknown).collect::<Vec<_>>().join(", ")
                    }
                    Err(error) => format!("! {error}"),
                },
                asked = self.api.recv() => {
                    let asked = asked.expect("the client lives");
                    self.asked.push((asked.path.clone(), asked.at));
                    match (self.failing.get(&asked.path), self.answers.get(&asked.path)) {
                        (Some(code), _) => asked.refuse(*code, "", "no"),
                        (None, Some(answer)) => asked.json(answer),
                        (None, None) => asked.answer(404, &[], "404 page not found\n"),
                    }
                }
            }
        }
    }

    async fn says_nothing_for(&mut self, time: Duration) {
        if let Ok(said) = timeout(time, self.says()).await {
            panic!("one item too many: {said}");
        }
    }

    /// The paths that were asked for since this was called last.
    fn paths(&mut self) -> String {
        self.asked.drain(..).map(|(path, _)| path).collect::<Vec<_>>().join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn only_groups_that_are_asked_for_are_looked_at() {
    let mut bench = Bench::start(&Definitions::of(&[ROUTES_DEFINED]), &["v1/Service", "mesh.io/*"]);
    bench.mesh(&["v1", "v1beta1"]);
    bench.serves(MESH, &["Route"]);
    bench.serves(MESH_BETA, &["Route", "Old"]);
    assert_eq!(bench.says().await, "v1/Service, mesh.io/v1/Route, mesh.io/v1beta1/Old");
    assert_eq!(bench.paths(), format!("/apis /api/v1 {MESH} {MESH_BETA}"));
    // Kinds of the core group that are named are looked for once.
    bench.says_nothing_for(A_WHILE).await;
    assert_eq!(bench.paths(), format!("/apis {MESH} {MESH_BETA}"));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_without_patterns_and_a_typing_error_is_named_once() {
    let mut bench = Bench::start(&Definitions::silent(), &[]);
    assert_eq!(bench.says().await, "");
    bench.says_nothing_for(A_WHILE).await;
    assert_eq!(bench.paths(), "");

    let mut bench = Bench::start(&Definitions::silent(), &["v1/Servcie", "apps/v1/Deploymnt"]);
    assert_eq!(
        bench.says().await,
        "? v1/Servcie: the API server has no such kind; did you mean \"v1/Service\"?, \
         ? apps/v1/Deploymnt: the API server has no such kind; did you mean \"apps/v1/Deployment\"?"
    );
    assert_eq!(bench.paths(), "/apis /api/v1 /apis/apps/v1");
    bench.says_nothing_for(A_WHILE * 10).await;
    assert_eq!(bench.paths(), "", "no later answer would be another one");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_found_soon_after_its_definition_and_gone_with_it() {
    let definitions = Definitions::of(&["others.example.org"]);
    let mut bench = Bench::start(&definitions, &["mesh.io/v1/Route", "v1/Pod"]);
    let missing = "v1/Pod, ? mesh.io/v1/Route: there is no definition of this kind yet; it is read once there is one";
    let began = Instant::now();
    assert_eq!(bench.says().await, missing);
    assert_eq!(began.elapsed(), Duration::ZERO, "no kind of the group is defined");
    definitions.add(ROUTES_DEFINED);
    let defined = Instant::now();
    // A kind is served a moment after its definition.
    bench.says_nothing_for(Duration::from_secs(2)).await;
    bench.mesh(&["v1"]);
    bench.serves(MESH, &["Route"]);
    assert_eq!(bench.says().await, "v1/Pod, mesh.io/v1/Route");
    assert!(defined.elapsed() < Duration::from_secs(6), "{:?}", defined.elapsed());
    sleep(Duration::from_secs(100)).await;

    definitions.remove(ROUTES_DEFINED);
    bench.groups(&[]);
    let removed = Instant::now();
    assert_eq!(bench.says().await, missing);
    assert!(removed.elapsed() < Duration::from_secs(2), "{:?}", removed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_preferred_version_is_followed() {
    let definitions = Definitions::of(&[ROUTES_DEFINED]);
    let mut bench = Bench::start(&definitions, &["mesh.io/*"]);
    bench.mesh(&["v1beta1"]);
    bench.serves(MESH_BETA, &["Route"]);
    assert_eq!(bench.says().await, "mesh.io/v1beta1/Route");
    bench.mesh(&["v1", "v1beta1"]);
    bench.serves(MESH, &["Route"]);
    definitions.add(ROUTES_DEFINED);
    let changed = Instant::now();
    assert_eq!(bench.says().await, "mesh.io/v1/Route");
    assert!(changed.elapsed() < Duration::from_secs(2), "{:?}", changed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_just_begun_takes_no_kind_away() {
    // Its definitions are seen, are forbidden; the kind comes back, or does not.
    for (definitions, comes_back) in [
        (Definitions::of(&[ROUTES_DEFINED]), true),
        (Definitions::of(&[ROUTES_DEFINED]), false),
        (Definitions::default(), true),
        (Definitions::default(), false),
    ] {
        let mut bench = Bench::start(&definitions, &["mesh.io/*"]);
        bench.mesh(&["v1"]);
        bench.serves(MESH, &["Route"]);
        assert_eq!(bench.says().await, "mesh.io/v1/Route");
        bench.groups(&[]);
        let look = Duration::from_secs(60);
        bench.says_nothing_for(look + Duration::from_secs(2)).await;
        if comes_back {
            bench.mesh(&["v1"]);
            bench.says_nothing_for(A_WHILE).await;
        } else {
            assert!(bench.says().await.starts_with("? mesh.io/*: there is no definition"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_start_a_kind_of_a_defined_group_is_waited_for() {
    let mut bench = Bench::start(&Definitions::of(&[ROUTES_DEFINED]), &["mesh.io/v1/Route"]);
    bench.says_nothing_for(Duration::from_secs(2)).await;
    bench.mesh(&["v1"]);
    bench.serves(MESH, &["Route"]);
    assert_eq!(bench.says().await, "mesh.io/v1/Route");
    // For a moment only.
    let mut bench = Bench::start(&Definitions::of(&[ROUTES_DEFINED]), &["mesh.io/v1/Roote"]);
    bench.mesh(&["v1"]);
    bench.serves(MESH, &["Route"]);
    let began = Instant::now();
    assert_eq!(
        bench.says().await,
        "? mesh.io/v1/Roote: there is no definition of this kind yet; it is read once there is one; did you mean \
         \"mesh.io/v1/Route\"?"
    );
    assert!((3..6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_is_told_and_takes_nothing_away() {
    let mut bench = Bench::start(&Definitions::of(&[ROUTES_DEFINED]), &["mesh.io/*", "apps/*"]);
    bench.mesh(&["v1"]);
    bench.serves(MESH, &["Route"]);
    bench.failing.insert("/apis".to_owned(), 403);
    let said = bench.says().await;
    assert!(
        said.starts_with("! ask the API server at given client for its kinds (/apis): not permitted: no (403); ")
            && said.contains("system:discovery"),
        "{said}"
    );
    let began = Instant::now();
    assert_eq!(bench.says().await, said, "again after a pause");
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
    bench.failing.clear();
    assert_eq!(bench.says().await, "apps/v1/Deployment, mesh.io/v1/Route");

    // One group fails, as when the API server behind it is away: the others are followed all the same.
    bench.failing.insert(MESH.to_owned(), 503);
    assert!(bench.says().await.starts_with("! ask the API server at given client for its kinds (/apis/mesh.io/v1): "));
    bench.serves("/apis/apps/v1", &["Deployment", "DaemonSet"]);
    let mut failures = 0;
    let said = loop {
        match bench.says().await {
            said if said.starts_with('!') => failures += 1,
            said => break said,
        }
    };
    assert_eq!(said, "apps/v1/DaemonSet, apps/v1/Deployment, mesh.io/v1/Route");
    assert!(failures <= 2, "{failures}");
    bench.asked.clear();
    sleep(Duration::from_secs(100)).await;
    let asked = timeout(Duration::from_secs(60), async {
        loop {
            bench.says().await;
        }
    });
    assert!(asked.await.is_err());
    assert!(bench.paths().split(' ').filter(|path| *path == MESH).count() < 16, "pauses grow");
}
