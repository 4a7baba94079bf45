//! All connections of a server: what is known of each, and how to end one.
//!
//! A connection's task writes what others may want to know into its [`Client`]; status, governor and drain read it. Nobody
//! but the task touches the socket: ending a connection means leaving a reason and waking the task.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use tokio::time::Instant;

use super::calls::{Calls, Order};
use super::feed::Feed;
use super::handshake::Agent;
use super::made::Awaits;
use super::pump::Passenger;
use super::reason::CloseReason;
use super::status::{ClientState, ClientStatus};

impl From<Order> for CloseReason {
    fn from(order: Order) -> Self {
        match order {
            Order::Evict => Self::HandshakeEvicted,
            Order::Rebalance => Self::Rebalanced,
            Order::Drain => Self::Draining,
            Order::Stop => Self::Stopped,
            Order::Unfinished => Self::UnfinishedMessage,
            Order::OldestVersion => Self::OldestVersion,
        }
    }
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    /// Our end of the connection, where it is known.
    pub(super) near: Option<SocketAddr>,
    pub(super) accepted_at: Instant,
    /// Bytes that came during the handshake.
    heard: AtomicU64,
    pub(super) agent: OnceLock<Agent>,
    pub(super) feed: OnceLock<Arc<Feed>>,
    state: AtomicU8,
    /// Who knows where the client stands, once it streams.
    line: OnceLock<Weak<dyn Passenger>>,
    applied: AtomicU64,
    failed_keys: AtomicU64,
    calls: Calls,
}

impl Client {
    fn new(id: u64, peer: SocketAddr, near: Option<SocketAddr>, now: Instant) -> Self {
        Self {
            id,
            peer,
            near,
            accepted_at: now,
            heard: AtomicU64::new(0),
            agent: OnceLock::new(),
            feed: OnceLock::new(),
            state: AtomicU8::new(ClientState::Handshake as u8),
            line: OnceLock::new(),
            applied: AtomicU64::new(0),
            failed_keys: AtomicU64::new(0),
            calls: Calls::new(),
        }
    }

    pub(super) fn set_state(&self, state: ClientState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Whether its hello has not come yet.
    pub(super) fn is_in_handshake(&self) -> bool {
        self.state() == ClientState::Handshake
    }

    fn state(&self) -> ClientState {
        ClientState::from_number(self.state.load(Ordering::Relaxed))
    }

    /// From now on, this knows where the client stands.
    pub(super) fn set_line(&self, line: Weak<dyn Passenger>) {
        let _only_once = self.line.set(line);
    }

    /// Notes what the client says it has applied, and how many keys it could not apply.
    pub(super) fn set_applied(&self, sequence: u64, failed_keys: usize) {
        self.applied.store(sequence, Ordering::Relaxed);
        self.failed_keys.fetch_add(failed_keys as u64, Ordering::Relaxed);
    }

    /// The calls to its task.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Its hello has come and been answered: it need make no room for others any more.
    pub(super) fn through_handshake(&self) {
        self.calls.through();
        self.set_state(ClientState::AwaitingAck);
    }

    /// So many bytes have come during the handshake, TLS's own included.
    pub(super) fn heard(&self, bytes: u64) {
        self.heard.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that came during the handshake.
    pub(super) fn bytes_heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    fn status(&self, now: Instant) -> ClientStatus {
        let position = self.line.get().and_then(Weak::upgrade).and_then(|line| line.position());
        let mark = position.as_ref().map(|position| &position.mark);
        let feed = self.feed.get();
        let head = feed.map(|feed| feed.head());
        let lag = mark.zip(head.as_ref());
        ClientStatus {
            id: self.id,
            peer: self.peer,
            agent: self.agent.get().cloned().unwrap_or_default(),
            syncer: feed.map(|feed| feed.key().syncer),
            wire: feed.map(|feed| feed.key().wire),
            dialect: feed.map(|feed| feed.key().line),
            state: self.state(),
            sequence: mark.map_or(0, |mark| mark.sequence),
            lag: mark.map_or_else(Default::default, |mark| mark.age(now)),
            lag_updates: lag.map_or(0, |(mark, head)| mark.updates_until(head)),
            bytes_sent: position.as_ref().map_or(0, |position| position.bytes_sent),
            connected_for: now.saturating_duration_since(self.accepted_at),
            applied: match self.applied.load(Ordering::Relaxed) {
                0 => None,
                sequence => Some(sequence),
            },
            failed_keys: self.failed_keys.load(Ordering::Relaxed),
        }
    }
}

impl Awaits for Client {
    fn id(&self) -> u64 {
        self.id
    }

    fn nudge(&self) {
        self.calls.nudge();
    }
}

/// The connections that count: accepted, and neither ended nor ordered to end.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
}

impl Tracker {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        // One client is put in or taken out under this lock, so a panic cannot leave half of anything.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: u64, peer: SocketAddr, near: Option<SocketAddr>, now: Instant) -> Arc<Client> {
        let client = Arc::new(Client::new(id, peer, near, now));
        self.lock().insert(id, client.clone());
        client
    }

