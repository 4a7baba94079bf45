//! Several syncers as one stream of events, each with the name of its syncer.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;

use super::builder::ClientBuilder;
use super::client::Client;
use super::error::Error;
use super::event::SyncEvent;
use crate::model::SyncerName;

/// Follows several syncers, over a connection each. Dropping it closes them all.
///
/// The events of a syncer come in their order; those of two syncers in no order at all, for they are consistent each for itself. No
/// syncer waits for another one that always has events.
///
/// Asking for the next event tells that all earlier ones have been applied, as with a [`Client`].
#[derive(Debug)]
pub struct Clients {
    clients: Vec<(SyncerName, Client)>,
    /// The one that is asked first, the next time.
    first: usize,
}

impl Clients {
    /// The next event of any syncer. `None`: all clients gave up or were closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<(SyncerName, SyncEvent)> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Closes all connections in good manner and waits until that is done.
    pub async fn close(self) {
        for (_, client) in self.clients {
            client.close().await;
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<(SyncerName, SyncEvent)>> {
        let mut ended = 0;
        for n in 0..self.clients.len() {
            let at = (self.first + n) % self.clients.len();
            let (syncer, client) = &mut self.clients[at];
            match client.poll_event(cx) {
                Poll::Ready(Some(event)) => {
                    self.first = at + 1;
                    return Poll::Ready(Some((*syncer, event)));
                }
                Poll::Ready(None) => ended += 1,
                Poll::Pending => {}
            }
        }
        if ended == self.clients.len() { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Stream for Clients {
    type Item = (SyncerName, SyncEvent);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx)
    }
}

impl ClientBuilder {
    /// Starts a client of each of these syncers over TCP, on the current tokio runtime. All other settings are the same for all; the
    /// syncer that was set before does not count.
    ///
    /// # Errors
    /// The settings make no sense. Failures to connect are events.
    pub fn start_all(self, syncers: impl IntoIterator<Item = SyncerName>) -> Result<Clients, Error> {
        self.start_each(syncers, ClientBuilder::start)
    }

    pub(super) fn start_each(
        self,
        syncers: impl IntoIterator<Item = SyncerName>,
        mut start: impl FnMut(Self) -> Result<Client, Error>,
    ) -> Result<Clients, Error> {
        let started = syncers.into_iter().map(|syncer| Ok((syncer, start(self.clone().syncer(syncer))?)));
        Ok(Clients { clients: started.collect::<Result<_, Error>>()?, first: 0 })
    }
}
