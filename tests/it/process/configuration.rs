//! Mistakes in options, files and arguments: all are named at once, with exit statuses that scripts can rely on.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use anyhow::ensure;
use tempfile::TempDir;

use super::{Served, bulrush, finish, text_of};
use crate::daemon::{Daemon, eventually, http_get};

/// Exit status of wrong usage or configuration.
const USAGE: i32 = 64;
/// Exit status of every other reason not to run.
const FAILURE: i32 = 1;

/// Fails unless some line of `text` has all of `parts`.
fn expect_line(text: &str, parts: &[&str]) -> anyhow::Result<()> {
    let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    ensure!(found, "no line with all of {parts:?} in:\n{text}");
    Ok(())
}

/// A file with this text.
fn file(folder: &TempDir, name: &str, text: &str) -> anyhow::Result<String> {
    let path = folder.path().join(name);
    fs::write(&path, text)?;
    Ok(text_of(&path).to_owned())
}

/// Runs the daemon with these `TYPHA_` options on free ports until it fails with `code`, and returns its output.
fn fails(options: &[(&str, &str)], code: i32) -> anyhow::Result<String> {
    let mut command = bulrush();
    command.args(["--config-file", "no-such-file.cfg"]).env("TYPHA_SERVERHOST", "127.0.0.1");
    for (name, value) in options {
        command.env(format!("TYPHA_{}", name.to_uppercase()), value);
    }
    Ok(finish(&mut command)?.expect_code(code)?.err)
}

#[test]
fn all_mistakes_are_told_at_once_with_their_sources() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let config =
        file(&folder, "typha.cfg", "[global]\nDatastoreType = etcd\nHealthPort = 99999\njunk\nServerPort = 1234\n")?;
    let mut command = bulrush();
    command
        .args(["--config-file", &config])
        .env("TYPHA_SERVERPINGINTERVALSECS", "10s")
        .env("TYPHA_MAXCONNECTIONSUPPERLIMIT", "-1")
        .env("typha_ServerPort", "many");
    let end = finish(&mut command)?.expect_code(USAGE)?;
    for parts in [
        &["DatastoreType", "\"etcd\"", "typha.cfg:2", "kubernetes, etcdv3, file"][..],
        &["HealthPort", "\"99999\"", "typha.cfg:3", "0 to 65535"],
        &["junk", "typha.cfg:4", "Name = value"],
        &["ServerPingIntervalSecs", "\"10s\"", "TYPHA_SERVERPINGINTERVALSECS", "number of seconds"],
        &["MaxConnectionsUpperLimit", "\"-1\"", "TYPHA_MAXCONNECTIONSUPPERLIMIT", "whole number"],
    ] {
        expect_line(&end.err, parts)?;
    }
    ensure!(end.err.contains("mistakes:"), "{}", end.err);
    ensure!(end.out.is_empty(), "nothing starts: {}", end.out);

    // The check prints the same mistakes to standard output, for scripts.
    let mut check = bulrush();
    check.args(["config", "--check", "--config-file", &config]);
    let end = finish(&mut check)?.expect_code(USAGE)?;
    expect_line(&end.out, &["HealthPort", "\"99999\"", "typha.cfg:3"])?;
    Ok(())
}

#[test]
fn the_shipped_configurations_are_good() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["config/typha.cfg", "config/quickstart.cfg"] {
        let mut command = bulrush();
        command.current_dir(root).args(["config", "--check", "--config-file", name]);
        let end = finish(&mut command)?.expect_code(0)?;
        ensure!(end.out.contains("the configuration is good"), "{name}: {}", end.out);
    }
    Ok(())
}

#[test]
fn the_environment_counts_more_than_the_file() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let config = file(&folder, "typha.cfg", "serverPINGintervalsecs = 5\nHealthPort = 1\n")?;
    let mut command = bulrush();
    command.args(["config", "-o", "json", "-c", &config]).env("TYPHA_SERVERPINGINTERVALSECS", "7");
    let end = finish(&mut command)?.expect_code(0)?;
    let page: serde_json::Value = serde_json::from_str(&end.out)?;
    let option = |name: &str| {
        let options = page["options"].as_array().into_iter().flatten();
        options.clone().find(|option| option["name"] == name).cloned().unwrap_or_default()
    };
    let interval = option("ServerPingIntervalSecs");
    ensure!(interval["value"].as_f64() == Some(7.0), "{interval}");
    ensure!(interval["source"].as_str().is_some_and(|source| source.contains("TYPHA_SERVERPINGINTERVALSECS")));
    ensure!(option("HealthPort")["source"].as_str().is_some_and(|source| source.ends_with("typha.cfg:2")));
    Ok(())
}

