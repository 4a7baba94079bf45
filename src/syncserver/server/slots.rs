//! Slots for handshakes: their number is bounded, and silent connections give way to others.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::super::calls::Order;
use super::super::client::places::sleep_or_never;
use super::super::client::record::Client;

/// A connection in its handshake whose peer has been silent for this long may be closed to make room for another one.
/// Handshakes take milliseconds, and honest clients of an overloaded server are not silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time for a connection that was asked to make room to do so, or to receive something, before another one is asked as
/// well: its task has only to be woken for that. Without it, all silent connections would have to go for the sake of
/// one.
const ANSWER: Duration = Duration::from_millis(10);

/// The slots of a server.
pub(crate) struct Slots {
    most: usize,
    free: Arc<Semaphore>,
    /// Connections in their handshake, by the time when they were accepted or last asked to make room.
    handshakes: VecDeque<(Instant, Weak<Client>)>,
    /// When a connection was last asked to make room, unless a slot has become free since.
    asked_at: Option<Instant>,
}

impl Slots {
    /// This number of slots, at least one.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { most, free: Arc::new(Semaphore::new(most)), handshakes: VecDeque::new(), asked_at: None }
    }

    /// Takes a slot. Waits for a connection to leave its handshake; when that takes too long, asks the oldest one to,
    /// and then the next one.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(crate) async fn take(&mut self) -> OwnedSemaphorePermit {
        loop {
            let acquire = self.free.clone().acquire_owned();
            let evict_at = if self.free.available_permits() > 0 { None } else { self.evict_at() };
            tokio::select! {
                biased;
                slot = acquire => {
                    self.asked_at = None;
                    return slot.expect("the semaphore is never closed");
                }
                () = sleep_or_never(evict_at) => self.ask_oldest(Instant::now()),
            }
        }
    }

    /// A connection has got a slot.
    pub(crate) fn given_to(&mut self, client: &Arc<Client>) {
        // Finished handshakes are forgotten when they come to the front, or else here.
        if self.handshakes.len() > 2 * self.most {
            self.handshakes.retain(|(_, client)| in_handshake(client).is_some());
        }
        self.handshakes.push_back((client.accepted_at, Arc::downgrade(client)));
    }

    /// When the next connection is to be asked to make room.
    fn evict_at(&mut self) -> Option<Instant> {
        let answer_until = self.asked_at.map(|at| at + ANSWER);
        self.oldest().map(|since| (since + PATIENCE).max(answer_until.unwrap_or(since)))
    }

    /// When the oldest handshake was accepted or last asked to make room.
    fn oldest(&mut self) -> Option<Instant> {
        while let Some((since, client)) = self.handshakes.front() {
            if in_handshake(client).is_some() {
                return Some(*since);
            }
            self.handshakes.pop_front();
        }
        None
    }

    /// Asks the oldest connection to make room for others. It may go on if its peer has sent something since it was
    /// last asked.
    fn ask_oldest(&mut self, now: Instant) {
        if let Some((_, weak)) = self.handshakes.pop_front()
            && let Some(client) = in_handshake(&weak)
        {
            client.calls().order(Order::Evict);
            self.asked_at = Some(now);
            self.handshakes.push_back((now, weak));
        }
    }
}

/// The client, unless its handshake is over or it has gone.
fn in_handshake(client: &Weak<Client>) -> Option<Arc<Client>> {
    client.upgrade().filter(|client| client.is_in_handshake())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt;

    use super::super::tracker::Tracker;
    use super::*;
    use crate::outlet::status::ClientState;

    fn accept(tracker: &Tracker, id: u64) -> Arc<Client> {
        tracker.add(id, SocketAddr::from(([10, 0, 0, 1], 1)), None, Instant::now())
    }

    fn is_asked_to_go(client: &Client) -> bool {
        let order = client.calls().poll_order(&mut Context::from_waker(Waker::noop()));
        order == Poll::Ready(Order::Evict)
    }

    #[tokio::test(start_paused = true)]
    async fn an_established_client_is_never_asked_and_an_asked_one_goes_to_the_end_of_the_queue() {
        let (tracker, mut slots) = (Tracker::default(), Slots::new(3));
        let mut held = Vec::new();
        let mut clients = Vec::new();
        for id in 1..=3 {
            held.push(slots.take().now_or_never().expect("a slot is free"));
            clients.push(accept(&tracker, id));
            slots.given_to(&clients[clients.len() - 1]);
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        clients[0].set_state(ClientState::Snapshot);
        // It still has its slot: its task has not yet given it back.
        let asked = |clients: &[Arc<Client>]| clients.iter().map(|client| is_asked_to_go(client)).collect::<Vec<_>>();
        assert!(tokio::time::timeout(Duration::from_millis(1960), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, false, false]);
        assert!(tokio::time::timeout(Duration::from_millis(25), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, true, false]);
        // Its peer has sent something: it is spared. The third one is next.
        assert!(clients[1].calls().withdraw_eviction());
        assert!(tokio::time::timeout(Duration::from_millis(25), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, false, true]);
        assert!(tokio::time::timeout(PATIENCE, slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, true, true], "silent again");
        held.pop();
        assert!(slots.take().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_client_has_to_go_for_one_slot_however_many_are_silent() {
        let (tracker, mut slots) = (Tracker::default(), Slots::new(3));
        let mut held = Vec::new();
        let clients: Vec<Arc<Client>> = (1..=3).map(|id| accept(&tracker, id)).collect();
        for client in &clients {
            held.push(slots.take().now_or_never().expect("a slot is free"));
            slots.given_to(client);
        }
        let asked = || clients.iter().filter(|client| is_asked_to_go(client)).count();
        let timed_out = async |slots: &mut Slots, time| tokio::time::timeout(time, slots.take()).await.is_err();
        assert!(timed_out(&mut slots, PATIENCE + ANSWER / 2).await);
        assert_eq!(asked(), 1, "its task has not come to it yet");
        assert!(timed_out(&mut slots, ANSWER).await);
        assert_eq!(asked(), 2, "it does not go");
        held.pop();
        let _slot = slots.take().now_or_never().expect("the returned slot is free");
        assert!(slots.take().now_or_never().is_none());
        assert_eq!(asked(), 3, "one more is wanted, and the one before has gone");
    }

    #[tokio::test(start_paused = true)]
    async fn established_clients_are_forgotten_even_behind_one_in_handshake() {
        let (tracker, mut slots) = (Tracker::default(), Slots::new(4));
        let silent = accept(&tracker, 1);
        slots.given_to(&silent);
        for id in 2..1000 {
            let client = accept(&tracker, id);
            slots.given_to(&client);
            client.set_state(ClientState::Following);
            assert!(slots.handshakes.len() <= 2 * slots.most + 1, "{}", slots.handshakes.len());
        }
        assert_eq!(slots.oldest(), Some(silent.accepted_at));
        drop(silent);
        tracker.remove(1);
        assert_eq!(slots.oldest(), None);
        assert!(slots.handshakes.is_empty());
    }
}
