//! Kinds that are defined late, are deleted and come back; and the objects that the daemon writes at start.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use bulrush::calico::catalog::catalog;
use bulrush::calico::kinds as k;
use bulrush::calico::syncers::{BGP, FELIX, TUNNEL_IP_ALLOCATION};
use bulrush::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use bulrush::datastore::write::{Change, Stored, Writable as _, Write, Written};
use bulrush::datastore::{Kind, ObjectId};
use bulrush::model::{Key, Revision, SyncerName};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::agents::Agents;
use super::population::{self, SMALL, namespace};
use super::proxy::{Proxy, Refusal};
use super::{USER, allow, start_all, start_daemon, text};
use crate::apiserver::ApiServer;
use crate::apiserver::crds::{self, CrdGroup};
use crate::apiserver::rest::Rest;

const GROUP: CrdGroup = CrdGroup::V1;
/// Longest time until a newly defined kind is noticed.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn kinds_are_defined_late_deleted_and_defined_again() -> anyhow::Result<()> {
    let Some(mut server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    allow(&server).await?;
    server
        .seed("namespaces", [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(0)}})])
        .await?;
    let folder = TempDir::new()?;

    // None of Calico's kinds is defined: the daemon is in sync with the others.
    let proxy = Proxy::start(&server).await?;
    let kubeconfig = proxy.kubeconfig(&server);
    let (_daemon, agents) = start_all(&folder, kubeconfig).await?;
    let profile = format!("/calico/v1/policy/profile/kns.{}/rules", namespace(0));
    agents.until_held(FELIX, &profile).await?;
    agents.begin();

    // The objects of the start are written once, as soon as their kinds are defined.
    for kind in [k::CLUSTER_INFORMATION, k::TIER] {
        crds::install(&rest, &kind, GROUP).await?;
    }
    agents.until_held(FELIX, "/calico/v1/policy/tier/kube-baseline/metadata").await?;
    agents.until_held(FELIX, "/calico/v1/Ready").await?;
    written_at_start(&rest).await?;

    // Objects of Calico's and other kinds arrive within seconds of the definition.
    let pool = population::custom(&k::IP_POOL, GROUP, 0, SMALL).unwrap_or_default();
    let migration = population::custom(&k::VM_INSTANCE_MIGRATION, GROUP, 0, SMALL).unwrap_or_default();
    let pool_key = "/calico/v1/ipam/v4/pool/10.100.0.0-16";
    let migration_key =
        "/calico/resources/v3/projectcalico.org/livemigrations/team-0/virtualmachineinstancemigration-0";
    arrives(&agents, &rest, &k::IP_POOL, &pool, pool_key).await?;
    agents.until_held(BGP, pool_key).await?;
    agents.until_held(TUNNEL_IP_ALLOCATION, pool_key).await?;
    arrives(&agents, &rest, &k::VM_INSTANCE_MIGRATION, &migration, migration_key).await?;
    agents.heard_no_status()?;

    // A definition is deleted, and its objects with it.
    crds::uninstall(&rest, &k::IP_POOL, GROUP).await?;
    for syncer in [FELIX, BGP, TUNNEL_IP_ALLOCATION] {
        is_forgotten(&agents, syncer, pool_key).await?;
    }
    arrives(&agents, &rest, &k::IP_POOL, &pool, pool_key).await?;

    // After a restart of the server, definitions are followed as before.
    server.kill();
    server.run().await;
    crds::uninstall(&rest, &k::IP_POOL, GROUP).await?;
    for syncer in [FELIX, BGP, TUNNEL_IP_ALLOCATION] {
        is_forgotten(&agents, syncer, pool_key).await?;
    }
    arrives(&agents, &rest, &k::IP_POOL, &pool, pool_key).await?;

    // The same while the watch is cut, so that no event tells of the objects' deletion.
    proxy.refuse(Refusal { containing: "/ippools".to_owned(), code: 503, retry_after: None, times: usize::MAX });
    proxy.cut();
    crds::uninstall(&rest, &k::IP_POOL, GROUP).await?;
    proxy.let_through();
    for syncer in [FELIX, BGP, TUNNEL_IP_ALLOCATION] {
        is_forgotten(&agents, syncer, pool_key).await?;
    }
    arrives(&agents, &rest, &k::IP_POOL, &pool, pool_key).await?;

    // Nothing else was deleted at agents, and no agent received a status of trouble.
    agents.heard_of_resyncs_at_most().await?;
    let forgotten = agents.look(FELIX, |memory| memory.forgotten.clone());
    ensure!(forgotten == [(); 3].map(|()| Key::from(pool_key)), "felix was told to forget {forgotten:?}");
    agents.until_equal(&rest, GROUP).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_happens_only_if_the_object_is_as_it_must_be() -> anyhow::Result<()> {
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    for kind in [k::TIER, k::NETWORK_SET] {
        crds::install(&rest, &kind, GROUP).await?;
    }
    let config = KubernetesConfig {
        kubeconfig: vec![server.kubeconfig("admin")],
        catalog: catalog(None),
        ..KubernetesConfig::default()
    };
    let store = KubernetesStore::connect(config)?;
    for (kind, namespace) in [(k::TIER, ""), (k::NETWORK_SET, "default")] {
        let id = ObjectId { namespace: namespace.into(), name: "x".into() };
        let body = |order: u32| {
            let labels = json!({ "order": order.to_string() });
            let metadata = match namespace {
                "" => json!({"name": "x", "labels": labels}),
                namespace => json!({"name": "x", "namespace": namespace, "labels": labels}),
            };
            json!({"kind": kind.name, "metadata": metadata, "spec": {}}).to_string().into_bytes()
        };
        let write = async |change: Change<'_>, dry_run: bool| {
            store.write(Write { kind: &kind, id: &id, change, dry_run }).await
        };
        let create = |order| Change::Create { body: body(order) };
        let now = async || -> anyhow::Result<Option<(Value, Revision)>> {
            let Some(Stored { body, revision }) = store.read(&kind, &id).await? else { return Ok(None) };
            let mut object: Value = serde_json::from_slice(&body)?;
            Ok(Some((object["metadata"]["labels"]["order"].take(), revision)))
        };

        ensure!(matches!(write(create(1), true).await?, Written::Done(_)));
        ensure!(now().await?.is_none(), "a dry run stores nothing");
        let Written::Done(first) = write(create(1), false).await? else { bail!("it did not exist") };
        ensure!(now().await? == Some((json!("1"), first.clone())));
        ensure!(write(create(2), false).await? == Written::Conflict);

        let update = Change::Update { body: body(2), before: &first };
        ensure!(matches!(write(update.clone(), true).await?, Written::Done(_)));
        let Written::Done(second) = write(update.clone(), false).await? else { bail!("it was as it must be") };
        ensure!(write(update, false).await? == Written::Conflict);
        ensure!(now().await? == Some((json!("2"), second.clone())));

        ensure!(write(Change::Delete { before: &first }, false).await? == Written::Conflict);
        ensure!(matches!(write(Change::Delete { before: &second }, true).await?, Written::Done(_)));
        ensure!(now().await?.is_some(), "a dry run deletes nothing");
        ensure!(matches!(write(Change::Delete { before: &second }, false).await?, Written::Done(_)));
        ensure!(now().await?.is_none());
        ensure!(write(Change::Delete { before: &second }, false).await? == Written::Conflict);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_writes_nothing_and_two_daemons_write_once() -> anyhow::Result<()> {
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    allow(&server).await?;
    for kind in [k::CLUSTER_INFORMATION, k::TIER] {
        crds::install(&rest, &kind, GROUP).await?;
    }
    let folder = TempDir::new()?;
    let daemon = start_daemon(&folder, server.kubeconfig(USER), &[("DatastoreReadOnly", "true")]).await?;
    Agents::start(daemon.sync)?.until_in_sync().await?;
    drop(daemon);
    let writes =
        |user| server.audited(user).into_iter().filter(|request| !["list", "watch", "get"].contains(&&*request.verb));
    ensure!(writes(USER).count() == 0, "a read-only daemon wrote {:?}", writes(USER).collect::<Vec<_>>());
    ensure!(rest.list(&GROUP.collection(&k::TIER, "")).await?.is_empty(), "no tiers are written");

    let (kubeconfig, other) = (server.kubeconfig(USER), TempDir::new()?);
    let both = futures_util::future::try_join(
        start_daemon(&folder, kubeconfig.clone(), &[]),
        start_daemon(&other, kubeconfig, &[]),
    );
    let (one, two) = both.await?;
    for daemon in [&one, &two] {
        Agents::start(daemon.sync)?.until_in_sync().await?;
    }
    written_at_start(&rest).await?;
    let done = writes(USER).filter(|request| request.code < 300).count();
    ensure!(done == 4, "each object once, not {done} writes");
    let before = rest.get(&GROUP.path(&k::CLUSTER_INFORMATION, "", "default")).await?;
    let again = start_daemon(&other, server.kubeconfig(USER), &[]).await?;
    Agents::start(again.sync)?.until_in_sync().await?;
    let after = rest.get(&GROUP.path(&k::CLUSTER_INFORMATION, "", "default")).await?;
    ensure!(before == after, "a complete cluster information is left alone");
    drop((one, two, again));
    a_definition_goes_unseen(&server).await
}

/// The first missing kind is deleted while the daemon cannot see it.
async fn a_definition_goes_unseen(server: &ApiServer) -> anyhow::Result<()> {
    let rest = server.rest();
    for kind in crds::custom_kinds() {
        if ![k::CLUSTER_INFORMATION, k::TIER].contains(&kind) {
            crds::install(&rest, &kind, GROUP).await?;
        }
    }
    let peer = population::custom(&k::BGP_PEER, GROUP, 0, SMALL).unwrap_or_default();
    rest.create(&GROUP.collection(&k::BGP_PEER, ""), &peer).await?;
    let proxy = Proxy::start(server).await?;
    let kubeconfig = proxy.kubeconfig(server);
    let folder = TempDir::new()?;
    let (_daemon, agents) = start_all(&folder, kubeconfig).await?;
    let before = agents.until_equal(&rest, GROUP).await?;
    agents.begin();
    proxy.refuse(Refusal { containing: "/bgppeers".to_owned(), code: 503, retry_after: None, times: usize::MAX });
    proxy.cut();
    crds::uninstall(&rest, &k::BGP_PEER, GROUP).await?;
    proxy.let_through();
    let after = agents.until_equal(&rest, GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&before, &after, None)?;
    agents.heard_of_resyncs_at_most().await
}

/// Checks the objects that Calico's components expect in a cluster.
async fn written_at_start(rest: &Rest) -> anyhow::Result<()> {
    let path = GROUP.path(&k::CLUSTER_INFORMATION, "", "default");
    let spec = rest.get(&path).await?["spec"].take();
    ensure!(spec["clusterType"] == "typha,kdd" && spec["datastoreReady"] == true, "{spec}");
    ensure!(text(&spec, "/clusterGUID").len() == 32, "{spec}");
    let tiers = rest.list(&GROUP.collection(&k::TIER, "")).await?;
    let tiers: Vec<(&str, &Value)> = tiers.iter().map(|tier| (text(tier, "/metadata/name"), &tier["spec"])).collect();
    let wanted = [
        ("default", &json!({"order": 1_000_000, "defaultAction": "Deny"})),
        ("kube-admin", &json!({"order": 1_000, "defaultAction": "Pass"})),
        ("kube-baseline", &json!({"order": 10_000_000, "defaultAction": "Pass"})),
    ];
    ensure!(tiers == wanted, "{tiers:?}");
    Ok(())
}

/// Defines a kind, creates an object of it, and waits for felix' key of it, within seconds of the definition.
async fn arrives(agents: &Agents, rest: &Rest, kind: &Kind, object: &Value, key: &str) -> anyhow::Result<()> {
    crds::install(rest, kind, GROUP).await?;
    let defined = Instant::now();
    rest.create(&GROUP.collection(kind, text(object, "/metadata/namespace")), object).await?;
    let wanted = Key::from(key);
    let limit = NOTICED_WITHIN.saturating_sub(defined.elapsed());
    agents.until_within(FELIX, &format!("{key} arrives"), limit, |memory| memory.content.contains_key(&wanted)).await
}

async fn is_forgotten(agents: &Agents, syncer: SyncerName, key: &str) -> anyhow::Result<()> {
    let key = Key::from(key);
    agents.until(syncer, &format!("{key} is forgotten"), |memory| !memory.content.contains_key(&key)).await
}
