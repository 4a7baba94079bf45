//! The events that a client gives to its consumer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::Error;
use crate::model::{AsOf, Key, SyncStatus, Update};

/// A server as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its name; Calico's protocol has none.
    pub name: String,
    /// Its build version.
    pub version: String,
    /// `native` or `calico`.
    pub protocol: &'static str,
    /// The compression that is in use; `none` if none is.
    pub compression: String,
    /// The server's id of this connection.
    pub conn_id: u64,
    /// Names the life of the server's cache; native only.
    pub epoch: Option<u64>,
}

/// An event for the consumer.
#[derive(Clone, Debug, PartialEq)]
pub enum SyncEvent {
    /// A server was reached and took the client.
    Connected {
        /// The server's address.
        address: String,
        /// The server.
        server: ServerInfo,
    },
    /// The status after everything before it; only when it changes.
    Status(SyncStatus),
    /// Changes, in order, with the types that are right for this consumer. Never empty.
    Updates(Vec<Update>),
    /// All changes up to this moment of the datastore came before; native only.
    Progress(AsOf),
    /// A try to connect failed, or a connection was lost. The consumer's data stay valid, but may be outdated.
    Disconnected {
        /// The server's address.
        address: String,
        /// The reason.
        reason: Error,
        /// The time until the next try. `None`: no more tries; this is the last event.
        retry_in: Option<Duration>,
    },
}

/// Applies updates to a consumer's data.
pub fn apply(content: &mut BTreeMap<Key, Update>, updates: Vec<Update>) {
    for update in updates {
        if update.value.is_some() {
            content.insert(update.key.clone(), update);
        } else {
            content.remove(&update.key);
        }
    }
}
