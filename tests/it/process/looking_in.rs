//! Metrics, status, dump and watch, for operators.

#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{Finished, Served, Watcher, bulrush, finish, pool};
use crate::daemon::{Daemon, eventually, http_get};

/// The four syncers, in Typha's order.
const SYNCERS: [&str; 4] = ["felix", "bgp", "tunnel-ip-allocation", "node-status"];
/// Ways to ask for the same data.
const PROTOCOLS: [&str; 3] = ["native", "calico", "calico-plain"];

/// Typha's metrics with the label `syncer` and a single number.
const PER_SYNCER: [&str; 12] = [
    "typha_connections_streaming",
    "typha_connections_grace_used",
    "typha_breadcrumb_seq_number",
    "typha_breadcrumb_block",
    "typha_breadcrumb_non_block",
    "typha_updates_total",
    "typha_updates_skipped",
    "typha_cache_size",
    "typha_snapshots_generated",
    "typha_snapshots_reused",
    "typha_snapshot_raw_bytes",
    "typha_snapshot_compressed_bytes",
];
/// Typha's metrics that are summaries.
const SUMMARIES: [&str; 7] = [
    "typha_client_snapshot_send_secs",
    "typha_client_latency_secs",
    "typha_client_write_latency_secs",
    "typha_next_breadcrumb_latency_secs",
    "typha_ping_latency",
    "typha_kvs_per_msg",
    "typha_breadcrumb_size",
];
/// Typha's metrics of the process, without labels.
const PER_PROCESS: [&str; 8] = [
    "typha_connections_accepted",
    "typha_connections_active",
    "typha_connections_dropped",
    "typha_logs_dropped",
    "typha_log_errors",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
];

fn dump(daemon: &Daemon, arguments: &[&str]) -> anyhow::Result<Finished> {
    let server = daemon.sync.to_string();
    finish(bulrush().args(["dump", "--server", &server]).args(arguments))?.expect_code(0)
}

fn status(daemon: &Daemon) -> anyhow::Result<Value> {
    let (code, page) = http_get(daemon.health, "/status")?;
    ensure!(code == 200, "/status answers {code}: {page}");
    serde_json::from_str(&page).context("the status is JSON")
}

#[test]
fn all_of_typhas_metrics_are_served_from_the_start_and_move() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[("ServerPingIntervalSecs", "0.1")])?;
    for name in PER_PROCESS {
        daemon.metric(name)?;
    }
    for syncer in SYNCERS {
        for name in PER_SYNCER {
            daemon.metric(&format!("{name}{{syncer=\"{syncer}\"}}"))?;
        }
        for name in SUMMARIES {
            for end in ["_sum", "_count"] {
                daemon.metric(&format!("{name}{end}{{syncer=\"{syncer}\"}}"))?;
            }
            for quantile in ["0.5", "0.9", "0.99"] {
                daemon.metric(&format!("{name}{{syncer=\"{syncer}\",quantile=\"{quantile}\"}}"))?;
            }
        }
    }
    ensure!(daemon.metric("typha_cache_size{syncer=\"felix\"}")? >= 1.0, "the pool is in the cache");
    let accepted = daemon.metric("typha_connections_accepted")?;

    let watcher = Watcher::start(&daemon, &["--protocol", "calico", "--syncer", "bgp"])?;
    ensure!(daemon.metric("typha_connections_accepted")? > accepted, "a client was accepted");
    ensure!(daemon.metric("typha_connections_streaming{syncer=\"bgp\"}")? == 1.0, "it streams");
    ensure!(daemon.metric("typha_connections_streaming{syncer=\"felix\"}")? == 0.0, "no other client streams");
    let total = daemon.metric("typha_updates_total{syncer=\"bgp\"}")?;
    served.write("second.yaml", &pool("second", "10.2.0.0/16"))?;
    watcher.wait_for("/pool/10.2.0.0-16")?;
    ensure!(daemon.metric("typha_updates_total{syncer=\"bgp\"}")? > total, "an update was counted");
    for moving in ["typha_ping_latency_count", "typha_kvs_per_msg_count", "typha_client_snapshot_send_secs_count"] {
        let series = format!("{moving}{{syncer=\"bgp\"}}");
        eventually(&series, || daemon.metric(&series).ok().filter(|count| *count >= 1.0))?;
    }
    drop(watcher);
    let none_left = || daemon.metric("typha_connections_active").ok().filter(|active| *active == 0.0);
    eventually("the client's end is counted", none_left)?;
    Ok(())
}

