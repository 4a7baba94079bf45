//! All connections of a server, and how to end one.
//!
//! Only a connection's own task touches its socket: ending a connection means leaving an order and waking the task.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::super::calls::Order;
use super::super::client::record::Client;
use crate::outlet::status::ClientStatus;

/// The connections that count: accepted, and neither ended nor ordered to end.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Tracker {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        // One client is added or removed under this lock, so a panic cannot leave half a change.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: u64, peer: SocketAddr, near: Option<SocketAddr>, now: Instant) -> Arc<Client> {
        let client = Arc::new(Client::new(id, peer, near, now));
        self.lock().insert(id, client.clone());
        client
    }

    pub(crate) fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The status of every connection, oldest first.
    pub(crate) fn status(&self, now: Instant) -> Vec<ClientStatus> {
        // Cloned: making a status looks into feeds, and the lock should be free meanwhile.
        let clients: Vec<Arc<Client>> = self.lock().values().cloned().collect();
        clients.iter().map(|client| client.status(now)).collect()
    }

    /// Connections whose hello has come: silent strangers must not cause agents to be dropped.
    pub(crate) fn established(&self) -> usize {
        self.lock().values().filter(|client| !client.is_in_handshake()).count()
    }

    /// Orders the newest connection whose hello has come to end. It no longer counts from now on.
    pub(crate) fn end_newest(&self, order: Order) -> Option<Arc<Client>> {
        let mut clients = self.lock();
        let newest = clients.iter().rev().find(|(_, client)| !client.is_in_handshake()).map(|(id, _)| *id);
        let client = clients.remove(&newest?)?;
        drop(clients);
        client.calls().order(order);
        Some(client)
    }

    /// Orders the connection at a position (in order of age) to end. It no longer counts from now on.
    pub(crate) fn end_nth(&self, position: usize, order: Order) -> Option<Arc<Client>> {
        let mut clients = self.lock();
        let id = *clients.keys().nth(position)?;
        let client = clients.remove(&id)?;
        drop(clients);
        client.calls().order(order);
        Some(client)
    }

    /// Orders all connections to end.
    pub(crate) fn end_all(&self, order: Order) {
        let clients = std::mem::take(&mut *self.lock());
        for client in clients.into_values() {
            client.calls().order(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::governor::Governor;
    use super::*;
    use crate::outlet::status::ClientState;

    /// An event that concerns a server's connections.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Accept,
        /// A client connects and is silent.
        Stranger,
        /// A connection ends by itself.
        Leave(usize),
        Limit(usize),
        /// The governor looks.
        Look,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Accept),
            1 => Just(Step::Stranger),
            1 => (0_usize..40).prop_map(Step::Leave),
            1 => (0_usize..20).prop_map(Step::Limit),
            4 => Just(Step::Look),
        ]
    }

    proptest! {
        /// Each look ends at most one connection, only above the limit, and the newest of those whose handshake is over. The
        /// limit changes between looks.
        #[test]
        fn the_newest_go_and_never_more_than_the_excess(steps in proptest::collection::vec(step(), 0..200)) {
            let tracker = Tracker::default();
            let peer = SocketAddr::from(([10, 0, 0, 1], 1));
            let (mut next_id, mut limit, mut model) = (1, 10, Vec::new());
            for step in steps {
                match step {
                    Step::Accept => {
                        tracker.add(next_id, peer, None, Instant::now()).set_state(ClientState::Following);
                        model.push(next_id);
                        next_id += 1;
                    }
                    Step::Stranger => {
                        tracker.add(next_id, peer, None, Instant::now());
                        next_id += 1;
                    }
                    Step::Leave(which) if !model.is_empty() => {
                        tracker.remove(model.remove(which % model.len()));
                    }
                    Step::Leave(_) => {}
                    Step::Limit(new) => limit = new,
                    Step::Look => {
                        let ended = Governor::must_drop(tracker.established(), limit).then(|| tracker.end_newest(Order::Rebalance));
                        let ended = ended.flatten().map(|client| client.id);
                        let expected = if model.len() > limit { model.pop() } else { None };
                        prop_assert_eq!(ended, expected);
                    }
                }
                prop_assert_eq!(tracker.established(), model.len());
            }
        }
    }
}