    pub(super) fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// What is known of every connection, oldest first.
    pub(super) fn status(&self, now: Instant) -> Vec<ClientStatus> {
        // Cloned out: making a status looks into feeds, and nobody should wait for that.
        let clients: Vec<Arc<Client>> = self.lock().values().cloned().collect();
        clients.iter().map(|client| client.status(now)).collect()
    }

    /// Connections whose hello has come: strangers that say nothing must not have agents dropped.
    pub(super) fn established(&self) -> usize {
        self.lock().values().filter(|client| !client.is_in_handshake()).count()
    }

    /// Orders the newest connection whose hello has come to end. It no longer counts from now on.
    pub(super) fn end_newest(&self, order: Order) -> Option<Arc<Client>> {
        let mut clients = self.lock();
        let newest = clients.iter().rev().find(|(_, client)| !client.is_in_handshake()).map(|(id, _)| *id);
        let client = clients.remove(&newest?)?;
        drop(clients);
        client.calls.order(order);
        Some(client)
    }

    /// Orders the connection at a position (in order of age) to end. It no longer counts from now on.
    pub(super) fn end_nth(&self, position: usize, order: Order) -> Option<Arc<Client>> {
        let mut clients = self.lock();
        let id = *clients.keys().nth(position)?;
        let client = clients.remove(&id)?;
        drop(clients);
        client.calls.order(order);
        Some(client)
    }

    /// Orders all connections to end.
    pub(super) fn end_all(&self, order: Order) {
        let clients = std::mem::take(&mut *self.lock());
        for client in clients.into_values() {
            client.calls.order(order);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;

    use super::super::calls::Call;
    use super::super::governor::Governor;
    use super::*;

    /// What may happen to a server's connections.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Accept,
        /// Somebody connects and says nothing.
        Stranger,
        /// One of them ends by itself.
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

    #[test]
    fn an_eviction_may_be_withdrawn_and_nothing_else_and_means_nothing_once_the_handshake_is_over() {
        let client = Client::new(1, SocketAddr::from(([10, 0, 0, 1], 1)), None, Instant::now());
        let (calls, cx) = (client.calls(), &mut Context::from_waker(Waker::noop()));
        calls.order(Order::Evict);
        assert_eq!(calls.poll_order(cx), Poll::Ready(Order::Evict));
        assert!(calls.withdraw_eviction() && !calls.withdraw_eviction());
        assert_eq!(calls.poll_order(cx), Poll::Pending);
        calls.order(Order::Evict);
        client.through_handshake();
        assert_eq!(calls.poll_call(cx), Poll::Pending, "it streams");
        calls.order(Order::Evict);
        assert_eq!(calls.poll_call(cx), Poll::Pending, "and is asked too late");
        calls.order(Order::Drain);
        calls.order(Order::Stop);
        calls.order(Order::Evict);
        assert!(!calls.withdraw_eviction());
        client.through_handshake();
        assert_eq!(calls.poll_call(cx), Poll::Ready(Call::End(Order::Drain)), "the first of the others");
    }

    proptest! {
        /// Whatever the limit does meanwhile: each look ends at most one connection, only above the limit, and the newest of
        /// those that are through their handshake.
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
