//! Any kinds, by pattern: what a real API server says of its own and of others' kinds, while definitions come, change and go.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use bulrush::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use bulrush::datastore::{Datastore as _, Error, Event, Kind, KindsNow, Pattern, Selection};
use bulrush::syncer::kind_watch::{KindEvent, KindHub, Subscriber};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{USER, role};
use crate::apiserver::ApiServer;
use crate::apiserver::crds::DEFINITIONS;
use crate::wait::in_time;

const ROUTES: &str = "/apis/mesh.example.com/v1/namespaces/default/routes";
const DEFINITION: &str = "routes.mesh.example.com";

type Kinds = BoxStream<'static, Result<KindsNow, Error>>;

/// A definition of routes, in versions of which the first one is stored.
fn definition(versions: &[&str]) -> Value {
    let version = |(index, name): (usize, &&str)| {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({"name": name, "served": true, "storage": index == 0, "schema": schema})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "mesh.example.com",
            "names": {"kind": "Route", "listKind": "RouteList", "plural": "routes", "singular": "route"},
            "scope": "Namespaced",
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

fn ask(store: &KubernetesStore, patterns: &[&str]) -> Kinds {
    let patterns: Vec<Pattern> = patterns.iter().map(|text| text.parse().unwrap()).collect();
    store.kinds(&patterns)
}

/// Waits until the kinds are these, and returns them with the reasons of unknown patterns. Failed looks are passed over.
async fn until(kinds: &mut Kinds, expected: &[&str]) -> anyhow::Result<(Vec<Kind>, Vec<String>)> {
    let look = async {
        loop {
            let Ok(KindsNow { kinds, unknown }) = kinds.next().await.context("the stream ended")? else { continue };
            if kinds.iter().map(ToString::to_string).eq(expected.iter().copied()) {
                let reasons = unknown.iter().map(|unknown| format!("{}: {}", unknown.pattern, unknown.reason));
                return anyhow::Ok((kinds, reasons.collect()));
            }
        }
    };
    in_time(look).await.with_context(|| format!("until the kinds are {expected:?}"))
}

/// The names of a watch's events until one fits: `+name`, `-name`, `absent`.
async fn heard(events: &mut mpsc::Receiver<(usize, KindEvent)>, last: &str) -> anyhow::Result<Vec<String>> {
    let mut heard = Vec::new();
    let listen = async {
        while heard.last().is_none_or(|word| word != last) {
            let Some((_, event)) = events.recv().await else { bail!("the watch ended") };
            match event {
                KindEvent::Objects(objects) => heard.extend(objects.iter().map(|object| format!("+{}", object.id))),
                KindEvent::Changes(batch) => heard.extend(batch.events.iter().map(|event| match event {
                    Event::Put(object) => format!("+{}", object.id),
                    Event::Delete { id, .. } => format!("-{id}"),
                    Event::Malformed(malformed) => format!("?{}", malformed.id),
                })),
                KindEvent::ListEnd { .. } => heard.push("listed".to_owned()),
                KindEvent::Absent => heard.push("absent".to_owned()),
                KindEvent::ListStart | KindEvent::Malformed(_) | KindEvent::Lost => {}
            }
        }
        Ok(())
    };
    in_time(listen).await.with_context(|| format!("until {last}"))?;
    Ok(heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_kind_is_found_followed_and_lost_with_its_definition() -> anyhow::Result<()> {
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    let config =
        KubernetesConfig { kubeconfig: vec![server.kubeconfig(USER)], qps: 0.0, ..KubernetesConfig::default() };
    let store = KubernetesStore::connect(config)?;

    // Kubernetes' own kinds, and typing errors among them. Everybody may ask; what may be read is another question.
    let mut own = ask(&store, &["v1/ConfigMap", "policy/*", "v1/Servcie", "apps/v1/Deploymnt", "v1/Binding"]);
    let (kinds, unknown) = until(&mut own, &["v1/ConfigMap", "policy/v1/PodDisruptionBudget"]).await?;
    ensure!(kinds.iter().all(|kind| kind.namespaced) && kinds[1].plural == "poddisruptionbudgets", "{kinds:?}");
    ensure!(unknown[0].ends_with("did you mean \"v1/Service\"?"), "{unknown:?}");
    ensure!(unknown[1].ends_with("did you mean \"apps/v1/Deployment\"?"), "{unknown:?}");
    ensure!(unknown[2].ends_with("does not let it be listed and watched"), "{unknown:?}");

    let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]});
    let rules = [rule("apiextensions.k8s.io", "customresourcedefinitions"), rule("mesh.example.com", "routes")];
    role::grant(&rest, USER, &rules).await?;

    // A definition that comes late, in one version and then in another one that is preferred.
    let mut all = ask(&store, &["mesh.example.com/*"]);
    let mut old = ask(&store, &["mesh.example.com/v1beta1/Route"]);
    let (_, unknown) = until(&mut all, &[]).await?;
    ensure!(unknown[0].contains("no definition of this kind yet"), "{unknown:?}");
    let both = async {
        rest.create(DEFINITIONS, &definition(&["v1beta1"])).await?;
        until(&mut old, &["mesh.example.com/v1beta1/Route"]).await?;
        until(&mut all, &["mesh.example.com/v1beta1/Route"]).await?;
        rest.patch(&format!("{DEFINITIONS}/{DEFINITION}"), &json!({"spec": definition(&["v1beta1", "v1"])["spec"]}))
            .await?;
        until(&mut all, &["mesh.example.com/v1/Route"]).await
    };
    let (kinds, _) = both.await?;
    ensure!((&*kinds[0].plural, kinds[0].namespaced) == ("routes", true), "{kinds:?}");

    // Of the found kind, only what a selection wants is asked for and told.
    let route = |name: &str, app: &str| {
        let metadata = json!({"name": name, "labels": {"app": app}});
        json!({"apiVersion": "mesh.example.com/v1", "kind": "Route", "metadata": metadata})
    };
    for (name, app) in [("a", "web"), ("b", "db")] {
        rest.create(ROUTES, &route(name, app)).await?;
    }
    let selection = Selection::from(kinds[0].clone()).in_namespaces(["default"]).with_labels("app=web")?;
    let elsewhere = Selection::from(kinds[0].clone()).in_namespaces(["kube-system"]);
    let mut hub = KindHub::new(Arc::new(store.clone()), 1);
    let (sender, mut wanted) = mpsc::channel(100);
    let (others, mut other) = mpsc::channel(100);
    hub.subscribe(selection, Subscriber::new(0, sender));
    hub.subscribe(elsewhere, Subscriber::new(0, others));
    let watching = tokio::spawn(hub.run(CancellationToken::new()));
    ensure!(heard(&mut wanted, "listed").await? == ["+default/a", "listed"]);
    ensure!(heard(&mut other, "listed").await? == ["listed"]);
    rest.create(ROUTES, &route("c", "web")).await?;
    ensure!(heard(&mut wanted, "+default/c").await? == ["+default/c"]);
    let asked: Vec<String> = server.audited(USER).into_iter().map(|request| request.uri).collect();
    for part in ["/namespaces/default/routes?", "labelSelector=app%3Dweb", "/namespaces/kube-system/routes?"] {
        ensure!(asked.iter().any(|uri| uri.contains(part)), "{part} is pushed to the server");
    }

    // With the definition the kind goes, and its objects.
    rest.delete(&format!("{DEFINITIONS}/{DEFINITION}")).await?;
    until(&mut all, &[]).await?;
    until(&mut old, &[]).await?;
    let last = heard(&mut wanted, "absent").await?;
    ensure!(
        last.contains(&"listed".to_owned()) || last.contains(&"-default/a".to_owned()),
        "its objects are gone: {last:?}"
    );
    watching.abort();
    Ok(())
}
