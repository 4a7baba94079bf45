//! The wake-ups of a relay's legs, and whether the task that runs them knows of these.
//!
//! Model-checked by `tests/models`.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::AtomicWaker;
use crate::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Rounds over all legs before the thread is released. The runtime's budget ends a run of legs that wait for its
/// channels and sockets much earlier; this is for legs that wake each other by other means.
pub(super) const MOST_ROUNDS: usize = 256;

/// No leg was woken since the last one was polled.
const IDLE: u8 = 0;
/// Legs are being polled.
const RUNNING: u8 = 1;
/// A leg was woken; the task is woken too, or will look before it rests.
const WOKEN: u8 = 2;

/// The state that the bells of a relay share.
pub(super) struct Bells {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Bells {
    /// For a relay that has not run yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: AtomicU8::new(WOKEN), task: AtomicWaker::new() })
    }

    /// A bell that has rung: its leg is to run for the first time.
    pub(super) fn bell(self: &Arc<Self>) -> Bell {
        Bell { rung: AtomicBool::new(true), bells: self.clone() }
    }

    /// Goes around the legs, again as long as bells ring meanwhile and the task `may_go_on`. `round` polls the legs
    /// whose bells have [rung](Bell::has_rung), and returns whether all is over. `waker` is that of the relay's task,
    /// and only this calls it.
    pub(super) fn run(&self, waker: &Waker, mut round: impl FnMut() -> bool, may_go_on: impl Fn() -> bool) -> Poll<()> {
        self.task.register(waker);
        for _ in 0..MOST_ROUNDS {
            // A swap, not a store: the legs see the work that was done before each bell that has rung.
            self.state.swap(RUNNING, Ordering::AcqRel);
            if round() {
                return Poll::Ready(());
            }
            if self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Poll::Pending;
            }
            if !may_go_on() {
                break;
            }
        }
        // The state is `WOKEN`: bells that ring from now on need not wake the task.
        waker.wake_by_ref();
        Poll::Pending
    }
}

/// The waker of a leg.
pub(super) struct Bell {
    rung: AtomicBool,
    bells: Arc<Bells>,
}

impl Bell {
    /// The leg has something to do.
    pub(super) fn ring(&self) {
        // First the bell, then the state: a task that sees the state looks for bells after that. A swap, not a store:
        // of two rings at once, the leg sees the work that came before either.
        self.rung.swap(true, Ordering::AcqRel);
        if self.bells.state.swap(WOKEN, Ordering::AcqRel) == IDLE {
            self.bells.task.wake();
        }
    }

    /// Whether it has rung since the last call.
    pub(super) fn has_rung(&self) -> bool {
        self.rung.swap(false, Ordering::AcqRel)
    }
}
