//! The near end of a client: events out, reports in.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::driver::{Applied, Item};
use super::event::SyncEvent;
use crate::model::Key;
use crate::syncproto::native::KeyError;

/// Reports keys that the agent could not apply. It can be cloned and used from any task.
#[derive(Clone, Debug)]
pub struct Handle {
    errors: mpsc::Sender<KeyError>,
}

impl Handle {
    /// Reports a key, to be told to the server with the next acknowledgement (native protocol only). Returns false if too many
    /// reports wait already; the report is dropped.
    pub fn report_error(&self, key: Key, reason: impl Into<String>) -> bool {
        self.errors.try_send(KeyError { key, reason: reason.into() }).is_ok()
    }
}

/// Follows a syncer. Dropping it closes the connection.
///
/// Asking for the next event tells that all earlier ones have been applied; servers are told (native protocol only).
pub struct Client {
    events: mpsc::Receiver<Item>,
    /// The consumer's position once it has applied the event that it took last.
    taken: Option<Applied>,
    applied: watch::Sender<Applied>,
    handle: Handle,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("applied", &*self.applied.borrow()).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(
        events: mpsc::Receiver<Item>,
        applied: watch::Sender<Applied>,
        errors: mpsc::Sender<KeyError>,
        cancel: CancellationToken,
        task: JoinHandle<()>,
    ) -> Self {
        Self { events, taken: None, applied, handle: Handle { errors }, cancel, task: Some(task) }
    }

    /// The next event. `None`: the client gave up or was closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<SyncEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Takes reports of keys that could not be applied.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Closes the connection in good manner and waits until that is done.
    pub async fn close(mut self) {
        self.cancel.cancel();
        self.events.close();
        if let Some(task) = self.task.take() {
            // A panic in the task has been reported by its hook; nothing is left to close.
            let _ = task.await;
        }
    }

    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<SyncEvent>> {
        if let Some(applied) = self.taken.take() {
            self.applied.send_replace(applied);
        }
        loop {
            let Some(item) = ready!(self.events.poll_recv(cx)) else { return Poll::Ready(None) };
            match item {
                Item { event: Some(event), applied } => {
                    self.taken = applied;
                    return Poll::Ready(Some(event));
                }
                Item { event: None, applied: Some(applied) } => {
                    self.applied.send_replace(applied);
                }
                Item { event: None, applied: None } => {}
            }
        }
    }
}

impl Stream for Client {
    type Item = SyncEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SyncEvent>> {
        self.poll_event(cx)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
