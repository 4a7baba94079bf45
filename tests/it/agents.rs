//! The real daemon and agents in Go, with Go's own gob decoder and snappy, on an etcd with churn.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use etcd_client::Client;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::need::{Program, need};
use crate::real_etcd::Etcd;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org";
/// The test's last write: agents stop when they have it. Only changes of one kind have an order, so it is of the kind of all others;
/// its key is the last of them as well, for an agent that is behind gets the changes in the order of their keys.
const LAST: (&str, &str) = ("globalnetworksets/zzz-last", "/calico/v1/netset/zzz-last");

async fn put(etcd: &mut Client, path: &str, value: String) -> anyhow::Result<()> {
    etcd.put(format!("{PREFIX}/{path}"), value, None).await.with_context(|| format!("put {path}"))?;
    Ok(())
}

fn network_set(i: usize, round: usize) -> String {
    named_network_set(&format!("set-{i}"), i, round)
}

fn named_network_set(name: &str, i: usize, round: usize) -> String {
    format!(
        r#"{{"kind":"GlobalNetworkSet","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","labels":{{"round":"r{round}"}}}},"spec":{{"nets":["10.{}.{}.0/24"]}}}}"#,
        i / 256,
        i % 256
    )
}

fn resource(kind: &str, name: &str, spec: &str) -> String {
    format!(r#"{{"kind":"{kind}","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"}},"spec":{spec}}}"#)
}

/// Writes data for each of the four syncers.
async fn fill(etcd: &mut Client) -> anyhow::Result<()> {
    for i in 0..500 {
        put(etcd, &format!("globalnetworksets/set-{i}"), network_set(i, 0)).await?;
    }
    let pool = r#"{"cidr":"10.65.0.0/16","ipipMode":"Always","natOutgoing":true,"nodeSelector":"all()"}"#;
    put(etcd, "ippools/pool", resource("IPPool", "pool", pool)).await?;
    put(etcd, "bgppeers/rack", resource("BGPPeer", "rack", r#"{"peerIP":"192.168.1.1","asNumber":64567}"#)).await?;
    put(etcd, "nodes/node-a", resource("Node", "node-a", r#"{"bgp":{"ipv4Address":"10.0.0.1/24"}}"#)).await?;
    let status = r#"{"node":"node-a","classes":["BGP"],"updatePeriodSeconds":10}"#;
    put(etcd, "caliconodestatuses/s", resource("CalicoNodeStatus", "s", status)).await
}

fn agent(
    program: &PathBuf,
    server: &Daemon,
    arguments: &[&str],
) -> tokio::task::JoinHandle<anyhow::Result<Vec<Value>>> {
    let mut command = Command::new(program);
    command.arg("-server").arg(server.sync.to_string()).arg("-timeout=50s").args(arguments);
    tokio::task::spawn_blocking(move || {
        let output = command.output().context("run the Go agent")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "the Go agent failed: {text}{}", String::from_utf8_lossy(&output.stderr));
        text.lines().map(|line| serde_json::from_str(line).context("the agent prints JSON lines")).collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_go_agents_end_in_the_same_state_under_churn() -> anyhow::Result<()> {
    let Some(program) = need(Program::Go("agent")) else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let Some(etcd_server) = Etcd::start().await else { return Ok(()) };
    let mut etcd = Client::connect([etcd_server.url()], None).await?;
    fill(&mut etcd).await?;
    let options =
        [("DatastoreType", "etcdv3"), ("EtcdEndpoints", &etcd_server.url()), ("ServerPingIntervalSecs", "0.5")];
    let daemon = Daemon::start(folder.path(), &options)?;
    daemon.wait_ready()?;

    let until = format!("-until={}", LAST.1);
    let compressed = agent(&program, &daemon, &["-clients=60", &until, "-pings=1"]);
    let plain = agent(&program, &daemon, &["-clients=39", &until, "-compress=false"]);
    let slow = agent(&program, &daemon, &["-clients=1", &until, "-read-delay=5ms"]);
    for round in 1..=20 {
        for i in (round..500).step_by(20) {
            if round % 5 == 0 {
                etcd.delete(format!("{PREFIX}/globalnetworksets/set-{i}"), None).await?;
            } else {
                put(&mut etcd, &format!("globalnetworksets/set-{i}"), network_set(i, round)).await?;
            }
        }
    }
    put(&mut etcd, LAST.0, named_network_set("zzz-last", 500, 21)).await?;

    let mut reports = compressed.await??;
    reports.extend(plain.await??);
    reports.extend(slow.await??);
    ensure!(reports.len() == 100, "{} reports", reports.len());
    for report in &reports {
        ensure!(report["digest"] == reports[0]["digest"], "agents differ: {report} and {}", reports[0]);
        ensure!(report["statuses"].as_array().and_then(|all| all.last()) == Some(&Value::from(2)), "{report}");
    }
    ensure!(reports[0]["restarts"].as_u64() >= Some(1), "compressed agents restart their decoder: {}", reports[0]);

    // The agents hold etcd's content: counted by kind, converted by hand.
    let sets =
        etcd.get(format!("{PREFIX}/globalnetworksets/"), Some(etcd_client::GetOptions::new().with_prefix())).await?;
    let one = agent(&program, &daemon, &["-print"]).await??;
    let state = one[0]["state"].as_object().context("the agent prints its state")?;
    let held: Vec<&String> = state.keys().filter(|key| key.starts_with("/calico/v1/netset/")).collect();
    ensure!(held.len() == sets.kvs().len(), "{} sets held, {} in etcd", held.len(), sets.kvs().len());
    for kv in sets.kvs() {
        let stored: Value = serde_json::from_slice(kv.value())?;
        let name = stored["metadata"]["name"].as_str().unwrap_or_default();
        let value: Value =
            serde_json::from_str(state[&format!("/calico/v1/netset/{name}")].as_str().unwrap_or_default())?;
        ensure!(
            value["labels"] == stored["metadata"]["labels"] && value["nets"] == stored["spec"]["nets"],
            "{name}: {value}"
        );
    }
    ensure!(state.contains_key(LAST.1), "the last write is there");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_syncer_reaches_go_agents_compressed_and_plain() -> anyhow::Result<()> {
    let Some(program) = need(Program::Go("agent")) else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let Some(etcd_server) = Etcd::start().await else { return Ok(()) };
    let mut etcd = Client::connect([etcd_server.url()], None).await?;
    fill(&mut etcd).await?;
    let options = [("DatastoreType", "etcdv3"), ("EtcdEndpoints", &etcd_server.url())];
    let daemon = Daemon::start(folder.path(), &options)?;
    daemon.wait_ready()?;
    let expected = [
        ("felix", "/calico/v1/netset/set-7"),
        ("bgp", "/calico/resources/v3/projectcalico.org/bgppeers/rack"),
        ("tunnel-ip-allocation", "/calico/v1/ipam/v4/pool/10.65.0.0-16"),
        ("node-status", "/calico/resources/v3/projectcalico.org/caliconodestatuses/s"),
    ];
    for (syncer, key) in expected {
        for compress in ["-compress=true", "-compress=false"] {
            let reports = agent(&program, &daemon, &["-syncer", syncer, compress, "-print"]).await??;
            ensure!(reports[0]["state"].get(key).is_some(), "{syncer} {compress}: {key} is missing in {}", reports[0]);
        }
    }
    Ok(())
}
