//! Calls to a pump, and whether all of them have been answered.
//!
//! Model-checked by `tests/models`.

use std::future::poll_fn;
use std::task::Poll;

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The calls to one pump.
#[derive(Debug)]
pub(super) struct Errands {
    calls: AtomicU64,
    answered: AtomicU64,
    ended: AtomicBool,
    waker: AtomicWaker,
}

/// Going around once, for all calls until now.
#[derive(Debug)]
pub(super) struct Errand {
    calls: u64,
    /// There will be no further calls.
    pub(super) last: bool,
}

impl Default for Errands {
    /// No calls yet.
    fn default() -> Self {
        Self {
            calls: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }
}

impl Errands {
    /// There is work for the pump, done before this call.
    pub(super) fn call(&self) {
        self.count();
        self.remind();
    }

    /// Wakes the pump again, should it not know of its calls.
    pub(super) fn remind(&self) {
        self.waker.wake();
    }

    /// Counts a call without waking anybody.
    pub(super) fn count(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// There will be no more calls: once around, and no more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.remind();
    }

    /// Whether there are calls that have not been answered.
    pub(super) fn are_pending(&self) -> bool {
        self.answered.load(Ordering::Acquire) != self.calls.load(Ordering::Acquire)
    }

    /// Waits until there is a call that was not answered. For the pump only.
    ///
    /// # Cancel safety
    /// Cancel safe: calls count as answered only with [`Self::done`].
    pub(super) async fn next(&self) -> Errand {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            // In this order: after the end there are no more calls to be seen.
            let last = self.ended.load(Ordering::Acquire);
            let calls = self.calls.load(Ordering::Acquire);
            let called = last || calls != self.answered.load(Ordering::Relaxed);
            if called { Poll::Ready(Errand { calls, last }) } else { Poll::Pending }
        })
        .await
    }

    /// All there was to do for an errand has been done.
    pub(super) fn done(&self, errand: &Errand) {
        self.answered.store(errand.calls, Ordering::Release);
    }
}
