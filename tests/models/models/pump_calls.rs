//! A pump is called while it goes around.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::pump_calls::PumpCalls;
use crate::{Deed, model, run_beside};

/// Runs until there are no more calls, and records the content of the ring each time.
async fn go_around(calls: &PumpCalls, ring: &AtomicUsize, taken: &AtomicUsize) {
    loop {
        let run = calls.next().await;
        taken.store(ring.load(Ordering::Relaxed), Ordering::Relaxed);
        calls.done(&run);
        if run.last {
            return;
        }
    }
}

#[test]
fn a_run_takes_all_changes_published_before_the_call_and_every_call_is_answered() {
    model(|| {
        let calls = Arc::new(PumpCalls::default());
        let (ring, taken) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let feed: Deed = {
            let (calls, ring) = (calls.clone(), ring.clone());
            Box::new(move || {
                for _ in 0..2 {
                    ring.fetch_add(1, Ordering::Relaxed);
                    calls.call();
                }
                calls.end();
            })
        };
        run_beside([feed], go_around(&calls, &ring, &taken));
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        assert!(!calls.are_pending());
    });
}

#[test]
fn a_call_is_not_answered_before_all_changes_are_taken() {
    model(|| {
        let calls = Arc::new(PumpCalls::default());
        let (ring, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let feed: Deed = {
            let (calls, ring, taken) = (calls.clone(), ring.clone(), taken.clone());
            Box::new(move || {
                for n in 1..=2 {
                    ring.store(n, Ordering::Relaxed);
                    calls.call();
                    if !calls.are_pending() {
                        assert_eq!(taken.load(Ordering::Relaxed), n);
                    }
                }
                calls.end();
            })
        };
        run_beside([feed], go_around(&calls, &ring, &taken));
    });
}
