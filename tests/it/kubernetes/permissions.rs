//! The daemon's ClusterRole: with it everything works (every other test runs with it alone); without one of its lines
//! exactly one kind fails, and the log names the line.

use anyhow::ensure;
use bulrush::calico::catalog::catalog;
use bulrush::calico::kinds as k;
use bulrush::calico::syncers;
use bulrush::calico::syncers::{BGP, FELIX, NODE_STATUS, TUNNEL_IP_ALLOCATION};
use bulrush::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use bulrush::datastore::{Datastore as _, Error, Kind};
use bulrush::model::SyncStatus;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::agents::{Agents, PATIENCE};
use super::expected::expected;
use super::population::{self, SMALL};
use super::{logged, populated, role, start_all, start_daemon};
use crate::apiserver::crds::{self, CrdGroup, is_calico, watched_kinds};
use crate::apiserver::{ApiServer, VARIANTS, variant};

const GROUP: CrdGroup = CrdGroup::V1;
/// Reduced roles that are tried at once.
const AT_ONCE: usize = 4;

/// The rules without the resources of these kinds.
fn rules_without(kinds: &[&Kind]) -> anyhow::Result<Vec<Value>> {
    let mut rules = role::rules()?;
    for kind in kinds {
        let resource = GROUP.resource(kind);
        let (group, plural) = resource.rsplit_once('/').unwrap_or(("", &resource));
        for rule in &mut rules {
            let has = |field: &str, value: &str| {
                rule[field].as_array().is_some_and(|values| values.iter().any(|known| known == value))
            };
            if has("apiGroups", group)
                && has("verbs", "list")
                && let Some(resources) = rule["resources"].as_array_mut()
            {
                resources.retain(|resource| resource != plural);
            }
        }
    }
    rules.retain(|rule| rule["resources"].as_array().is_some_and(|resources| !resources.is_empty()));
    Ok(rules)
}

async fn list(store: &KubernetesStore, kind: &Kind) -> Result<(), Error> {
    let pages = store.list(&kind.clone().into()).try_for_each(|_| async { Ok(()) });
    tokio::time::timeout(PATIENCE, pages).await.expect("a list takes no minute")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_line_of_the_role_breaks_one_kind() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    let rest = server.rest();
    let kinds = watched_kinds();
    for (index, kind) in kinds.iter().enumerate() {
        role::grant(&rest, &variant(index), &rules_without(&[kind])?).await?;
    }
    let tried = stream::iter(kinds.iter().enumerate()).map(|(index, missing)| {
        let (server, kinds) = (&server, &kinds);
        async move {
            let config = KubernetesConfig {
                kubeconfig: vec![server.kubeconfig(&variant(index))],
                catalog: catalog(None),
                ..KubernetesConfig::default()
            };
            let store = KubernetesStore::connect(config)?;
            let answers = futures_util::future::join_all(kinds.iter().map(|kind| list(&store, kind))).await;
            for (kind, answer) in kinds.iter().zip(answers) {
                match answer {
                    Ok(()) => ensure!(kind != missing, "{kind} is listed without permission"),
                    Err(Error::Forbidden { doing, reason }) => {
                        ensure!(kind == missing, "{kind} is forbidden without the line of {missing}");
                        names_the_missing_line(kind, &format!("{doing}: {reason}"))?;
                    }
                    Err(other) => anyhow::bail!("{kind} without the line of {missing}: {other}"),
                }
            }
            Ok(())
        }
    });
    tried.buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await?;
    a_daemon_that_may_only_read(&server).await?;
    a_daemon_without_some_lines(&server).await
}

