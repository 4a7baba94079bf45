//! The Kubernetes datastore against a real API server: the real daemon as a child process, with only our ClusterRole,
//! and an agent per syncer that remembers everything it received.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;

use self::agents::{Agents, PATIENCE};
use self::population::Size;
use crate::apiserver::ApiServer;
use crate::apiserver::crds::CrdGroup;
use crate::daemon::Daemon;
use crate::wait;

mod agents;
mod balance;
mod expected;
mod population;
mod proxy;
mod role;

mod definitions;
mod harness;
mod kinds;
mod large;
mod overload;
mod permissions;
mod preflight;
mod restart;
mod tokens;
mod tunnel;

/// The daemon's user.
const USER: &str = "bulrush";

/// Starts the daemon with a kubeconfig and further options.
async fn start_daemon(folder: &TempDir, kubeconfig: PathBuf, options: &[(&str, &str)]) -> anyhow::Result<Daemon> {
    let folder = folder.path().to_owned();
    let mut options: Vec<(String, String)> =
        options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, value) in [("DatastoreType", "kubernetes"), ("LogSeverityScreen", "info")] {
        options.push((name.to_owned(), value.to_owned()));
    }
    // The start blocks in real time, and the proxy has to go on meanwhile.
    tokio::task::spawn_blocking(move || {
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Daemon::start_in(&folder, &options, &[("KUBECONFIG", &kubeconfig.display().to_string())])
    })
    .await?
}

/// Starts the daemon and an agent per syncer, and waits until all are in sync.
async fn start_all(folder: &TempDir, kubeconfig: PathBuf) -> anyhow::Result<(Daemon, Agents)> {
    let daemon = start_daemon(folder, kubeconfig, &[]).await?;
    let agents = Agents::start(daemon.sync)?;
    agents.until_in_sync().await?;
    Ok((daemon, agents))
}

/// Starts an API server with every CRD and a population. `None`: kube-apiserver is left out, the test returns.
async fn populated(group: CrdGroup, size: Size) -> anyhow::Result<Option<ApiServer>> {
    let Some(server) = ApiServer::start().await else { return Ok(None) };
    server.install_crds(group).await?;
    population::fill(&server, group, size).await?;
    Ok(Some(server))
}

/// Gives the daemon's user our ClusterRole.
async fn allow(server: &ApiServer) -> anyhow::Result<()> {
    role::grant(&server.rest(), USER, &role::rules()?).await
}

/// Waits for another process, up to [`PATIENCE`].
async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> anyhow::Result<T> {
    wait::eventually(what, PATIENCE, look).await
}

/// Waits until the daemon has logged all these words in one line, and returns the line with its quotes unescaped.
async fn logged(daemon: &Daemon, words: &[&str]) -> anyhow::Result<String> {
    let line = async || {
        let log = daemon.log().replace(r#"\""#, r#"""#);
        log.lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
    };
    eventually(&format!("the log says {words:?}"), line).await.with_context(|| daemon.log())
}

/// A text of a JSON value.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
