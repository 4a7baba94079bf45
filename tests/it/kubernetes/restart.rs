//! The API server is away: before the daemon starts, while it runs, and while etcd is compacted. Calico's kinds are in
//! the group `projectcalico.org/v3` here.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use bulrush::calico::kinds as k;
use bulrush::calico::syncers::FELIX;
use bulrush::model::SyncStatus;
use serde_json::json;
use tempfile::TempDir;

use super::agents::Agents;
use super::population::{self, SMALL, Size, namespace, stored_pod};
use super::{USER, allow, eventually, populated, start_all, start_daemon};
use crate::apiserver::ApiServer;
use crate::apiserver::crds::{CrdGroup, watched_kinds};
use crate::daemon::{Daemon, http_get};

const GROUP: CrdGroup = CrdGroup::V3;
const SIZE: Size = Size { pods: 300, ..SMALL };

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_costs_at_most_a_list_per_kind_and_never_a_delete() -> anyhow::Result<()> {
    let Some(mut server) = populated(GROUP, SIZE).await? else { return Ok(()) };
    allow(&server).await?;

    // The daemon starts without the API server: it is live, not ready, and no agent is in sync.
    server.kill();
    let folder = TempDir::new()?;
    let daemon = start_daemon(&folder, server.kubeconfig(USER), &[]).await?;
    let agents = Agents::start(daemon.sync)?;
    agents.until(FELIX, "a first status", |memory| !memory.statuses.is_empty()).await?;
    ensure!(
        agents.look(FELIX, |memory| !memory.statuses.contains(&SyncStatus::InSync)),
        "in sync without the API server"
    );
    ensure!(http_get(daemon.health, "/liveness")?.0 == 200, "a daemon without its datastore is live");
    ensure!(http_get(daemon.health, "/readiness")?.0 == 503, "a daemon without its datastore is not ready");
    server.run().await;
    agents.until_in_sync().await?;
    let started = agents.until_equal(&server.rest(), GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&started, &started, None)?;
    let reads = server.collections_read(USER);
    ensure!(watched_kinds().iter().all(|kind| reads.get(&GROUP.resource(kind)) == Some(&1)), "{reads:?}");

    // It dies under load and comes back: only the changes made meanwhile reach the agents.
    agents.begin();
    server.kill();
    server
        .erase("pods", (0..20).map(|i| population::pod(&namespace(i % SIZE.namespaces), &format!("pod-{i}"), 0)))
        .await?;
    let newcomer = Agents::start(daemon.sync)?;
    newcomer.until_in_sync().await?;
    let held = newcomer.look(FELIX, |memory| memory.content.clone());
    ensure!(held == started[&FELIX], "an agent that comes while the API server is away gets everything");
    server.run().await;
    let rest = server.rest();
    let after_restart = agents.until_equal(&rest, GROUP).await?;
    // Keys are compared, not counts: a server that has just started still creates namespaces of its own.
    let (before, after) = (&started[&FELIX], &after_restart[&FELIX]);
    let gone: Vec<_> = before.keys().filter(|key| !after.contains_key(*key)).collect();
    ensure!(gone.len() == 20, "20 pods are gone, and these are: {gone:?}");
    agents.deleted_exactly_the_missing_keys(&started, &after_restart, None)?;
    agents.heard_of_resyncs_at_most().await?;
    at_most_one_more_list(&server, &daemon, &reads).await?;

    // It dies, and etcd's history is compacted away.
    let reads = server.collections_read(USER);
    agents.begin();
    server.kill();
    let pods = |range: std::ops::Range<usize>| {
        range.map(|i| population::pod(&namespace(i % SIZE.namespaces), &format!("pod-{i}"), 0))
    };
    server.erase("pods", pods(20..40)).await?;
    server.seed("pods", (1_000..1_020).map(|i| stored_pod(i, SIZE))).await?;
    server.compact().await?;
    server.run().await;
    let rest = server.rest();
    let after_compaction = agents.until_equal(&rest, GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&after_restart, &after_compaction, None)?;
    agents.heard_of_resyncs_at_most().await?;
    at_most_one_more_list(&server, &daemon, &reads).await?;

    // Everything is followed again.
    let label = json!({"metadata": {"labels": {"after": "all"}}});
    rest.patch(&GROUP.path(&k::NAMESPACE, "", &namespace(0)), &label).await?;
    agents.until_equal(&rest, GROUP).await?;
    newcomer.until_equal(&rest, GROUP).await?;
    drop((agents, newcomer, daemon));
    without_streaming_lists(server).await
}

/// An older server without streaming lists, which is overloaded by two requests at once: each kind is listed
/// once, in pages, however often the server answers 429.
async fn without_streaming_lists(mut server: ApiServer) -> anyhow::Result<()> {
    server.seed("pods", (5_000..6_000).map(|i| stored_pod(i, SIZE))).await?;
    server.kill();
    server.add_flags(&[
        "--feature-gates=WatchList=false",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=2",
    ]);
    server.run().await;
    let before = server.audited(USER).len();
    let listed_before = server.lists_answered().await?;
    let folder = TempDir::new()?;
    let (_daemon, agents) = start_all(&folder, server.kubeconfig(USER)).await?;
    let listed = server.lists_answered().await?;
    let requests = server.audited(USER).split_off(before);
    ensure!(requests.iter().any(|request| request.code == 429), "no request was refused");
    for kind in watched_kinds() {
        let resource = GROUP.resource(&kind);
        let of_kind = || requests.iter().filter(|request| request.resource == resource && request.code == 200);
        let lists = of_kind().filter(|request| request.verb == "list" && request.is_list()).count();
        ensure!(lists == 1, "{resource} was listed {lists} times");
        let pages = of_kind().filter(|request| request.verb == "list").count() as u64;
        let times = |counts: &BTreeMap<String, u64>| counts.get(&resource).copied().unwrap_or_default();
        let counted = times(&listed) - times(&listed_before);
        ensure!(counted == pages, "{resource}: {counted} lists by the server's count, {pages} by its log");
        ensure!(kind != k::POD || pages == 3, "{pages} pages of pods");
    }
    agents.until_equal(&server.rest(), GROUP).await?;
    Ok(())
}

/// Waits until every kind is watched again, and fails if one was read more than once since `before`.
async fn at_most_one_more_list(
    server: &ApiServer,
    daemon: &Daemon,
    before: &BTreeMap<String, usize>,
) -> anyhow::Result<()> {
    for kind in watched_kinds() {
        let resource = GROUP.resource(&kind);
        let watched = async || {
            // The daemon also reads and writes single objects when it initialises the datastore.
            let mut requests = server.audited(USER).into_iter();
            let last = requests.rfind(|it| it.resource == resource && ["list", "watch"].contains(&&*it.verb))?;
            (last.verb == "watch" && last.code == 200).then_some(())
        };
        eventually(&format!("{resource} is watched"), watched).await.with_context(|| {
            let audited = server.audited(USER).into_iter().filter(|request| request.resource == resource);
            format!("requests: {:#?}\nlog:\n{}", audited.collect::<Vec<_>>(), daemon.log())
        })?;
    }
    let now = server.collections_read(USER);
    for (resource, times) in &now {
        let before = before.get(resource).copied().unwrap_or_default();
        ensure!(*times <= before + 1, "{resource} was read {} times: {now:?}", times - before);
    }
    Ok(())
}
