//! A folder whose files are broken when the daemon starts.

use std::fs;

use anyhow::ensure;
use serde_json::Value;

use super::{Served, Watcher, bulrush, finish, pool, text_of};
use crate::daemon::{Daemon, eventually, http_get};

#[test]
fn a_restart_with_a_broken_file_puts_no_agent_in_sync() -> anyhow::Result<()> {
    let served = Served::new()?;
    served.write("policies.yaml", &pool("second", "10.2.0.0/16"))?;
    let mut before = served.daemon(&[])?;
    before.end()?;
    fs::write(served.data.path().join("policies.yaml"), "apiVersion: v1\nkind: {\n")?;
    let options = [("DatastoreType", "file"), ("DatastorePath", text_of(served.data.path()))];
    let daemon = Daemon::start(served.scratch.path(), &options)?;
    let watcher = Watcher::spawn(&daemon, &[])?;
    watcher.wait_for("== connected")?;
    let status = eventually("the status names the reason", || {
        let status: Value = serde_json::from_str(&http_get(daemon.health, "/status").ok()?.1).ok()?;
        status["datastore"]["held"].as_str().is_some_and(|held| held.contains("policies.yaml:")).then_some(status)
    })?;
    ensure!(status["datastore"]["file_errors"][0]["file"] == "policies.yaml", "{status}");
    let named = || {
        let (code, table) = http_get(daemon.health, "/readiness").ok()?;
        (code == 503 && table.contains("policies.yaml:")).then_some(())
    };
    eventually("the readiness table names the file and its line", named)?;
    ensure!(daemon.log().contains("policies.yaml:"), "{}", daemon.log());
    let printed = finish(bulrush().args(["status", "--address", &daemon.health.to_string()]))?.expect_code(0)?;
    ensure!(printed.out.contains("held: ") && printed.out.contains("bad file: policies.yaml:"), "{}", printed.out);
    ensure!(!watcher.said().contains("in-sync"), "{}", watcher.said());
    for series in ["bulrush_folder_held", "bulrush_folder_errors"] {
        let value = daemon.metric(series)?;
        ensure!((value - 1.0).abs() < f64::EPSILON, "{series} is {value}");
    }

    served.write("policies.yaml", &pool("second", "10.2.0.0/16"))?;
    daemon.wait_ready()?;
    watcher.wait_for("in-sync")?;
    for net in ["10.1.0.0-16", "10.2.0.0-16"] {
        watcher.wait_for(&format!("/calico/v1/ipam/v4/pool/{net}"))?;
    }
    ensure!(!watcher.said().lines().any(|line| line.starts_with("- ")), "nothing was deleted: {}", watcher.said());
    Ok(())
}

#[test]
fn an_option_allows_serving_the_readable_files() -> anyhow::Result<()> {
    let served = Served::new()?;
    served.write("policies.yaml", "kind: {\n")?;
    let daemon = served.daemon(&[("FileServeIncomplete", "true")])?;
    Watcher::start(&daemon, &[])?.wait_for("/calico/v1/ipam/v4/pool/10.1.0.0-16")?;
    Ok(())
}
