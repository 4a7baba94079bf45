//! A cluster of 5,000 pods: start, churn, broken watches. Checks every agent's content and deletions, and the requests to the API
//! server.

use std::collections::BTreeMap;

use anyhow::ensure;
use bulrush::calico::kinds as k;
use bulrush::calico::syncers::FELIX;
use serde_json::json;
use tempfile::TempDir;

use super::population::{self, LARGE, namespace};
use super::proxy::Proxy;
use super::{USER, allow, populated, start_all, text};
use crate::apiserver::ApiServer;
use crate::apiserver::crds::{CrdGroup, watched_kinds};
use crate::apiserver::rest::Rest;

const GROUP: CrdGroup = CrdGroup::V1;

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_pods_start_churn_and_broken_watches() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, LARGE).await? else { return Ok(()) };
    let rest = server.rest();
    allow(&server).await?;
    let proxy = Proxy::start(&server).await?;
    let kubeconfig = proxy.kubeconfig(&server);

    // Start: each kind is read once, and every agent has everything.
    let listed_before = server.lists_answered().await?;
    let folder = TempDir::new()?;
    let (_daemon, agents) = start_all(&folder, kubeconfig).await?;
    let listed = server.lists_answered().await?;
    each_kind_was_read_once(&server)?;
    for kind in watched_kinds() {
        let times = |counts: &BTreeMap<String, u64>| counts.get(&GROUP.resource(&kind)).copied().unwrap_or_default();
        let plain = times(&listed) - times(&listed_before);
        ensure!(plain == 0, "{kind} was listed {plain} times beside its streaming list, by the server's own count");
    }
    let started = agents.until_equal(&rest, GROUP).await?;
    let endpoints = started[&FELIX].keys().filter(|key| key.contains("/workload/k8s/")).count();
    ensure!(endpoints == LARGE.pods, "{endpoints} endpoints of {} pods", LARGE.pods);

    // Churn: no further list, and only deletions of keys that are gone.
    agents.begin();
    proxy.begin();
    churn(&rest).await?;
    let churned = agents.until_equal(&rest, GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&started, &churned, Some("fresh-"))?;
    agents.heard_no_status()?;
    each_kind_was_read_once(&server)?;

    // Broken watches, with changes in between: they go on where they were.
    agents.begin();
    for round in 0..3 {
        let pods = (1_000 + 50 * round..1_050 + 50 * round).map(|i| format!("{}/pod-{i}", pods_of(i)));
        let deleting = rest.delete_all(pods.collect());
        proxy.cut();
        deleting.await?;
    }
    let after_cuts = agents.until_equal(&rest, GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&churned, &after_cuts, None)?;
    agents.heard_no_status()?;
    each_kind_was_read_once(&server)?;
    let watches = proxy.seen().iter().filter(|seen| seen.is_watch()).count();
    ensure!(watches >= watched_kinds().len(), "the watches were broken and opened again: {watches}");
    Ok(())
}

/// The collection of a pod's namespace.
fn pods_of(index: usize) -> String {
    GROUP.collection(&k::POD, &namespace(index % LARGE.namespaces))
}

/// Fails unless the daemon has read each kind that it watches exactly once.
fn each_kind_was_read_once(server: &ApiServer) -> anyhow::Result<()> {
    let read = server.collections_read(USER);
    for kind in watched_kinds() {
        let resource = GROUP.resource(&kind);
        let times = read.get(&resource).copied().unwrap_or_default();
        ensure!(times == 1, "{resource} was read {times} times: {read:?}");
    }
    Ok(())
}

/// A second in the life of a cluster.
async fn churn(rest: &Rest) -> anyhow::Result<()> {
    // Pods come …
    let fresh = |i: usize| {
        let namespace = namespace(i % LARGE.namespaces);
        (GROUP.collection(&k::POD, &namespace), population::pod(&namespace, &format!("fresh-{i}"), i % LARGE.nodes))
    };
    rest.create_all((0..200).map(fresh).collect()).await?;
    let status = |i| (format!("{}/fresh-{i}/status", pods_of(i)), population::pod_status(10_000 + i));
    rest.patch_all((0..200).map(status).collect()).await?;
    // … change …
    let relabel = |i| (format!("{}/pod-{i}", pods_of(i)), json!({"metadata": {"labels": {"version": "v2"}}}));
    rest.patch_all((200..400).map(relabel).collect()).await?;
    // … end …
    let finish = |i| (format!("{}/pod-{i}/status", pods_of(i)), json!({"status": {"phase": "Succeeded"}}));
    rest.patch_all((400..450).map(finish).collect()).await?;
    // … and go, some of them twice.
    rest.delete_all((600..800).map(|i| format!("{}/pod-{i}", pods_of(i))).collect()).await?;
    rest.delete_all((0..50).map(|i| format!("{}/fresh-{i}", pods_of(i))).collect()).await?;

    // Namespaces are relabelled, accounts and nodes change.
    let namespaces = (0..10).map(|i| {
        (GROUP.path(&k::NAMESPACE, "", &namespace(i)), json!({"metadata": {"labels": {"tier": "moved", "new": "yes"}}}))
    });
    rest.patch_all(namespaces.collect()).await?;
    rest.delete(&GROUP.path(&k::SERVICE_ACCOUNT, &namespace(3), "app")).await?;
    let annotation = json!({"metadata": {"annotations": {"projectcalico.org/IPv4Address": "172.16.9.9/16"}}});
    rest.patch(&GROUP.path(&k::K8S_NODE, "", "node-7"), &annotation).await?;
    rest.delete(&GROUP.path(&k::K8S_NODE, "", "node-99")).await?;

    // Of every custom kind one object comes, one changes, one goes.
    for kind in crate::apiserver::crds::custom_kinds() {
        let Some(fresh) = population::custom(&kind, GROUP, LARGE.each, LARGE) else { continue };
        rest.create(&GROUP.collection(&kind, text(&fresh, "/metadata/namespace")), &fresh).await?;
        let path_of = |i| {
            population::custom(&kind, GROUP, i, LARGE)
                .map(|object| GROUP.path(&kind, text(&object, "/metadata/namespace"), text(&object, "/metadata/name")))
        };
        let (Some(changed), Some(gone)) = (path_of(1), path_of(2)) else { continue };
        rest.patch(&changed, &json!({"metadata": {"labels": {"changed": "yes"}}})).await?;
        rest.delete(&gone).await?;
    }
    let policies = |i| GROUP.path(&k::K8S_NETWORK_POLICY, &namespace(i % LARGE.namespaces), &format!("allow-{i}"));
    rest.patch(&policies(1), &json!({"spec": {"podSelector": {"matchLabels": {"app": "db"}}}})).await?;
    rest.delete(&policies(2)).await?;
    rest.delete(&GROUP.path(&k::SERVICE, &namespace(5), "service-5")).await?;
    rest.delete(&GROUP.path(&k::ENDPOINT_SLICE, &namespace(5), "service-5-abcde")).await
}
