//! Accepts connections, each with a slot for its handshake. A failing `accept` is tried again after a pause.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::super::client::transport::Listener;
use super::slots::Slots;
use crate::metrics::ServerMetrics;

/// Pause after the first failure of `accept`. The usual cause is that there are no more file descriptors, and then
/// every connection that ends helps.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);

/// Longest pause between attempts to accept: the time that a healthy server may seem deaf after the cause is gone.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The inlet of a running server.
pub(crate) struct Accepting<L> {
    listener: L,
    pub(crate) slots: Slots,
    slot: Option<OwnedSemaphorePermit>,
    pause: Option<(Duration, Instant)>,
}

impl<L> Accepting<L> {
    /// Accepts from the listener, and gives each connection one of the slots.
    pub(crate) fn new(listener: L, slots: Slots) -> Self {
        Self { listener, slots, slot: None, pause: None }
    }
}

/// The next connection, with its slot. Waits for ever when nothing is accepted any more.
///
/// # Cancel safety
/// Cancel safe: progress is kept in `accepting`.
pub(crate) async fn next_connection<L: Listener>(
    accepting: Option<&mut Accepting<L>>,
    metrics: &ServerMetrics,
) -> (L::Stream, SocketAddr, OwnedSemaphorePermit) {
    let Some(accepting) = accepting else { return pending().await };
    loop {
        if let Some((_, until)) = accepting.pause {
            sleep_until(until).await;
        }
        let slot = match accepting.slot.take() {
            Some(slot) => slot,
            None => accepting.slots.take().await,
        };
        let slot = accepting.slot.insert(slot);
        debug_assert_eq!(slot.num_permits(), 1, "one connection, one slot");
        match accepting.listener.accept().await {
            Ok((stream, peer)) => {
                accepting.pause = None;
                if let Some(slot) = accepting.slot.take() {
                    return (stream, peer, slot);
                }
            }
            Err(error) => {
                metrics.accept_errors.inc();
                let pause = accepting.pause.map_or(ACCEPT_PAUSE_MIN, |(last, _)| (last * 2).min(ACCEPT_PAUSE_MAX));
                if accepting.pause.is_none() {
                    tracing::warn!(
                        %error,
                        "cannot accept connections, trying again; if the error is too many open files, raise the limit of file descriptors"
                    );
                }
                accepting.pause = Some((pause, Instant::now() + pause));
            }
        }
    }
}
