//! Calls to a connection's task: to end, or to look for something to send.
//!
//! ```text
//!  handshake ◄─withdrawn─ asked to make room
//!      └──────────┬────────────┘
//!                 └─established─► ordered to end
//! ```
//!
//! All of that is one atomic value. An order to make room that comes just when the handshake ends is either withdrawn
//! by that or refused; later ones are refused. Model-checked by `tests/models`.

use std::task::{Context, Poll};

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// In its handshake, without an order.
const HANDSHAKE: u8 = 0;
/// Its handshake is over, without an order.
const ESTABLISHED: u8 = 1;

/// The reason, decided outside of its task, why a connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Order {
    /// It has to make room for others during its handshake.
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
pub(crate) enum Call {
    /// End the connection.
    End(Order),
    /// Look whether there is something to send.
    Look,
}

/// The calls to one connection.
#[derive(Debug)]
pub(crate) struct Calls {
    /// An [`Order`], or [`HANDSHAKE`], or [`ESTABLISHED`].
    order: AtomicU8,
    nudged: AtomicBool,
    waker: AtomicWaker,
}

impl Calls {
    /// For a connection in its handshake.
    pub(crate) fn new() -> Self {
        Self { order: AtomicU8::new(HANDSHAKE), nudged: AtomicBool::new(false), waker: AtomicWaker::new() }
    }

    /// Ends the connection soon. The first order counts. Only the order to make room may be withdrawn or replaced, and
    /// it means nothing once the handshake is over.
    pub(crate) fn order(&self, order: Order) {
        let evict = Order::Evict as u8;
        let outranks =
            |earlier| earlier == HANDSHAKE || earlier == evict || earlier == ESTABLISHED && order != Order::Evict;
        let replace = |earlier| outranks(earlier).then_some(order as u8);
        if self.order.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace).is_ok() {
            self.waker.wake();
        }
    }

    /// Withdraws an order to make room for others. False: there was none, or the connection has to end for another
    /// reason.
    pub(crate) fn withdraw_eviction(&self) -> bool {
        self.order.compare_exchange(Order::Evict as u8, HANDSHAKE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The handshake is over. That made room, so an order to make room is withdrawn.
    pub(crate) fn establish(&self) {
        let evict = Order::Evict as u8;
        let replace = |earlier| (earlier == HANDSHAKE || earlier == evict).then_some(ESTABLISHED);
        let _ended = self.order.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace);
    }

    /// Ready once the connection has been ordered to end. For the connection's own task only.
    pub(crate) fn poll_order(&self, cx: &mut Context<'_>) -> Poll<Order> {
        if self.ordered().is_none() {
            self.waker.register(cx.waker());
        }
        self.ordered().map_or(Poll::Pending, Poll::Ready)
    }

    /// Has the connection's task look for something to send.
    pub(crate) fn nudge(&self) {
        // A swap, not a store: of two nudges at once, the task sees the work that came before either.
        self.nudged.swap(true, Ordering::AcqRel);
        self.waker.wake();
    }

    /// Whether the task was nudged and has not looked since.
    pub(crate) fn is_nudged(&self) -> bool {
        self.nudged.load(Ordering::Acquire)
    }

    /// Ready once there is a call. For the connection's own task only.
    pub(crate) fn poll_call(&self, cx: &mut Context<'_>) -> Poll<Call> {
        if let Poll::Ready(order) = self.poll_order(cx) {
            return Poll::Ready(Call::End(order));
        }
        // After the waker was registered: a nudge after this line wakes the task.
        if self.nudged.swap(false, Ordering::AcqRel) { Poll::Ready(Call::Look) } else { Poll::Pending }
    }

    fn ordered(&self) -> Option<Order> {
        let number = self.order.load(Ordering::Acquire);
        Order::ALL.into_iter().find(|order| *order as u8 == number)
    }
}
