//! The Kubernetes datastore against a real API server: the real daemon as a child process, with no more than our ClusterRole,
//! and an agent per syncer that remembers everything it was told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;

use self::agents::PATIENCE;
use crate::apiserver::ApiServer;
use crate::daemon::Daemon;

mod agents;
mod balance;
mod expected;
mod population;
mod proxy;
mod role;

mod definitions;
mod harness;
mod large;
mod overload;
mod permissions;
mod restart;
mod tokens;

/// The user that the daemon is.
const USER: &str = "bulrush";

/// Pause between two looks at another process.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the daemon with a kubeconfig and further options.
async fn start_daemon(folder: &TempDir, kubeconfig: PathBuf, options: &[(&str, &str)]) -> anyhow::Result<Daemon> {
    let folder = folder.path().to_owned();
    let mut options: Vec<(String, String)> =
        options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    for (name, value) in [("DatastoreType", "kubernetes"), ("LogSeverityScreen", "info")] {
        options.push((name.to_owned(), value.to_owned()));
    }
    // It waits in real time, and the proxy has to go on meanwhile.
    tokio::task::spawn_blocking(move || {
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Daemon::start_in(&folder, &options, &[("KUBECONFIG", &kubeconfig.display().to_string())])
    })
    .await?
}

/// Allows the daemon's user what our ClusterRole says.
async fn allow(server: &ApiServer) -> anyhow::Result<()> {
    role::grant(&server.rest(), USER, &role::rules()?).await
}

/// Waits for something that another process does.
async fn eventually<T>(what: &str, mut done: impl AsyncFnMut() -> Option<T>) -> anyhow::Result<T> {
    let look = async {
        loop {
            if let Some(value) = done().await {
                return value;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.with_context(|| format!("{what}: not within {PATIENCE:?}"))
}

/// Waits until the daemon has logged all these words in one line, and returns it with its quotes as they were.
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
