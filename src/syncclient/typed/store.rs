//! The objects of a syncer, kept up to date by a task of their own.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Decode, DecodeError};
use crate::model::{Key, ResourceKey, SyncStatus, Update};
use crate::syncclient::{Client, SyncEvent, apply};

/// The client gave up, so the objects change no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has ended: the objects change no more")]
pub struct Ended;

type Content = BTreeMap<Key, Update>;

/// The objects that a client has. Clones share them; the connection is closed when the last one is dropped.
///
/// Values are read as types when they are asked for. While a server is away, the objects of before stay.
#[derive(Clone, Debug)]
pub struct Store {
    content: Arc<RwLock<Content>>,
    progress: watch::Receiver<Progress>,
    _open: Arc<Open>,
}

/// The events that have come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Counts events with changes.
    changes: u64,
    status: SyncStatus,
}

/// Closes the connection when the last store is gone.
#[derive(Debug)]
struct Open(CancellationToken);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Store {
    /// Follows a client, on the current tokio runtime. Values that no type will ask for are kept as well: choose them with
    /// [`ClientBuilder::prefixes`](crate::syncclient::ClientBuilder::prefixes) and [`ResourceKey::prefix_of_kind`].
    #[must_use]
    pub fn follow(client: Client) -> Self {
        let content: Arc<RwLock<Content>> = Arc::default();
        let (told, progress) = watch::channel(Progress::default());
        let cancel = CancellationToken::new();
        tokio::spawn(keep(client, content.clone(), told, cancel.clone()));
        Self { content, progress, _open: Arc::new(Open(cancel)) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Content> {
        // A panic can come only out of the allocator: between two updates.
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with this kind, namespace and name. `kind` is `GROUP/KIND`, or the kind alone for the core group; the namespace of an
    /// object that belongs to none is empty. `None`: there is none.
    ///
    /// # Errors
    /// The object does not have the form of the type.
    pub fn get<T: DeserializeOwned>(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<T>, DecodeError> {
        let (group, kind) = parts_of(kind);
        let key = ResourceKey { group, kind, namespace, name }.to_key();
        // Read without the lock: a large object takes a while.
        let update = self.read().get(&key).cloned();
        update.map_or(Ok(None), |update| update.decode())
    }

    /// All objects of a kind, by namespace and name. Each may fail for itself.
    #[must_use]
    pub fn list<T: DeserializeOwned>(&self, kind: &str) -> Vec<Result<T, DecodeError>> {
        let (group, kind) = parts_of(kind);
        let prefix = ResourceKey::prefix_of_kind(group, kind);
        let from = Bound::Included(Key::from(prefix.clone()));
        let updates: Vec<Update> = self
            .read()
            .range((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&prefix))
            .map(|(_, update)| update.clone())
            .collect();
        updates.iter().filter_map(|update| update.decode().transpose()).collect()
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// The last status that was reported.
    #[must_use]
    pub fn status(&self) -> SyncStatus {
        self.progress.borrow().status
    }

    /// Waits until the objects are all that the server has.
    ///
    /// # Errors
    /// The client gave up before.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn in_sync(&mut self) -> Result<(), Ended> {
        let in_sync = self.progress.wait_for(|progress| progress.status == SyncStatus::InSync).await;
        in_sync.map(|_| ()).map_err(|_| Ended)
    }

    /// Waits for the next change of an object or of the status since the last call of this or [`Self::in_sync`]. A publication of many
    /// objects is several changes.
    ///
    /// # Errors
    /// The client gave up.
    ///
    /// # Cancel safety
    /// Cancel safe: no change is lost.
    pub async fn changed(&mut self) -> Result<(), Ended> {
        self.progress.changed().await.map_err(|_| Ended)
    }
}

/// Group and kind of `GROUP/KIND`.
fn parts_of(kind: &str) -> (&str, &str) {
    match kind.split_once('/') {
        Some(("core", kind)) => ("", kind),
        Some(parts) => parts,
        None => ("", kind),
    }
}

/// Applies all events until the client ends or nobody is interested.
async fn keep(
    mut client: Client,
    content: Arc<RwLock<Content>>,
    told: watch::Sender<Progress>,
    cancel: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => break,
            event = client.next() => event,
        };
        match event {
            None => return,
            Some(SyncEvent::Updates(updates)) => {
                apply(&mut content.write().unwrap_or_else(PoisonError::into_inner), updates);
                told.send_modify(|progress| progress.changes += 1);
            }
            Some(SyncEvent::Status(status)) => told.send_modify(|progress| progress.status = status),
            Some(SyncEvent::Progress(_) | SyncEvent::Connected { .. } | SyncEvent::Disconnected { .. }) => {}
        }
    }
    client.close().await;
}
