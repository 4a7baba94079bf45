//! The record of one connection: written by its task, read by status, governor and drain.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::time::Instant;

use super::super::calls::{Calls, Order};
use super::super::feed::made::Awaits;
use super::super::feed::pump::PumpClient;
use super::super::feed::shared::Feed;
use super::super::reason::CloseReason;
use crate::calico::syncers::is_calicos;
use crate::outlet::status::{Agent, ClientState, ClientStatus};

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

/// The record of one connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    /// Our end of the connection, where the transport has such a thing.
    pub(crate) near: Option<SocketAddr>,
    pub(crate) accepted_at: Instant,
    /// Bytes that came during the handshake.
    heard: AtomicU64,
    pub(crate) agent: OnceLock<Agent>,
    pub(crate) feed: OnceLock<Arc<Feed>>,
    state: AtomicU8,
    /// The client's line, once it streams: knows its position.
    line: OnceLock<Weak<dyn PumpClient>>,
    applied: AtomicU64,
    failed_keys: AtomicU64,
    calls: Calls,
}

impl Client {
    pub(crate) fn new(id: u64, peer: SocketAddr, near: Option<SocketAddr>, now: Instant) -> Self {
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

    pub(crate) fn set_state(&self, state: ClientState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Whether its hello has not come yet.
    pub(crate) fn is_in_handshake(&self) -> bool {
        self.state() == ClientState::Handshake
    }

    fn state(&self) -> ClientState {
        ClientState::from_number(self.state.load(Ordering::Relaxed))
    }

    /// From now on, this line knows the client's position.
    pub(crate) fn set_line(&self, line: Weak<dyn PumpClient>) {
        let _already_set = self.line.set(line);
    }

    /// Notes the sequence number that the client says it has applied, and the number of keys that it could not apply.
    pub(crate) fn set_applied(&self, sequence: u64, failed_keys: usize) {
        self.applied.store(sequence, Ordering::Relaxed);
        self.failed_keys.fetch_add(failed_keys as u64, Ordering::Relaxed);
    }

    /// The calls to the connection's task.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// This number of bytes has come during the handshake, TLS's own included.
    pub(crate) fn heard(&self, bytes: u64) {
        self.heard.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that came during the handshake.
    pub(crate) fn bytes_heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self, now: Instant) -> ClientStatus {
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
            wire: feed.map(|feed| feed.key().wire.name()),
            dialect: feed.filter(|feed| is_calicos(feed.key().syncer)).map(|feed| feed.key().dialect.as_str()),
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::syncserver::calls::Call;

    #[test]
    fn an_eviction_may_be_withdrawn_and_nothing_else_and_means_nothing_once_the_handshake_is_over() {
        let client = Client::new(1, SocketAddr::from(([10, 0, 0, 1], 1)), None, Instant::now());
        let (calls, cx) = (client.calls(), &mut Context::from_waker(Waker::noop()));
        calls.order(Order::Evict);
        assert_eq!(calls.poll_order(cx), Poll::Ready(Order::Evict));
        assert!(calls.withdraw_eviction() && !calls.withdraw_eviction());
        assert_eq!(calls.poll_order(cx), Poll::Pending);
        calls.order(Order::Evict);
        calls.establish();
        assert_eq!(calls.poll_call(cx), Poll::Pending, "it streams");
        calls.order(Order::Evict);
        assert_eq!(calls.poll_call(cx), Poll::Pending, "and is asked too late");
        calls.order(Order::Drain);
        calls.order(Order::Stop);
        calls.order(Order::Evict);
        assert!(!calls.withdraw_eviction());
        calls.establish();
        assert_eq!(calls.poll_call(cx), Poll::Ready(Call::End(Order::Drain)), "the first of the others");
    }
}
