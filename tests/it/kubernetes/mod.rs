//! The Kubernetes datastore against a real API server: the real daemon as a child process, with no more than our ClusterRole,
//! and an agent per syncer that remembers everything it was told.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::apiserver::ApiServer;
use crate::daemon::Daemon;

mod agents;
mod balance;
mod expected;
mod harness;
mod large;
mod population;
mod proxy;
mod role;

/// The user that the daemon is.
const USER: &str = "bulrush";

/// Starts the daemon with a kubeconfig and further variables.
async fn start_daemon(folder: &TempDir, kubeconfig: PathBuf, variables: &[(&str, &str)]) -> anyhow::Result<Daemon> {
    let folder = folder.path().to_owned();
    let mut environment = vec![("KUBECONFIG".to_owned(), kubeconfig.display().to_string())];
    environment.extend(variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    // It waits in real time, and the proxy has to go on meanwhile.
    tokio::task::spawn_blocking(move || {
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Daemon::start_in(&folder, &[("DatastoreType", "kubernetes"), ("LogSeverityScreen", "info")], &environment)
    })
    .await?
}

/// Allows the daemon's user what our ClusterRole says.
async fn allow(server: &ApiServer) -> anyhow::Result<()> {
    role::grant(&server.rest(), USER, &role::rules()).await
}

/// A text of a JSON value.
fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
