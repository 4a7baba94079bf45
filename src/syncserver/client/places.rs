//! Places for clients with long unfinished messages: a bound on the bytes that are kept of these, over all clients.
//!
//! A message is kept until it is complete. Honest clients send short ones, all at once; a stranger need not. So a
//! client that has begun more than [`FREE_BYTES`] is read on only while it has one of a few places; until then the rest
//! waits in its socket. When all places are taken and others wait, the client that has had its place for longest is
//! disconnected.
//!
//! Invariants:
//! - without a place, no more than [`FREE_BYTES`] and one read (2 KiB) are kept for a client;
//! - clients with short messages never need a place, so they cannot be kept out by taking all;
//! - no client keeps a place for longer than [`PATIENCE`] while others wait for one.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::super::calls::Order;
use super::record::Client;

/// Bytes of an unfinished message that a client may have sent without a place: more than an acknowledgement, a pong, or
/// the hello of Calico's clients (404 bytes with short host names).
pub(crate) const FREE_BYTES: usize = 2 << 10;

/// Bytes of a TLS handshake that a client may have sent without a place: twice the size of one with a client
/// certificate and an intermediate one. A TLS session puts together handshake messages of up to 64 KiB.
pub(crate) const FREE_TLS_BYTES: u64 = 8 << 10;

/// Places of each kind: for clients in their handshake, and for those that stream. With messages of at most 64 KiB, in
/// buffers that grow by doubling, that is 8 MiB for each kind. Honest clients that need one at all need it for
/// milliseconds.
const PLACES: usize = 64;

/// Time after which a client may have to give up its place to others. 64 KiB take as long on a link of 2 Mbit/s. When a
/// thousand wait, the last one gets a place after 4 s, well within the time of a handshake.
const PATIENCE: Duration = Duration::from_millis(250);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    next: u64,
    /// The clients that have a place and have not been sent away, by age, each with the time when it got it.
    by_age: BTreeMap<u64, (Instant, Weak<Client>)>,
}

/// A wait for a place.
pub(crate) type Wait = Pin<Box<dyn Future<Output = Place> + Send>>;

/// A place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_age.remove(&self.number);
    }
}

impl Places {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(PLACES)), holders: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a [place](Self::take) for a client. Boxed: few clients ever wait, and the others should not reserve
    /// memory for it.
    pub(crate) fn wait(self: Arc<Self>, client: &Arc<Client>) -> Wait {
        Box::pin(self.take(Arc::downgrade(client)))
    }

    /// Waits for a place for a client, and sends away clients that have had theirs for too long.
    ///
    /// # Cancel safety
    /// Cancel safe, but a client that waits loses its place in the queue.
    async fn take(self: Arc<Self>, client: Weak<Client>) -> Place {
        let mut acquire = std::pin::pin!(self.free.clone().acquire_owned());
        let permit = loop {
            let send_away_at = if self.free.available_permits() > 0 { None } else { Some(self.next_to_go()) };
            tokio::select! {
                biased;
                permit = acquire.as_mut() => break permit.expect("the semaphore is never closed"),
                () = sleep_or_never(send_away_at) => self.send_away(Instant::now()),
            }
        };
        let mut holders = self.lock();
        let number = holders.next;
        holders.next += 1;
        holders.by_age.insert(number, (Instant::now(), client));
        drop(holders);
        Place { places: self, number, _permit: permit }
    }

    /// When the oldest holder may be sent away. While there is none, a place is just becoming free.
    fn next_to_go(&self) -> Instant {
        let holders = self.lock();
        let since = holders.by_age.first_key_value().map(|(_, (since, _))| *since);
        since.unwrap_or_else(Instant::now) + PATIENCE
    }

    /// Sends away the oldest holder, if it has had its place for long enough.
    fn send_away(&self, now: Instant) {
        let mut holders = self.lock();
        let Some(oldest) = holders.by_age.first_entry() else { return };
        if oldest.get().0 + PATIENCE > now {
            return;
        }
        let (_, client) = oldest.remove();
        drop(holders);
        if let Some(client) = client.upgrade() {
            client.calls().order(Order::Unfinished);
        }
    }
}

/// Whether a client that streams may be read on.
pub(crate) enum Reading {
    /// It has no long unfinished message.
    Free,
    /// It has one, and waits for a place.
    Waiting(Wait),
    /// It has its place.
    Placed { _held: Box<Place> },
}

impl Reading {
    /// Without an unfinished message.
    pub(crate) fn new() -> Self {
        Self::Free
    }

    /// The client needs a place, or none, and gets it from `places`.
    pub(crate) fn note(&mut self, needs_place: bool, places: &Arc<Places>, client: &Arc<Client>) {
        match self {
            Self::Free if needs_place => {
                *self = Self::Waiting(places.clone().wait(client));
            }
            Self::Waiting(_) | Self::Placed { .. } if !needs_place => *self = Self::Free,
            _ => {}
        }
    }

    /// Whether more bytes may be read.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self, Self::Waiting(_))
    }

    /// Waits for the place; for ever when none is needed.
    ///
    /// # Cancel safety
    /// Cancel safe, and the place in the queue is kept.
    pub(crate) async fn placed(&mut self) {
        let Self::Waiting(place) = self else { return pending().await };
        let place = place.await;
        *self = Self::Placed { _held: Box::new(place) };
    }
}

/// Sleeps until then; for ever without a time.
pub(crate) async fn sleep_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;
    use crate::syncserver::server::tracker::Tracker;

    fn is_sent_away(client: &Client) -> bool {
        client.calls().poll_order(&mut Context::from_waker(Waker::noop())) == Poll::Ready(Order::Unfinished)
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_holder_of_a_place_goes_when_others_wait_and_not_before() {
        let (tracker, places) = (Tracker::default(), Places::new());
        let client = |id| tracker.add(id, ([10, 0, 0, 1], 1).into(), None, Instant::now());
        let clients: Vec<_> = (0..=PLACES as u64).map(client).collect();
        let mut held = Vec::new();
        for client in &clients[..PLACES] {
            held.push(places.clone().take(Arc::downgrade(client)).now_or_never().expect("a place is free"));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!clients.iter().any(|client| is_sent_away(client)), "no client waits");
        held.remove(0);
        held.push(places.clone().take(Arc::downgrade(&clients[PLACES])).now_or_never().expect("that place is free"));

        let waits = |patience| timeout(patience, places.clone().take(Arc::downgrade(&clients[0])));
        assert!(waits(Duration::from_millis(1)).await.is_err(), "no client has left yet");
        let away: Vec<bool> = clients.iter().map(|client| is_sent_away(client)).collect();
        assert!(!away[0] && away[1..PLACES].iter().all(|away| *away), "{away:?}");
        assert!(!away[PLACES], "it has only just come");
        assert!(waits(PATIENCE).await.is_err());
        assert!(is_sent_away(&clients[PLACES]));
        held.pop();
        assert!(waits(PATIENCE).await.is_ok());
    }
}
