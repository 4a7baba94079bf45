//! Calls to a pump, and whether all of them have been answered.
//!
//! Model-checked by `tests/models`.

use std::future::poll_fn;
use std::task::Poll;

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The calls to one pump.
#[derive(Debug)]
pub(crate) struct PumpCalls {
    calls: AtomicU64,
    answered: AtomicU64,
    ended: AtomicBool,
    waker: AtomicWaker,
}

/// One run of a pump, for all calls until now.
#[derive(Debug)]
pub(crate) struct PumpRun {
    calls: u64,
    /// There will be no further calls.
    pub(crate) last: bool,
}

impl Default for PumpCalls {
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

impl PumpCalls {
    /// There is work for the pump; it was published before this call.
    pub(crate) fn call(&self) {
        self.count();
        self.remind();
    }

    /// Wakes the pump again, in case it does not know of its calls.
    pub(crate) fn remind(&self) {
        self.waker.wake();
    }

    /// Counts a call without a wake-up.
    pub(crate) fn count(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
    }

    /// There will be no more calls: the pump makes one more run.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.remind();
    }

    /// Whether there are calls that have not been answered.
    pub(crate) fn are_pending(&self) -> bool {
        self.answered.load(Ordering::Acquire) != self.calls.load(Ordering::Acquire)
    }

    /// Waits until there is a call that was not answered. For the pump only.
    ///
    /// # Cancel safety
    /// Cancel safe: calls count as answered only with [`Self::done`].
    pub(crate) async fn next(&self) -> PumpRun {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            // In this order: after the end no more calls come.
            let last = self.ended.load(Ordering::Acquire);
            let calls = self.calls.load(Ordering::Acquire);
            let called = last || calls != self.answered.load(Ordering::Relaxed);
            if called { Poll::Ready(PumpRun { calls, last }) } else { Poll::Pending }
        })
        .await
    }

    /// The work of a run is done.
    pub(crate) fn done(&self, run: &PumpRun) {
        self.answered.store(run.calls, Ordering::Release);
    }
}
