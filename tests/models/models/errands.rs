//! A pump is called while it goes around.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};

use crate::errands::Errands;
use crate::{Deed, model, run_beside};

/// Goes around until there are no more calls. Notes each time what there was to be taken along.
async fn go_around(errands: &Errands, ring: &AtomicUsize, taken: &AtomicUsize) {
    loop {
        let errand = errands.next().await;
        taken.store(ring.load(Ordering::Relaxed), Ordering::Relaxed);
        errands.done(&errand);
        if errand.last {
            return;
        }
    }
}

#[test]
fn what_is_there_before_a_call_is_taken_along_and_no_call_stays_unanswered() {
    model(|| {
        let errands = Arc::new(Errands::default());
        let (ring, taken) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let feed: Deed = {
            let (errands, ring) = (errands.clone(), ring.clone());
            Box::new(move || {
                for _ in 0..2 {
                    ring.fetch_add(1, Ordering::Relaxed);
                    errands.call();
                }
                errands.end();
            })
        };
        run_beside([feed], go_around(&errands, &ring, &taken));
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        assert!(!errands.are_pending());
    });
}

#[test]
fn a_call_does_not_count_as_answered_before_all_was_taken_along() {
    model(|| {
        let errands = Arc::new(Errands::default());
        let (ring, taken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let feed: Deed = {
            let (errands, ring, taken) = (errands.clone(), ring.clone(), taken.clone());
            Box::new(move || {
                for n in 1..=2 {
                    ring.store(n, Ordering::Relaxed);
                    errands.call();
                    if !errands.are_pending() {
                        assert_eq!(taken.load(Ordering::Relaxed), n);
                    }
                }
                errands.end();
            })
        };
        run_beside([feed], go_around(&errands, &ring, &taken));
    });
}
