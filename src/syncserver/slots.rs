//! The right to be in handshake: a bounded number of connections has it, and silent ones give way to others.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::calls::Order;
use super::tracker::Client;

/// A connection in its handshake whose peer has been silent for this long may be closed to make room for another one.
/// Handshakes take milliseconds; when a server is overloaded by honest clients, it is not they who are silent.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long one that was asked to make room has to do so, or to be heard of, before another one is asked as well: its task has
/// only to be woken for that. Without it, everybody who was silent for long enough would have to go for the sake of one.
const ANSWER: Duration = Duration::from_millis(10);

/// The slots of a server.
pub(super) struct Slots {
    most: usize,
    free: Arc<Semaphore>,
    /// Connections in their handshake, those first that were accepted, or asked to make room for others, longest ago.
    handshakes: VecDeque<(Instant, Weak<Client>)>,
    /// When the last of them was asked to make room, unless a slot has come free since.
    asked_at: Option<Instant>,
}

impl Slots {
    /// So many slots, at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { most, free: Arc::new(Semaphore::new(most)), handshakes: VecDeque::new(), asked_at: None }
    }

    /// A slot. Waits for a connection to leave its handshake; when they take too long, the oldest one is asked to, and the next
    /// one if that does not help.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub(super) async fn take(&mut self) -> OwnedSemaphorePermit {
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
    pub(super) fn given_to(&mut self, client: &Arc<Client>) {
        // Those that are through are forgotten when they come to the front, or else here.
        if self.handshakes.len() > 2 * self.most {
            self.handshakes.retain(|(_, client)| in_handshake(client).is_some());
        }
        self.handshakes.push_back((client.accepted_at, Arc::downgrade(client)));
    }

    /// When the next one is to be asked to make room.
    fn evict_at(&mut self) -> Option<Instant> {
        let answer_until = self.asked_at.map(|at| at + ANSWER);
        self.oldest().map(|since| (since + PATIENCE).max(answer_until.unwrap_or(since)))
    }

    /// Since when the one that was left alone for longest has been.
    fn oldest(&mut self) -> Option<Instant> {
        while let Some((since, client)) = self.handshakes.front() {
            if in_handshake(client).is_some() {
                return Some(*since);
            }
            self.handshakes.pop_front();
        }
        None
    }

    /// Asks that one to make room for others, unless its peer has been heard of since it was asked last.
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

/// The client, unless it is through or gone.
fn in_handshake(client: &Weak<Client>) -> Option<Arc<Client>> {
    client.upgrade().filter(|client| client.is_in_handshake())
}

pub(super) async fn sleep_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt;

    use super::super::status::ClientState;
    use super::super::tracker::Tracker;
    use super::*;

    fn accept(tracker: &Tracker, id: u64) -> Arc<Client> {
        tracker.add(id, SocketAddr::from(([10, 0, 0, 1], 1)), None, Instant::now())
    }

    fn is_asked_to_go(client: &Client) -> bool {
        let order = client.calls().poll_order(&mut Context::from_waker(Waker::noop()));
        order == Poll::Ready(Order::Evict)
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_through_is_never_asked_and_who_was_asked_stands_behind_the_others() {
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
        // It still has its slot, as if its task had not come to give it back.
        let asked = |clients: &[Arc<Client>]| clients.iter().map(|client| is_asked_to_go(client)).collect::<Vec<_>>();
        assert!(tokio::time::timeout(Duration::from_millis(1960), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, false, false]);
        assert!(tokio::time::timeout(Duration::from_millis(25), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, true, false]);
        // Heard of: it is spared. The third one is next.
        assert!(clients[1].calls().withdraw_eviction());
        assert!(tokio::time::timeout(Duration::from_millis(25), slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, false, true]);
        assert!(tokio::time::timeout(PATIENCE, slots.take()).await.is_err());
        assert_eq!(asked(&clients), [false, true, true], "silent again");
        held.pop();
        assert!(slots.take().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn for_one_slot_one_has_to_go_however_many_are_silent() {
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
        let _slot = slots.take().now_or_never().expect("the one that was given back");
        assert!(slots.take().now_or_never().is_none());
        assert_eq!(asked(), 3, "one more is wanted, and the one before has gone");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_are_through_are_forgotten_even_behind_one_that_is_not() {
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
