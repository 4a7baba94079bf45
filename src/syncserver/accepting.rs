//! The next connection of a listener, together with its right to be in handshake; a failing `accept` is tried again after a pause.

use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::slots::Slots;
use super::transport::Listener;
use crate::metrics::ServerMetrics;

/// Pause after the first failure of `accept`. The usual cause is that file descriptors have run out, and then every
/// connection that ends helps.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);

/// Longest pause between attempts to accept: how long a healthy server may seem deaf after the cause has gone.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The inlet of a running server.
pub(super) struct Accepting<L> {
    listener: L,
    pub(super) slots: Slots,
    slot: Option<OwnedSemaphorePermit>,
    pause: Option<(Duration, Instant)>,
}

impl<L> Accepting<L> {
    /// Accepts from the listener, and gives each connection one of the slots.
    pub(super) fn new(listener: L, slots: Slots) -> Self {
        Self { listener, slots, slot: None, pause: None }
    }
}

/// The next connection, with its right to be in handshake. Waits forever when nothing is accepted any more.
///
/// # Cancel safety
/// Cancel safe: what has been achieved is kept in `accepting`.
pub(super) async fn next_connection<L: Listener>(
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
                        "cannot accept connections, trying again; if it says too many open files, raise the limit of file descriptors"
                    );
                }
                accepting.pause = Some((pause, Instant::now() + pause));
            }
        }
    }
}
