//! The content that another server tells an agent, kept up to date.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::calico::release::Release;
use crate::model::SyncerName;
use crate::model::{Key, SyncStatus, Update};
use crate::syncclient::{self, Client, Protocol, SyncEvent};
use crate::tls::ClientTls;

/// The server to compare with.
#[derive(Clone, Debug)]
pub struct Against {
    /// The address at which it takes agents, `host:port`.
    pub server: String,
    /// The release as whose agent to ask; `None`: that of the cluster's own Calico.
    pub line: Option<Release>,
    /// TLS, if it wants that.
    pub tls: Option<ClientTls>,
    /// The time that all of it may take.
    pub limit: Duration,
}

/// One syncer of a server. The connection ends when this is dropped.
pub(super) struct Theirs {
    pub(super) syncer: SyncerName,
    content: Arc<Mutex<BTreeMap<Key, Update>>>,
    state: watch::Receiver<State>,
    task: AbortHandle,
}

#[derive(Clone, Debug)]
struct State {
    status: SyncStatus,
    /// Its progress, for people.
    progress: String,
}

impl Theirs {
    /// Connects as an agent of a release, and follows.
    pub(super) fn follow(against: &Against, syncer: SyncerName, line: Release) -> anyhow::Result<Self> {
        let builder = Client::builder([against.server.clone()])
            .agent("bulrush-preflight")
            .syncer(syncer)
            .protocol(Protocol::Calico { compression: true })
            .dialect(line);
        let builder = match &against.tls {
            Some(tls) => builder.tls(tls.clone()),
            None => builder,
        };
        let mut client = builder.start().with_context(|| format!("connect to {}", against.server))?;
        let content: Arc<Mutex<BTreeMap<Key, Update>>> = Arc::default();
        let first = State { status: SyncStatus::WaitForDatastore, progress: "no server has answered yet".to_owned() };
        let (told, state) = watch::channel(first);
        let kept = content.clone();
        let following = tokio::spawn(async move {
            while let Some(event) = client.next().await {
                match event {
                    SyncEvent::Updates(updates) => syncclient::apply(&mut lock(&kept), updates),
                    SyncEvent::Status(status) => told.send_modify(|state| {
                        *state = State { status, progress: format!("status is {status}") };
                    }),
                    SyncEvent::Connected { address, .. } => {
                        told.send_modify(|state| state.progress = format!("connected to {address}"));
                    }
                    SyncEvent::Disconnected { address, reason, .. } => {
                        told.send_modify(|state| state.progress = format!("no connection to {address}: {reason}"));
                    }
                    SyncEvent::Progress(_) => {}
                }
            }
        });
        Ok(Self { syncer, content, state, task: following.abort_handle() })
    }

    pub(super) async fn in_sync(&self) {
        let mut state = self.state.clone();
        if state.wait_for(|state| state.status == SyncStatus::InSync).await.is_err() {
            // The client has ended; the deadline is next, and its finding tells the progress.
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn progress(&self) -> String {
        self.state.borrow().progress.clone()
    }

    pub(super) fn content<T>(&self, look: impl FnOnce(&BTreeMap<Key, Update>) -> T) -> T {
        look(&lock(&self.content))
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(content: &Mutex<BTreeMap<Key, Update>>) -> std::sync::MutexGuard<'_, BTreeMap<Key, Update>> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}