#[test]
fn wrong_arguments_end_with_64_and_name_the_known_ones() -> anyhow::Result<()> {
    for (arguments, said) in [
        (&["watch", "--syncer", "Felix"][..], "cannot name a syncer"),
        (&["dump", "--syncer", "felix_x"], "cannot name a syncer"),
        (&["dump", "--protocol", "calico", "--compression", "zstd"], "--compression"),
        (&["dump", "--ca-file", "x"], "--key-file"),
        (&["dump", "--timeout", "soon"], "number of seconds"),
        (&["serve"], "serve"),
        (&["--colour"], "--colour"),
    ] {
        let end = finish(bulrush().args(arguments))?.expect_code(USAGE)?;
        ensure!(end.err.contains(said), "{arguments:?}: {}", end.err);
    }
    finish(bulrush().arg("--help"))?.expect_code(0)?;
    let version = finish(bulrush().arg("version"))?.expect_code(0)?;
    ensure!(version.out.starts_with("Version: "), "{}", version.out);
    Ok(())
}

#[test]
fn the_kubernetes_datastore_needs_an_api_server() -> anyhow::Result<()> {
    let said = fails(&[("DatastoreType", "kubernetes")], FAILURE)?;
    expect_line(&said, &["no API server is configured", "KUBECONFIG", "K8S_API_ENDPOINT"])
}

#[test]
fn a_proxy_that_cannot_be_used_matters_only_where_it_is_needed() -> anyhow::Result<()> {
    let scratch = TempDir::new()?;
    let environment = |server: &'static str| {
        [("K8S_API_ENDPOINT", server), ("HTTPS_PROXY", "http://u:hush@:::"), ("NO_PROXY", "127.0.0.0/8")]
    };
    let mut command = bulrush();
    command.args(["--config-file", "no-such-file.cfg"]).env("TYPHA_DATASTORETYPE", "kubernetes");
    let said = finish(command.envs(environment("https://192.0.2.1")))?.expect_code(FAILURE)?.err;
    expect_line(&said, &["HTTPS_PROXY is no address of a proxy", "http://HOST:PORT"])?;
    ensure!(!said.contains("hush"), "{said}");

    let options = [("DatastoreType", "kubernetes")];
    let daemon = Daemon::start_in(scratch.path(), &options, &environment("https://127.0.0.1:1"))?;
    eventually("it runs", || http_get(daemon.health, "/liveness").ok().filter(|(code, _)| *code == 200))?;
    Ok(())
}

#[test]
fn a_folder_needs_a_path() -> anyhow::Result<()> {
    let said = fails(&[("DatastoreType", "file")], USAGE)?;
    expect_line(&said, &["DatastorePath"])
}

#[test]
fn tls_is_complete_or_not_at_all() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let key = file(&folder, "server.key", "")?;
    let said = fails(&[("ServerKeyFile", &key)], USAGE)?;
    for missing in ["ServerCertFile", "CAFile", "ClientCN"] {
        expect_line(&said, &[missing, "switched on by ServerKeyFile"])?;
    }
    let said = fails(&[("PrometheusMetricsKeyFile", &key), ("EtcdKeyFile", &key)], USAGE)?;
    for missing in ["PrometheusMetricsCertFile", "PrometheusMetricsCAFile", "EtcdCertFile"] {
        expect_line(&said, &[missing, "is set"])?;
    }
    Ok(())
}

#[test]
fn certificate_files_that_cannot_be_used_are_named() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let (key, cert) = (file(&folder, "server.key", "no key")?, file(&folder, "server.crt", "no certificate")?);
    let gone = text_of(&folder.path().join("gone.ca")).to_owned();
    let tls = |ca| [("ServerKeyFile", &*key), ("ServerCertFile", &*cert), ("CAFile", ca), ("ClientCN", "typha-client")];
    expect_line(&fails(&tls(&gone), USAGE)?, &["CAFile", &gone, "an existing path"])?;
    let data = [("DatastoreType", "file"), ("DatastorePath", text_of(folder.path()))];
    let said = fails(&[&tls(&cert)[..], &data].concat(), FAILURE)?;
    ensure!(said.contains(&key) || said.contains(&cert), "{said}");
    Ok(())
}

#[test]
fn a_port_for_agents_that_is_taken_is_named() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let (address, port) = (taken.local_addr()?.to_string(), taken.local_addr()?.port().to_string());
    let data = [("DatastoreType", "file"), ("DatastorePath", text_of(folder.path())), ("ServerPort", &port)];
    expect_line(&fails(&data, FAILURE)?, &["bulrush:", &address, "in use"])
}

#[test]
fn an_endpoint_port_that_is_taken_is_named_and_waited_for() -> anyhow::Result<()> {
    let served = Served::new()?;
    let taken = TcpListener::bind(("127.0.0.1", 0))?;
    let address = taken.local_addr()?;
    let port = address.port().to_string();
    let daemon = served.daemon(&[("PrometheusMetricsPort", &port)])?;
    expect_line(&daemon.log(), &["cannot listen", "http-metrics", &port, "in use"])?;
    drop(taken);
    eventually("the metrics are served", || http_get(address, "/metrics").ok().filter(|(code, _)| *code == 200))?;
    Ok(())
}
