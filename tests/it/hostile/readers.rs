//! Readers that remember their content and how often they were cut.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::bail;
use bulrush::model::{Key, SyncStatus};
use bulrush::syncclient::connector::{Connector, TcpConnector};
use bulrush::syncclient::{Client, Protocol, SyncEvent};
use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::PATIENCE;

/// A reader's values, by key.
pub(super) type Values = BTreeMap<Key, Bytes>;

/// State of a reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) values: Values,
    pub(super) in_sync: bool,
    /// The reasons for its lost connections.
    pub(super) lost: Vec<String>,
}

/// A client of the felix syncer in a task of its own, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Reader {
    name: String,
    held: watch::Receiver<Held>,
    _task: AbortOnDropHandle<()>,
}

impl Reader {
    /// A reader that reads at once. Even numbers speak Calico's protocol, odd ones ours.
    pub(super) fn start(server: SocketAddr, name: &str, number: usize) -> anyhow::Result<Self> {
        Self::start_with(server, name, number, TcpConnector::default())
    }

    /// The same over this connector's connections.
    pub(super) fn start_with(
        server: SocketAddr,
        name: &str,
        number: usize,
        connector: impl Connector,
    ) -> anyhow::Result<Self> {
        let name = format!("{name}-{number}");
        let protocol = if number.is_multiple_of(2) {
            Protocol::Calico { compression: true }
        } else {
            Protocol::Native { compressions: Vec::new() }
        };
        let builder = Client::builder([server.to_string()]).agent(name.as_str()).protocol(protocol);
        let (sender, held) = watch::channel(Held::default());
        let task = tokio::spawn(follow(builder.start_with(connector)?, sender));
        Ok(Self { name, held, _task: AbortOnDropHandle::new(task) })
    }

    /// Waits until its state is as wanted, and returns its values; `what` names the state in a failure.
    pub(super) async fn until(&self, what: &str, mut is: impl FnMut(&Held) -> bool) -> anyhow::Result<Values> {
        let mut held = self.held.clone();
        let waited = tokio::time::timeout(PATIENCE, held.wait_for(|held| is(held))).await;
        if let Ok(Ok(held)) = waited {
            return Ok(held.values.clone());
        }
        let now = self.held.borrow();
        bail!(
            "{} does not hold {what} after {PATIENCE:?}: {} values, in sync: {}, lost: {:?}",
            self.name,
            now.values.len(),
            now.in_sync,
            now.lost
        );
    }

    /// The reasons for its lost connections, with its name. `None`: it lost none.
    pub(super) fn lost(&self) -> Option<String> {
        let lost = &self.held.borrow().lost;
        (!lost.is_empty()).then(|| format!("{}: {lost:?}", self.name))
    }
}

async fn follow(mut client: Client, sender: watch::Sender<Held>) {
    while let Some(event) = client.next().await {
        sender.send_modify(|held| match event {
            SyncEvent::Connected { .. } | SyncEvent::Progress(_) => {}
            SyncEvent::Status(status) => held.in_sync = status == SyncStatus::InSync,
            SyncEvent::Updates(updates) => {
                for update in updates {
                    match update.value {
                        Some(value) => held.values.insert(update.key, value.bytes),
                        None => held.values.remove(&update.key),
                    };
                }
            }
            SyncEvent::Disconnected { reason, .. } => held.lost.push(reason.to_string()),
        });
    }
}
