//! The content that another server tells an agent, kept up to date.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::Against;
use crate::model::SyncerType;
use crate::model::release::Release;
use crate::model::{Key, SyncStatus, Update};
use crate::syncclient::{self, Client, Protocol, SyncEvent};

/// One syncer of a server. The connection ends when this is dropped.
pub(super) struct Theirs {
    pub(super) syncer: SyncerType,
    content: Arc<Mutex<BTreeMap<Key, Update>>>,
    state: watch::Receiver<State>,
    task: AbortHandle,
}

#[derive(Clone, Debug)]
struct State {
    status: SyncStatus,
    /// How far it came, for people.
    progress: String,
}

impl Theirs {
    /// Connects as an agent of a release, and follows.
    pub(super) fn follow(against: &Against, syncer: SyncerType, line: Release) -> anyhow::Result<Self> {
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
            // The client has ended; the deadline tells, with how far it came.
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
