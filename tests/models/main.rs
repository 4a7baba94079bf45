//! The product's hand-made concurrency under loom, which tries every order in which threads can meet, and every value
//! that memory may show them, up to a number of preemptions.
//!
//! The product's sources are built a second time, with loom's `crate::sync`. Each model is as small as possible: two or
//! three threads, one or two events.
//!
//! `LOOM_MAX_PREEMPTIONS=4` tries more; `LOOM_LOG=trace LOOM_LOCATION=1` shows the path to a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../src/tasks/bells.rs"]
mod bells;
#[path = "../../src/syncserver/calls.rs"]
mod calls;
#[path = "../../src/snapcache/chain.rs"]
#[expect(unreachable_pub, reason = "it is part of the library's interface")]
mod chain;
#[path = "../../src/syncserver/client/guarded.rs"]
mod guarded;
#[path = "../../src/syncserver/feed/made.rs"]
mod made;
#[path = "../../src/syncserver/feed/pump_calls.rs"]
mod pump_calls;

mod sync;

/// The path of the modules in the product's sources.
mod syncserver {
    pub(crate) use crate::calls;
}

mod models {
    mod calls;
    mod guarded;
    mod made;
    mod pump_calls;
    mod relay;
    mod trail;
}

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

/// Number of preemptions, which stop a thread that could have gone on, unless `LOOM_MAX_PREEMPTIONS` is set.
/// Nearly all bugs need two at most; each further one multiplies the time.
const PREEMPTIONS: usize = 3;

/// Tries all orders of events.
fn model(events: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(events);
}

/// Work of a thread beside the task.
type Deed = Box<dyn FnOnce() + Send>;

/// Runs a task to its end beside threads.
///
/// # Panics
/// The task rests, and no thread is left to wake it.
fn run_beside<F: Future>(deeds: impl IntoIterator<Item = Deed>, task: F) -> F::Output {
    settle_beside(deeds, task).expect("the task rests, and no thread is left to wake it")
}

/// Runs a task beside threads, to its end, or until it rests and all threads have ended.
fn settle_beside<F: Future>(deeds: impl IntoIterator<Item = Deed>, task: F) -> Option<F::Output> {
    let pulse = Arc::new(Pulse { state: Mutex::default(), changed: Condvar::new() });
    for deed in deeds {
        pulse.state.lock().unwrap().busy += 1;
        let pulse = pulse.clone();
        loom::thread::spawn(move || {
            deed();
            pulse.change(|state| state.busy -= 1);
        });
    }
    let waker = Waker::from(pulse.clone());
    let mut task = pin!(task);
    loop {
        if let Poll::Ready(output) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        if !pulse.is_woken() {
            return None;
        }
    }
}

/// Whether a task was woken, and the number of threads that can still wake it.
struct Pulse {
    state: Mutex<PulseState>,
    changed: Condvar,
}

#[derive(Default)]
struct PulseState {
    woken: bool,
    busy: usize,
}

impl Pulse {
    fn change(&self, change: impl FnOnce(&mut PulseState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_one();
    }

    /// Waits until the task is woken, or no thread can wake it any more.
    fn is_woken(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.woken && state.busy > 0 {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.woken)
    }
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.change(|state| state.woken = true);
    }
}
