//! A connection's task is nudged and ordered to end from several threads, while its handshake ends.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use loom::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::calls::{Call, Calls, Order};
use crate::sync::AtomicWaker;
use crate::{Deed, model, run_beside};

fn nudge(calls: &Arc<Calls>) -> Deed {
    let calls = calls.clone();
    Box::new(move || calls.nudge())
}

fn order(calls: &Arc<Calls>, order: Order) -> Deed {
    let calls = calls.clone();
    Box::new(move || calls.order(order))
}

#[test]
fn a_nudged_task_sees_the_work_before_the_nudge() {
    model(|| {
        let calls = Arc::new(Calls::new());
        calls.establish();
        let brought = Arc::new(AtomicUsize::new(0));
        let bring = || {
            let (calls, brought) = (calls.clone(), brought.clone());
            Box::new(move || {
                brought.fetch_add(1, Ordering::Relaxed);
                calls.nudge();
            })
        };
        let deeds: [Deed; 2] = [bring(), bring()];
        run_beside(deeds, async {
            let mut seen = 0;
            while seen < 2 {
                assert_eq!(poll_fn(|cx| calls.poll_call(cx)).await, Call::Look);
                seen = brought.load(Ordering::Relaxed);
            }
        });
    });
}

#[test]
fn an_order_gets_through_beside_a_nudge() {
    model(|| {
        let calls = Arc::new(Calls::new());
        calls.establish();
        run_beside([nudge(&calls), order(&calls, Order::Drain)], async {
            while poll_fn(|cx| calls.poll_call(cx)).await != Call::End(Order::Drain) {}
        });
    });
}

#[test]
fn of_two_orders_one_counts() {
    model(|| {
        let calls = Arc::new(Calls::new());
        run_beside([order(&calls, Order::Drain), order(&calls, Order::Stop)], async {
            let first = poll_fn(|cx| calls.poll_order(cx)).await;
            calls.establish();
            assert_eq!(poll_fn(|cx| calls.poll_call(cx)).await, Call::End(first));
        });
    });
}

#[test]
fn an_eviction_that_is_withdrawn_takes_no_other_order_with_it() {
    model(|| {
        let calls = Arc::new(Calls::new());
        run_beside([order(&calls, Order::Evict), order(&calls, Order::Stop)], async {
            while poll_fn(|cx| calls.poll_order(cx)).await == Order::Evict {
                calls.withdraw_eviction();
            }
        });
    });
}

#[test]
fn an_eviction_at_the_end_of_the_handshake_cuts_no_client() {
    model(|| {
        let calls = Arc::new(Calls::new());
        run_beside([order(&calls, Order::Evict), nudge(&calls)], async {
            calls.establish();
            assert_eq!(poll_fn(|cx| calls.poll_call(cx)).await, Call::Look);
        });
    });
}

/// The old code: a streaming client withdrew an eviction each time before it looked for an order.
struct OldCalls {
    order: AtomicU8,
    waker: AtomicWaker,
}

impl OldCalls {
    fn poll_call(&self, cx: &Context<'_>) -> Poll<u8> {
        let _ = self.order.compare_exchange(Order::Evict as u8, 0, Ordering::AcqRel, Ordering::Acquire);
        self.waker.register(cx.waker());
        match self.order.load(Ordering::Acquire) {
            0 => Poll::Pending,
            order => Poll::Ready(order),
        }
    }
}

#[test]
#[should_panic(expected = "a client that streams was evicted")]
fn the_old_eviction_cut_a_client_that_streams() {
    model(|| {
        let calls = Arc::new(OldCalls { order: AtomicU8::new(0), waker: AtomicWaker::new() });
        let evict: Deed = {
            let calls = calls.clone();
            // The client was in its handshake a moment ago.
            Box::new(move || {
                calls.order.store(Order::Evict as u8, Ordering::Release);
                calls.waker.wake();
            })
        };
        let polled = crate::settle_beside([evict], poll_fn(|cx| calls.poll_call(cx)));
        assert!(polled.is_none(), "a client that streams was evicted");
    });
}