#[test]
fn the_status_lists_the_client_with_its_lag() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let _watcher = Watcher::start(&daemon, &["--syncer", "tunnel-ip-allocation"])?;
    let client = eventually("the client follows", || {
        let client = status(&daemon).ok()?["clients"][0].clone();
        (client["state"] == "following").then_some(client)
    })?;
    ensure!(client["agent"] == "bulrush-cli" && client["syncer"] == "tunnel-ip-allocation", "{client}");
    ensure!(client["lag_secs"].is_number() && client["lag_updates"].is_number(), "{client}");
    ensure!(client["bytes_sent"].as_u64() > Some(0), "{client}");
    let page = status(&daemon)?;
    let names: Vec<&str> =
        page["syncers"].as_array().into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
    ensure!(names == SYNCERS, "{names:?}");
    ensure!(page["datastore"]["type"] == "file" && page["phase"] == "running", "{page}");

    let health = daemon.health.to_string();
    let table = finish(bulrush().args(["status", "--server", &health]))?.expect_code(0)?.out;
    for part in ["in-sync", "bulrush-cli", "tunnel-ip-allocation", "following", "LAG"] {
        ensure!(table.contains(part), "{part} is missing in:\n{table}");
    }
    let json = finish(bulrush().args(["status", "-o", "json", "--address", &health]))?.expect_code(0)?.out;
    ensure!(serde_json::from_str::<Value>(&json)?["clients"].as_array().is_some_and(|clients| clients.len() == 1));
    let counted = finish(bulrush().args(["status", "--clients", "0", "--server", &health]))?.expect_code(0)?.out;
    ensure!(counted.contains("1 client: 1 following") && !counted.contains("bulrush-cli"), "{counted}");
    let wrong = finish(bulrush().args(["status", "--clients", "few", "--server", &health]))?.expect_code(64)?.err;
    ensure!(wrong.contains("a whole number or all"), "{wrong}");

    let nobody = format!("127.0.0.1:{}", crate::real_etcd::free_port());
    let end = finish(bulrush().args(["status", "--server", &nobody]))?.expect_code(1)?;
    ensure!(end.err.contains(&nobody) && end.err.contains("HealthEnabled"), "{}", end.err);
    Ok(())
}

#[test]
fn dump_prints_the_same_keys_in_every_protocol_and_form() -> anyhow::Result<()> {
    let served = Served::new()?;
    served.write("more.yaml", &pool("second", "10.2.0.0/16"))?;
    let daemon = served.daemon(&[])?;
    for syncer in SYNCERS {
        let mut seen = BTreeSet::new();
        for protocol in PROTOCOLS {
            let table = dump(&daemon, &["--syncer", syncer, "--protocol", protocol])?.out;
            let keys: Vec<&str> = table.lines().filter_map(|line| line.split(' ').next()).collect();
            let json = dump(&daemon, &["--syncer", syncer, "--protocol", protocol, "-o", "json"])?.out;
            let lines: Vec<Value> = json.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
            let json_keys: Vec<&str> = lines.iter().filter_map(|line| line["key"].as_str()).collect();
            ensure!(keys == json_keys, "{syncer} {protocol}: {keys:?} and {json_keys:?}");
            let values: Vec<String> =
                lines.iter().map(|line| format!("{} {} {}", line["key"], line["value"], line["revision"])).collect();
            seen.insert(values);
        }
        ensure!(seen.len() == 1, "{syncer}: the protocols differ: {seen:#?}");
        let pools = seen.iter().flatten().filter(|line| line.contains("/calico/v1/ipam/v4/pool/")).count();
        ensure!(pools == if syncer == "node-status" { 0 } else { 2 }, "{syncer}: {seen:#?}");
    }
    let one = dump(&daemon, &["--prefix", "/calico/v1/ipam/v4/pool/10.2"])?.out;
    ensure!(one.lines().count() == 1, "{one}");

    let nobody = format!("127.0.0.1:{}", crate::real_etcd::free_port());
    let end = finish(bulrush().args(["dump", "--timeout", "0.5", "--server", &nobody]))?.expect_code(1)?;
    ensure!(end.err.contains("not in sync after 0.5 s") && end.err.contains(&nobody), "{}", end.err);
    Ok(())
}

#[test]
fn watch_prints_edits_and_deletes_as_they_happen() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let watchers: Vec<(Watcher, Watcher)> = PROTOCOLS
        .iter()
        .map(|protocol| {
            let table = Watcher::start(&daemon, &["--protocol", protocol])?;
            Ok((table, Watcher::start(&daemon, &["--protocol", protocol, "-o", "json"])?))
        })
        .collect::<anyhow::Result<_>>()?;
    let key = "/calico/v1/ipam/v4/pool/10.2.0.0-16";
    let nat = pool("second", "10.2.0.0/16").replace("spec: {", "spec: {natOutgoing: true, ");
    served.write("second.yaml", &pool("second", "10.2.0.0/16"))?;
    for (table, json) in &watchers {
        table.wait_for(&format!("+ {key}"))?;
        json.wait_for_line("a new key", |line| is_change(line, "new", key, "\"masquerade\":false"))?;
    }
    served.write("second.yaml", &nat)?;
    for (table, json) in &watchers {
        table
            .wait_for_line("~", |line| line.starts_with(&format!("~ {key}")) && line.contains("\"masquerade\":true"))?;
        json.wait_for_line("an update", |line| is_change(line, "updated", key, "\"masquerade\":true"))?;
    }
    served.remove("second.yaml")?;
    for (table, json) in &watchers {
        table.wait_for(&format!("- {key}"))?;
        json.wait_for_line("a delete", |line| is_change(line, "deleted", key, ""))?;
    }
    Ok(())
}