/// A daemon that may neither write nor watch definitions: it still serves, logs the missing permissions, and finds a kind that
/// is defined late by asking for it again.
async fn a_daemon_that_may_only_read(server: &ApiServer) -> anyhow::Result<()> {
    let rest = server.rest();
    let user = variant(VARIANTS - 2);
    let mut rules = role::rules()?;
    rules.retain(|rule| {
        rule["verbs"] == json!(["list", "watch"]) && rule["apiGroups"] != json!(["apiextensions.k8s.io"])
    });
    role::grant(&rest, &user, &rules).await?;
    crds::uninstall(&rest, &k::BGP_FILTER, GROUP).await?;

    let folder = TempDir::new()?;
    let (daemon, agents) = start_all(&folder, server.kubeconfig(&user)).await?;
    agents.until_equal(&rest, GROUP).await?;
    logged(&daemon, &["WARN", "clusterinformations", r#"verbs: ["get"]"#]).await?;
    logged(&daemon, &[r#"resources: ["customresourcedefinitions"]"#]).await?;
    logged(&daemon, &["the datastore as it is at the start", "in_sync=true"]).await?;
    logged(&daemon, &["does not have these kinds", "BGPFilter"]).await?;
    ensure!(rest.list(&GROUP.collection(&k::CLUSTER_INFORMATION, "")).await?.is_empty(), "nothing was written");

    crds::install(&rest, &k::BGP_FILTER, GROUP).await?;
    let filter = population::custom(&k::BGP_FILTER, GROUP, 0, SMALL).unwrap_or_default();
    rest.create(&GROUP.collection(&k::BGP_FILTER, ""), &filter).await?;
    agents.until_equal(&rest, GROUP).await.map(drop)
}

/// Fails unless the text names the verb, the resource, and the line for the role.
fn names_the_missing_line(kind: &Kind, text: &str) -> anyhow::Result<()> {
    let group = if is_calico(kind) { GROUP.group_version().0 } else { &kind.group };
    let line = format!(r#"{{apiGroups: ["{group}"], resources: ["{}"], verbs: ["list", "watch"]}}"#, kind.plural);
    ensure!(text.contains(&line) && text.contains("list"), "{line} is not in {text}");
    Ok(())
}

/// A daemon without permission for two kinds: the others go on, the log names the remedy, and the remedy helps.
async fn a_daemon_without_some_lines(server: &ApiServer) -> anyhow::Result<()> {
    let rest = server.rest();
    let user = variant(VARIANTS - 1);
    let missing = [k::POD, k::BGP_FILTER];
    role::grant(&rest, &user, &rules_without(&missing.each_ref())?).await?;

    let folder = TempDir::new()?;
    let daemon = start_daemon(&folder, server.kubeconfig(&user), &[]).await?;
    let agents = Agents::start(daemon.sync)?;
    for kind in &missing {
        let line = logged(&daemon, &["ERROR", &format!("resources: [\"{}\"]", kind.plural)]).await;
        names_the_missing_line(kind, &line?)?;
    }
    // The permitted kinds arrive, and are followed.
    let wanted = expected(&rest, GROUP, &bulrush::calico::processors::Context::default()).await?;
    let rest_of = |content: &super::expected::Content| -> super::expected::Content {
        let is_left = |key: &str| !key.contains("/workload/") && !key.contains("/bgpfilters/");
        content.iter().filter(|(key, _)| is_left(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    for syncer in syncers::ALL {
        let left = rest_of(&wanted[&syncer]);
        agents.until(syncer, "the permitted content", |memory| memory.content == left).await?;
    }
    let not_in_sync = |syncer| agents.look(syncer, |memory| memory.statuses.last() != Some(&SyncStatus::InSync));
    ensure!(not_in_sync(FELIX) && not_in_sync(BGP), "a syncer without one of its kinds is not in sync");
    for syncer in [TUNNEL_IP_ALLOCATION, NODE_STATUS] {
        agents.until(syncer, "in sync", |memory| memory.statuses.last() == Some(&SyncStatus::InSync)).await?;
    }
    let pool = population::custom(&k::IP_POOL, GROUP, 50, SMALL).unwrap_or_default();
    rest.create(&GROUP.collection(&k::IP_POOL, ""), &pool).await?;
    agents.until_held(BGP, "/calico/v1/ipam/v4/pool/10.150.0.0-16").await?;

    // The lines are added: no restart is needed.
    role::grant(&rest, &user, &role::rules()?).await?;
    agents.until_in_sync().await?;
    let complete = agents.until_equal(&rest, GROUP).await?;
    agents.deleted_exactly_the_missing_keys(&wanted, &complete, None)
}
