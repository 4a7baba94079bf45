//! The places of a listener limit its connections, and choose a connection that gives way to a new one.
//!
//! A client that reaches a port can open connections and send nothing. Probes must be answered all the same. So when all places
//! are taken and another connection comes, a connection without a request in work ends: first the one that has rested between
//! two requests for longest.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Time for a TLS handshake, and for the head of a request. Probes and scrapers send theirs at once.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest rest of a connection between two requests: a usual time between two scrapes.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which a connection keeps its place in any case: its request may have come, and not been read yet.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// The places of a listener.
pub(super) struct Places {
    free: Arc<Semaphore>,
    held: Vec<Weak<Held>>,
    /// Notified when a connection has come to another phase.
    changed: Arc<Notify>,
}

/// The right to have a connection, with the connection's phase. It is given back when the last clone is dropped.
#[derive(Clone)]
pub(super) struct Place(Arc<Held>);

struct Held {
    phase: watch::Sender<ConnectionPhase>,
    gives_way: CancellationToken,
    changed: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug)]
enum ConnectionPhase {
    /// The peer may send the head of a request, since this time.
    Head(Instant),
    /// A request is being answered.
    Busy,
    /// The answer is being written.
    Answered,
    /// The last answer was written at this time, and nothing has come since.
    Idle(Instant),
}

impl Places {
    /// `count` places, all free.
    pub(super) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), held: Vec::new(), changed: Arc::default() }
    }

    /// A place for a connection that has just come. If none is free, another connection gives way. While all of them are
    /// answering or have just come, this waits.
    ///
    /// # Cancel safety
    /// Cancel safe: at most, a connection has given way for nothing.
    pub(super) async fn take(&mut self) -> Place {
        let permit = self.permit().await;
        let held = Arc::new(Held {
            phase: watch::Sender::new(ConnectionPhase::Head(Instant::now())),
            gives_way: CancellationToken::new(),
            changed: self.changed.clone(),
            _permit: permit,
        });
        self.held.retain(|other| other.strong_count() > 0);
        self.held.push(Arc::downgrade(&held));
        Place(held)
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        loop {
            let free = self.free.clone().acquire_owned();
            let next = if self.free.available_permits() > 0 { None } else { self.next_to_go() };
            let at = next.as_ref().map(|(since, _)| *since + GRACE);
            let permit = tokio::select! {
                biased;
                permit = free => permit,
                () = self.changed.notified() => continue,
                () = sleep_or_never(at) => {
                    if let Some((_, gives_way)) = next {
                        gives_way.cancel();
                    }
                    // One at a time: this connection ends as soon as its task runs.
                    self.free.clone().acquire_owned().await
                }
            };
            return permit.expect("the semaphore is never closed");
        }
    }

    /// The connection that gives way next, and the time since which it has been silent.
    fn next_to_go(&self) -> Option<(Instant, CancellationToken)> {
        let silent = |held: &Weak<Held>| {
            let held = held.upgrade()?;
            let (begun, since) = match *held.phase.borrow() {
                ConnectionPhase::Idle(since) => (false, since),
                ConnectionPhase::Head(since) => (true, since),
                ConnectionPhase::Busy | ConnectionPhase::Answered => return None,
            };
            Some((begun, since, held.gives_way.clone()))
        };
        let next = self.held.iter().filter_map(silent).min_by_key(|(begun, since, _)| (*begun, *since));
        next.map(|(_, since, gives_way)| (since, gives_way))
    }
}

impl Place {
    /// A TLS handshake is done: the head of a request may come.
    pub(super) fn ready(&self) {
        self.turn(|_| Some(ConnectionPhase::Head(Instant::now())));
    }

    /// A request has come.
    pub(super) fn busy(&self) {
        self.turn(|_| Some(ConnectionPhase::Busy));
    }

    /// Its answer is made.
    pub(super) fn answered(&self) {
        self.turn(|_| Some(ConnectionPhase::Answered));
    }

    /// Bytes have come.
    fn received(&self) {
        self.turn(|phase| matches!(phase, ConnectionPhase::Idle(_)).then(|| ConnectionPhase::Head(Instant::now())));
    }