/// Whether a JSON line tells this change of the key, with a value that contains `part`.
fn is_change(line: &str, change: &str, key: &str, part: &str) -> bool {
    let line: Value = serde_json::from_str(line).unwrap_or_default();
    line["change"] == change && line["key"] == key && (part.is_empty() || line["value"].to_string().contains(part))
}

#[test]
fn a_broken_file_keeps_its_last_good_content_and_is_named() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let watcher = Watcher::start(&daemon, &[])?;
    served.write("pool.yaml", "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: [\n")?;
    let error = eventually("the status names the file", || {
        let error = status(&daemon).ok()?["datastore"]["file_errors"][0].clone();
        error["file"].as_str().is_some_and(|file| file.ends_with("pool.yaml")).then_some(error)
    })?;
    ensure!(error["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{error}");
    let logged = || daemon.log().lines().any(|line| line.contains("pool.yaml")).then_some(());
    eventually("the log names the file", logged)?;
    let table = finish(bulrush().args(["status", "--server", &daemon.health.to_string()]))?.expect_code(0)?.out;
    ensure!(table.contains("bad file:") && table.contains("pool.yaml"), "{table}");
    let held = dump(&daemon, &["--prefix", "/calico/v1/ipam/v4/pool/"])?.out;
    ensure!(held.contains("10.1.0.0-16"), "the last good content stays: {held:?}");

    // Other files are followed meanwhile, and a repaired file is read.
    served.write("other.yaml", &pool("other", "10.3.0.0/16"))?;
    watcher.wait_for("+ /calico/v1/ipam/v4/pool/10.3.0.0-16")?;
    ensure!(!watcher.said().contains("- /calico"), "nothing was deleted: {}", watcher.said());
    served.write("pool.yaml", &pool("first", "10.4.0.0/16"))?;
    watcher.wait_for("+ /calico/v1/ipam/v4/pool/10.4.0.0-16")?;
    watcher.wait_for("- /calico/v1/ipam/v4/pool/10.1.0.0-16")?;
    let repaired = || status(&daemon).ok()?["datastore"]["file_errors"].as_array()?.is_empty().then_some(());
    eventually("the status names no file", repaired)?;
    Ok(())
}

#[test]
fn bad_objects_are_named_in_the_status_and_do_not_fill_the_log() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let bad: Vec<String> = (0..50).map(|n| pool(&format!("bad-{n:02}"), "10.0.0.0/33")).collect();
    served.write("bad.yaml", &bad.join("---\n"))?;
    let felix = eventually("the status names the objects", || {
        let felix = status(&daemon).ok()?["syncers"][0].clone();
        (felix["problem_count"] == 50).then_some(felix)
    })?;
    let first = &felix["problems"][0];
    ensure!(first["name"] == "projectcalico.org/v3/IPPool bad-00", "{first}");
    ensure!(first["reason"].as_str().is_some_and(|reason| reason.contains("10.0.0.0/33")), "{first}");
    let table = finish(bulrush().args(["status", "--server", &daemon.health.to_string()]))?.expect_code(0)?.out;
    ensure!(table.contains("felix: 50 bad") && table.contains("IPPool bad-00: spec.cidr"), "{table}");
    ensure!(table.contains("and 40 more"), "{table}");
    // Each of the three syncers that read pools logs one object.
    let log = daemon.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("object cannot be converted")).collect();
    ensure!((1..=3).contains(&lines.len()), "{lines:#?}");

    let good: Vec<String> = (0..50).map(|n| pool(&format!("bad-{n:02}"), &format!("10.{}.0.0/16", 100 + n))).collect();
    served.write("bad.yaml", &good.join("---\n"))?;
    let gone = || (status(&daemon).ok()?["syncers"][0]["problem_count"] == 0).then_some(());
    eventually("the repaired object is no longer a problem", gone)
}

#[test]
fn connections_above_the_limit_are_closed_with_a_reason() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[("MaxConnectionsUpperLimit", "2"), ("ConnectionDropIntervalSecs", "0.05")])?;
    let watchers: Vec<Watcher> = (0..5).map(|_| Watcher::spawn(&daemon, &[])).collect::<anyhow::Result<_>>()?;
    let dropped = || daemon.metric("typha_connections_dropped").ok().filter(|count| *count >= 3.0);
    eventually("three connections are dropped", dropped)?;
    let told = || watchers.iter().any(|watcher| watcher.said().contains("spread connections")).then_some(());
    eventually("a client is told the reason", told)?;
    let closed = daemon.metric("bulrush_connections_closed_total{reason=\"rebalanced\"}")?;
    ensure!(closed >= 1.0, "{closed}");
    Ok(())
}

#[test]
fn the_limit_of_open_files_is_raised_to_the_hard_limit() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[])?;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid()))?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).context("no such limit")?;
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    ensure!(numbers[0] == numbers[1] && numbers[0] != "256", "soft and hard: {numbers:?}");
    Ok(())
}
