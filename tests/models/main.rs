//! The product's hand-made concurrency under loom, which tries every order in which threads can meet, and every value that
//! memory may show them: not a loop that may hit the bad moment, but all moments there are, up to a number of preemptions.
//!
//! The sources are those of the product, built a second time: what they take from `crate::sync` is loom's here. Each model is
//! as small as it can be while it still has the danger: two or three threads, one or two things that happen.
//!
//! `LOOM_MAX_PREEMPTIONS=4` tries more; `LOOM_LOG=trace LOOM_LOCATION=1` tells what led to a failure.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../src/tasks/bells.rs"]
mod bells;
#[path = "../../src/syncserver/calls.rs"]
mod calls;
#[path = "../../src/snapcache/chain.rs"]
#[expect(unreachable_pub, reason = "it is part of the library's interface")]
mod chain;
#[path = "../../src/syncserver/errands.rs"]
mod errands;
#[path = "../../src/syncserver/made.rs"]
mod made;
#[path = "../../src/syncserver/turns.rs"]
mod turns;

mod sync;

mod models {
    mod calls;
    mod errands;
    mod made;
    mod relay;
    mod trail;
    mod turns;
}

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

/// How often a thread is stopped where it could have gone on, unless `LOOM_MAX_PREEMPTIONS` says otherwise. Nearly all bugs
/// need two at most; each further one multiplies the time.
const PREEMPTIONS: usize = 3;

/// Tries everything that can happen.
fn model(what_happens: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(what_happens);
}

/// The work of a thread beside the task.
type Deed = Box<dyn FnOnce() + Send>;

/// Runs a task to its end beside threads that do something each.
///
/// # Panics
/// When it rests, and nobody is left to wake it.
fn run_beside<F: Future>(deeds: impl IntoIterator<Item = Deed>, task: F) -> F::Output {
    settle_beside(deeds, task).expect("the task rests, and nobody is left to wake it")
}

/// Runs a task beside threads that do something each, to its end, or until it rests and all threads have ended.
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

/// Of a task: whether it was woken, and how many can still wake it.
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

    /// Waits until the task is woken or cannot be any more.
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
