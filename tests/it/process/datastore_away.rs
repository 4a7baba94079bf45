//! etcd is away at the start or goes away later; and the keys that are written to an empty etcd.

#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use anyhow::ensure;
use serde_json::Value;

use super::Watcher;
use crate::daemon::{Daemon, eventually, http_get};
use crate::real_etcd::Etcd;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn daemon_for(etcd: &Etcd, scratch: &std::path::Path, options: &[(&str, &str)]) -> anyhow::Result<Daemon> {
    let url = etcd.url();
    let mut all = vec![("DatastoreType", "etcdv3"), ("EtcdEndpoints", &*url)];
    all.extend(options);
    Daemon::start(scratch, &all)
}

fn code(daemon: &Daemon, path: &str) -> anyhow::Result<u16> {
    Ok(http_get(daemon.health, path)?.0)
}

async fn put_pool(etcd: &Etcd, name: &str, cidr: &str) -> anyhow::Result<()> {
    let value = format!(
        r#"{{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":{{"cidr":"{cidr}"}}}}"#
    );
    etcd.client().await.put(format!("{PREFIX}ippools/{name}"), value, None).await?;
    Ok(())
}

/// All keys in etcd.
async fn keys(etcd: &Etcd) -> anyhow::Result<Vec<String>> {
    let options = etcd_client::GetOptions::new().with_all_keys().with_keys_only();
    let answer = etcd.client().await.get("", Some(options)).await?;
    answer.kvs().iter().map(|kv| Ok(kv.key_str()?.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_comes_late_is_waited_for() -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let Some(mut etcd) = Etcd::start().await else { return Ok(()) };
    put_pool(&etcd, "late", "10.9.0.0/16").await?;
    etcd.kill();
    let daemon = daemon_for(&etcd, scratch.path(), &[])?;
    let watcher = Watcher::spawn(&daemon, &[])?;
    watcher.wait_for("== connected")?;
    let page: Value = serde_json::from_str(&http_get(daemon.health, "/status")?.1)?;
    for syncer in page["syncers"].as_array().into_iter().flatten() {
        ensure!(syncer["status"] == "wait-for-ready", "{syncer}");
    }
    ensure!(code(&daemon, "/liveness")? == 200, "{}", daemon.log());
    ensure!(code(&daemon, "/readiness")? == 503, "{}", daemon.log());
    ensure!(!watcher.said().contains("in-sync"), "{}", watcher.said());

    etcd.run().await;
    daemon.wait_ready()?;
    watcher.wait_for("in-sync")?;
    watcher.wait_for("/calico/v1/ipam/v4/pool/10.9.0.0-16")?;
    ensure!(watcher.said().matches("== connected").count() == 1, "one connection: {}", watcher.said());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_stay_connected_while_the_datastore_is_away() -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let Some(mut etcd) = Etcd::start().await else { return Ok(()) };
    let daemon = daemon_for(&etcd, scratch.path(), &[])?;
    daemon.wait_ready()?;
    let watcher = Watcher::start(&daemon, &[])?;

    etcd.kill();
    let status = eventually("the status shows that etcd is away", || {
        let (_, page) = http_get(daemon.health, "/status").ok()?;
        let status: Value = serde_json::from_str(&page).ok()?;
        (status["datastore"]["state"] == "away").then_some(status)
    })?;
    ensure!(status["datastore"]["last_error"].as_str().is_some_and(|error| !error.is_empty()), "{status}");
    ensure!(code(&daemon, "/liveness")? == 200, "{}", daemon.log());
    ensure!(daemon.metric("typha_connections_active")? == 1.0, "{}", daemon.log());

    etcd.run().await;
    put_pool(&etcd, "after", "10.8.0.0/16").await?;
    watcher.wait_for("+ /calico/v1/ipam/v4/pool/10.8.0.0-16")?;
    daemon.wait_ready()?;
    ensure!(watcher.said().matches("== connected").count() == 1, "one connection: {}", watcher.said());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_datastore_is_filled_once() -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let Some(etcd) = Etcd::start().await else { return Ok(()) };
    let read_only = daemon_for(&etcd, scratch.path(), &[("DatastoreReadOnly", "true")])?;
    read_only.wait_ready()?;
    ensure!(keys(&etcd).await?.is_empty(), "{:?}", keys(&etcd).await?);

    let writing = daemon_for(&etcd, scratch.path(), &[])?;
    writing.wait_ready()?;
    let found = keys(&etcd).await?;
    let expected = ["clusterinformations/default", "tiers/default", "tiers/kube-admin", "tiers/kube-baseline"];
    ensure!(found == expected.map(|name| format!("{PREFIX}{name}")), "{found:?}");

    // A second instance finds everything there and leaves it alone.
    let revision = |answer: etcd_client::GetResponse| answer.header().map(etcd_client::ResponseHeader::revision);
    let before = revision(etcd.client().await.get("x", None).await?);
    let second = daemon_for(&etcd, scratch.path(), &[])?;
    second.wait_ready()?;
    ensure!(revision(etcd.client().await.get("x", None).await?) == before, "written again: {}", second.log());
    Ok(())
}
