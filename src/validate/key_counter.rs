//! Counts the keys below a prefix as they pass: of Calico's nodes, by whose number agents are shared out among replicas.
//!
//! Fed by a syncer's validation stage; read through a watch channel. A key counts even if its value is invalid: the agent on such
//! a node connects all the same.
//!
//! Invariant: the count is unknown until the syncer is in sync for the first time.

use std::collections::HashSet;

use tokio::sync::watch;

use crate::model::{Key, SyncStatus, SyncerEvent, UpdateType};

/// The keys seen so far.
#[derive(Debug)]
pub struct KeyCounter {
    prefix: &'static str,
    keys: HashSet<Key>,
    count: watch::Sender<Option<usize>>,
}

impl KeyCounter {
    /// A counter of the keys that begin with `prefix`, and where to read its count; `None` until the first in-sync.
    #[must_use]
    pub fn new(prefix: &'static str) -> (Self, watch::Receiver<Option<usize>>) {
        let (count, reader) = watch::channel(None);
        (Self { prefix, keys: HashSet::new(), count }, reader)
    }

    /// Updates the count by an event.
    pub fn see(&mut self, event: &SyncerEvent) {
        match event {
            SyncerEvent::Updates(updates) => {
                for update in updates.iter().filter(|update| update.key.starts_with(self.prefix)) {
                    match update.update_type {
                        UpdateType::Deleted => self.keys.remove(&update.key),
                        UpdateType::New | UpdateType::Updated | UpdateType::Unknown => {
                            self.keys.insert(update.key.clone())
                        }
                    };
                }
                if self.count.borrow().is_some() {
                    self.publish();
                }
            }
            SyncerEvent::Status(SyncStatus::InSync) => self.publish(),
            SyncerEvent::Status(_) | SyncerEvent::Progress(_) => {}
        }
    }

    fn publish(&self) {
        let count = Some(self.keys.len());
        self.count.send_if_modified(|known| std::mem::replace(known, count) != count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Update, Value, no_revision};

    const NODES: &str = "/nodes/";

    fn node(name: &str, valid: bool, update_type: UpdateType) -> SyncerEvent {
        SyncerEvent::Updates(vec![Update {
            key: format!("{NODES}{name}").into(),
            value: valid.then(|| Value::raw("{}")),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type,
            origin: None,
        }])
    }

    #[test]
    fn counts_from_the_first_in_sync_on_whatever_the_values_are() {
        let (mut counter, count) = KeyCounter::new(NODES);
        counter.see(&node("a", true, UpdateType::New));
        counter.see(&node("b", false, UpdateType::New));
        counter.see(&SyncerEvent::Status(SyncStatus::ResyncInProgress));
        assert_eq!(*count.borrow(), None);
        counter.see(&SyncerEvent::Status(SyncStatus::InSync));
        assert_eq!(*count.borrow(), Some(2));
        counter.see(&node("a", true, UpdateType::Updated));
        assert_eq!(*count.borrow(), Some(2));
        counter.see(&node("a", false, UpdateType::Deleted));
        assert_eq!(*count.borrow(), Some(1));
        counter.see(&SyncerEvent::Status(SyncStatus::WaitForDatastore));
        assert_eq!(*count.borrow(), Some(1));
    }

    #[test]
    fn other_keys_do_not_count() {
        let (mut counter, count) = KeyCounter::new(NODES);
        let mut other = node("a", true, UpdateType::New);
        if let SyncerEvent::Updates(updates) = &mut other {
            updates[0].key = "/profiles/a".into();
        }
        counter.see(&other);
        counter.see(&SyncerEvent::Status(SyncStatus::InSync));
        assert_eq!(*count.borrow(), Some(0));
    }
}
