//! Legs of a relay are woken by each other and from outside, while they run and while they rest.

use std::future::poll_fn;
use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::bells::Bells;
use crate::{Deed, model, run_beside};

/// Two threads each bring an item to the first leg, which hands it on to the second. Ends when both items have arrived.
fn two_bring_something(may_go_on: bool) {
    let bells = Bells::new();
    let (first, second) = (Arc::new(bells.bell()), bells.bell());
    let brought = Arc::new(AtomicUsize::new(0));
    let bring = || {
        let (first, brought) = (first.clone(), brought.clone());
        Box::new(move || {
            // Only the bell makes it visible to the leg.
            brought.fetch_add(1, Ordering::Relaxed);
            first.ring();
        })
    };
    let deeds: [Deed; 2] = [bring(), bring()];
    let (mut handed_on, mut through) = (0, 0);
    let mut round = || {
        if first.has_rung() {
            let now = brought.load(Ordering::Relaxed);
            if now > handed_on {
                handed_on = now;
                second.ring();
            }
        }
        if second.has_rung() {
            through = handed_on;
        }
        through == 2
    };
    run_beside(deeds, poll_fn(|cx| bells.run(cx.waker(), &mut round, || may_go_on)));
}

#[test]
fn nothing_stays_with_a_leg() {
    model(|| two_bring_something(true));
}

#[test]
fn nothing_stays_with_a_leg_whose_thread_is_released_each_time() {
    model(|| two_bring_something(false));
}
