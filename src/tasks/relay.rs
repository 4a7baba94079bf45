//! Several futures in one task that hand work to each other.
//!
//! Stages that are tasks of their own cost a trip through the scheduler for every hand-over, and after several in a row
//! the scheduler wakes a further thread, mostly for nothing. Where changes come one by one that is a good part of the
//! cost of a change. Legs of a relay are one task: a leg that the one before it wakes runs next, on the same thread.
//!
//! ```text
//!          wake from outside ─► task ─► poll ─► legs that were woken, in order ─┐
//!                                         ▲                                     │ a leg was woken meanwhile
//!                                         └─────────────────────────────────────┘
//! ```
//!
//! Invariants: only legs that were woken are polled; a wake is never lost, whichever thread it comes from; a leg that wakes
//! another one does not wake the task; a relay lets go of its thread when the runtime's budget for one run is used up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use tokio::task::coop;

use super::bells::{Bell, Bells};

/// See the module's documentation.
pub struct Relay {
    legs: Vec<Leg>,
    ends_with_last: bool,
    bells: Arc<Bells>,
}

struct Leg {
    future: Option<BoxFuture<'static, ()>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let running = self.legs.iter().filter(|leg| leg.future.is_some()).count();
        f.debug_struct("Relay").field("legs", &self.legs.len()).field("running", &running).finish_non_exhaustive()
    }
}

impl Relay {
    /// Runs futures until all have ended. Those that feed others come before them.
    #[must_use]
    pub fn new(legs: impl IntoIterator<Item = BoxFuture<'static, ()>>) -> Self {
        let bells = Bells::new();
        let leg = |future| {
            let bell = Arc::new(bells.bell());
            Leg { future: Some(future), waker: bell.clone().into(), bell }
        };
        Self { legs: legs.into_iter().map(leg).collect(), ends_with_last: false, bells }
    }

    /// Ends with the last of the futures; the others are dropped.
    #[must_use]
    pub fn until_last_ends(self) -> Self {
        Self { ends_with_last: true, ..self }
    }

    /// Polls the legs that were woken, in order.
    fn round(&mut self) {
        for leg in &mut self.legs {
            if let Some(future) = &mut leg.future
                && leg.bell.has_rung()
                && future.as_mut().poll(&mut Context::from_waker(&leg.waker)).is_ready()
            {
                leg.future = None;
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.legs.last() {
            Some(last) if self.ends_with_last => last.future.is_none(),
            _ => self.legs.iter().all(|leg| leg.future.is_none()),
        }
    }
}

impl Future for Relay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let bells = self.bells.clone();
        let round = || {
            self.round();
            self.is_over()
        };
        bells.run(context.waker(), round, coop::has_budget_remaining)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::mpsc;

    use super::super::bells::MOST_ROUNDS;
    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Passes numbers on until there are no more.
    async fn pass_on(mut from: mpsc::Receiver<u32>, to: mpsc::Sender<u32>) {
        while let Some(number) = from.recv().await {
            if to.send(number).await.is_err() {
                return;
            }
        }
    }

    /// A relay of some legs, its inlet and its outlet.
    fn chain(legs: usize) -> (Relay, mpsc::Sender<u32>, mpsc::Receiver<u32>) {
        let (inlet, mut from) = mpsc::channel(1);
        let mut futures = Vec::new();
        for _ in 0..legs {
            let (to, next) = mpsc::channel(1);
            futures.push(pass_on(std::mem::replace(&mut from, next), to).boxed());
        }
        (Relay::new(futures), inlet, from)
    }

    #[test]
    fn a_number_goes_through_all_legs_in_one_run_and_wakes_the_task_once() {
        let (mut relay, inlet, mut outlet) = chain(5);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut run = || Pin::new(&mut relay).poll(&mut Context::from_waker(&waker));
        assert!(run().is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "nothing has happened");
        for number in 1..=3 {
            inlet.try_send(number).expect("there is room");
            assert_eq!(wakes.0.load(Ordering::SeqCst), number as usize);
            assert!(run().is_pending());
            assert_eq!(outlet.try_recv(), Ok(number));
            assert_eq!(wakes.0.load(Ordering::SeqCst), number as usize, "legs wake each other, not the task");
        }
        drop(inlet);
        assert!(run().is_ready(), "the end goes through all legs, too");
        assert!(outlet.try_recv().is_err());
    }

    #[test]
    fn only_legs_that_were_woken_are_polled() {
        let polls: Arc<[AtomicUsize; 3]> = Arc::default();
        let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let leg = |n: usize| {
            let (polls, wakers) = (polls.clone(), wakers.clone());
            poll_fn(move |context| {
                polls[n].fetch_add(1, Ordering::SeqCst);
                wakers.lock().expect("not poisoned").push(context.waker().clone());
                Poll::Pending
            })
            .boxed()
        };
        let mut relay = Relay::new((0..3).map(leg));
        let mut run = || Pin::new(&mut relay).poll(&mut Context::from_waker(Waker::noop()));
        assert!(run().is_pending());
        assert!(run().is_pending());
        let waker = wakers.lock().expect("not poisoned")[1].clone();
        waker.wake();
        assert!(run().is_pending());
        let polls: Vec<usize> = polls.iter().map(|polls| polls.load(Ordering::SeqCst)).collect();
        assert_eq!(polls, [1, 2, 1]);
    }

    #[test]
    fn legs_that_never_rest_let_go_of_the_thread_and_go_on_later() {
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = polls.clone();
        let restless = poll_fn(move |context| {
            counted.fetch_add(1, Ordering::SeqCst);
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let mut relay = Relay::new([restless.boxed()]);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        for run in 1..=3 {
            assert!(Pin::new(&mut relay).poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(polls.load(Ordering::SeqCst), run * MOST_ROUNDS);
            assert_eq!(wakes.0.load(Ordering::SeqCst), run, "the task is to come back");
        }
    }

    #[tokio::test]
    async fn the_runtimes_budget_is_kept() {
        // Both can always go on: without a budget other tasks would never run.
        let (to, mut from) = mpsc::channel::<u32>(1);
        let writer = async move { while to.send(1).await.is_ok() {} };
        let reader = async move { while from.recv().await.is_some() {} };
        let relay = tokio::spawn(Relay::new([writer.boxed(), reader.boxed()]));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        relay.abort();
        assert!(relay.await.expect_err("it was aborted").is_cancelled());
    }

    #[tokio::test]
    async fn a_relay_can_end_with_its_last_leg_and_holds_an_empty_one() {
        Relay::new([]).await;
        let forever = std::future::pending().boxed();
        Relay::new([forever, async {}.boxed()]).until_last_ends().await;
    }

    /// Wakes come from several threads while legs run on others: everything gets through, in order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_wake_is_lost_between_threads() {
        const NUMBERS: u32 = 20_000;
        let chains = (0..4).map(|_| {
            let (relay, inlet, mut outlet) = chain(4);
            let relay = tokio::spawn(Relay::new([relay.boxed()]));
            let writer = tokio::spawn(async move {
                for number in 0..NUMBERS {
                    inlet.send(number).await.expect("the relay runs");
                    if number % 7 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
            let reader = tokio::spawn(async move {
                for number in 0..NUMBERS {
                    assert_eq!(outlet.recv().await, Some(number));
                }
                assert_eq!(outlet.recv().await, None);
            });
            async move {
                for task in [relay, writer, reader] {
                    task.await.expect("it does not panic");
                }
            }
        });
        futures_util::future::join_all(chains).await;
    }
}
