//! Calls to a connection's task: to end, or to look whether there is something to send.
//!
//! ```text
//!  handshake ◄─withdrawn─ asked to make room        once through its handshake, a connection is not asked that any more
//!      └────────┬─────────────┘
//!            through ─► ordered to end
//! ```
//!
//! One word holds all of that: an order to make room that comes just when the handshake ends is either withdrawn by the end
//! or refused. Model-checked by `tests/models`.

use std::task::{Context, Poll};

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// In its handshake, and ordered nothing.
const HANDSHAKE: u8 = 0;
/// Through its handshake, and ordered nothing.
const THROUGH: u8 = 1;

/// Why a connection is to end, as decided outside of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Order {
    /// To make room for others, while it is in its handshake.
    Evict = 2,
    Rebalance = 3,
    Drain = 4,
    Stop = 5,
    /// It began a long message, and others wait for room to send theirs.
    Unfinished = 6,
    /// It holds the oldest of too many old versions of the map.
    OldestVersion = 7,
}

impl Order {
    const ALL: [Self; 6] =
        [Self::Evict, Self::Rebalance, Self::Drain, Self::Stop, Self::Unfinished, Self::OldestVersion];
}

/// The calls to a connection's task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// End the connection.
    End(Order),
    /// Look whether there is something to send.
    Look,
}

/// The calls to one connection.
#[derive(Debug)]
pub(super) struct Calls {
    /// An order, or [`HANDSHAKE`], or [`THROUGH`].
    order: AtomicU8,
    nudged: AtomicBool,
    waker: AtomicWaker,
}

impl Calls {
    /// To a connection in its handshake.
    pub(super) fn new() -> Self {
        Self { order: AtomicU8::new(HANDSHAKE), nudged: AtomicBool::new(false), waker: AtomicWaker::new() }
    }

    /// Ends the connection soon. The first order counts, except that to make room for others, which may be withdrawn, and which
    /// means nothing to a connection that is through its handshake.
    pub(super) fn order(&self, order: Order) {
        let evict = Order::Evict as u8;
        let outranks =
            |earlier| earlier == HANDSHAKE || earlier == evict || earlier == THROUGH && order != Order::Evict;
        let replace = |earlier| outranks(earlier).then_some(order as u8);
        if self.order.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace).is_ok() {
            self.waker.wake();
        }
    }

    /// It need not make room for others. False: nobody asked, or it has to end for another reason.
    pub(super) fn withdraw_eviction(&self) -> bool {
        self.order.compare_exchange(Order::Evict as u8, HANDSHAKE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Its handshake is over. Should it have been asked to make room meanwhile: room was made by that.
    pub(super) fn through(&self) {
        let evict = Order::Evict as u8;
        let replace = |earlier| (earlier == HANDSHAKE || earlier == evict).then_some(THROUGH);
        let _otherwise_it_has_to_end = self.order.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace);
    }

    /// Ready once the connection has been ordered to end. For the connection's own task only.
    pub(super) fn poll_order(&self, cx: &mut Context<'_>) -> Poll<Order> {
        if self.ordered().is_none() {
            self.waker.register(cx.waker());
        }
        self.ordered().map_or(Poll::Pending, Poll::Ready)
    }

    /// Has the connection's task look whether there is something to send.
    pub(super) fn nudge(&self) {
        // Exchanged and not just stored: of two nudges at once, the task sees the work of both that came before them.
        self.nudged.swap(true, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Whether the task was nudged and has not looked since.
    pub(super) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    /// Ready once there is something to say to the connection. For the connection's own task only.
    pub(super) fn poll_call(&self, cx: &mut Context<'_>) -> Poll<Call> {
        if let Poll::Ready(order) = self.poll_order(cx) {
            return Poll::Ready(Call::End(order));
        }
        // After the waker has been left: a nudge after this line wakes.
        if self.nudged.swap(false, Ordering::AcqRel) { Poll::Ready(Call::Look) } else { Poll::Pending }
    }

    fn ordered(&self) -> Option<Order> {
        let number = self.order.load(Ordering::Acquire);
        Order::ALL.into_iter().find(|order| *order as u8 == number)
    }
}