    /// All bytes to send have been written.
    fn flushed(&self) {
        self.turn(|phase| matches!(phase, ConnectionPhase::Answered).then(|| ConnectionPhase::Idle(Instant::now())));
    }

    fn turn(&self, next: impl FnOnce(ConnectionPhase) -> Option<ConnectionPhase>) {
        let turned = self.0.phase.send_if_modified(|phase| next(*phase).map(|next| *phase = next).is_some());
        if turned {
            self.0.changed.notify_one();
        }
    }

    /// Waits until the connection has to end. Returns the reason.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn over(&self) -> &'static str {
        let mut phase = self.0.phase.subscribe();
        loop {
            let (until, why) = match *phase.borrow_and_update() {
                ConnectionPhase::Head(since) => (Some(since + HEAD_TIMEOUT), "its request does not come"),
                ConnectionPhase::Idle(since) => (Some(since + IDLE_TIMEOUT), "it has been idle for long"),
                ConnectionPhase::Busy | ConnectionPhase::Answered => (None, ""),
            };
            tokio::select! {
                () = self.0.gives_way.cancelled() => return "it was silent, and another one needs its place",
                () = sleep_or_never(until) => return why,
                _ = phase.changed() => {}
            }
        }
    }
}

async fn sleep_or_never(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

/// The stream of a connection. It tells the place of reads and writes.
pub(super) struct Seen<S> {
    stream: S,
    place: Place,
}

impl<S> Seen<S> {
    pub(super) fn new(stream: S, place: Place) -> Self {
        Self { stream, place }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Seen<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.place.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Seen<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.place.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    /// A number of places, all taken, each a second after the one before.
    async fn taken(count: usize) -> (Places, Vec<Place>) {
        let mut places = Places::new(count);
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(places.take().await);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        (places, taken)
    }

    /// Lets another connection come, and says which one gives way to it; `None`: it has to wait.
    async fn newcomer(places: &mut Places, taken: &mut Vec<Option<Place>>, patience: Duration) -> Option<usize> {
        let leaves = async {
            let gives_way =
                |place: &Option<Place>| place.as_ref().is_some_and(|place| place.0.gives_way.is_cancelled());
            loop {
                if let Some(gone) = taken.iter().position(gives_way) {
                    taken[gone] = None;
                    return gone;
                }
                tokio::time::sleep(SOON).await;
            }
        };
        let came = async { tokio::join!(places.take(), leaves) };
        let (place, gone) = tokio::time::timeout(patience, came).await.ok()?;
        taken.push(Some(place));
        Some(gone)
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_give_way_first_then_those_whose_request_does_not_come_the_oldest_first() {
        let (mut places, taken) = taken(5).await;
        taken[0].busy();
        for (at_rest, place) in [(3, &taken[3]), (1, &taken[1])] {
            place.busy();
            place.answered();
            place.flushed();
            tokio::time::advance(Duration::from_secs(at_rest)).await;
        }
        let mut taken: Vec<Option<Place>> = taken.into_iter().map(Some).collect();
        let mut gone = Vec::new();
        for _ in 0..4 {
            gone.extend(newcomer(&mut places, &mut taken, Duration::from_secs(1)).await);
        }
        assert_eq!(gone, [3, 1, 2, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gives_way_who_has_just_come_or_is_being_answered() {
        let mut places = Places::new(1);
        let mut taken = vec![Some(places.take().await)];
        assert_eq!(newcomer(&mut places, &mut taken, GRACE.saturating_sub(SOON)).await, None);
        let place = taken[0].clone().expect("it stays");
        place.busy();
        assert_eq!(newcomer(&mut places, &mut taken, Duration::from_secs(60)).await, None);
        place.answered();
        assert_eq!(newcomer(&mut places, &mut taken, Duration::from_secs(60)).await, None);
        let waits = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            place.flushed();
            drop(place);
        };
        let began = Instant::now();
        assert_eq!(tokio::join!(newcomer(&mut places, &mut taken, Duration::from_secs(60)), waits).0, Some(0));
        assert!(
            (GRACE..GRACE * 2).contains(&began.elapsed().saturating_sub(Duration::from_secs(10))),
            "{:?}",
            began.elapsed()
        );
    }
}
