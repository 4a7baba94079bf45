//! Order, bounds, closing and cancellation of the hand-over.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::model::{AsOf, SyncStatus, Update};

fn updates(first: usize, count: usize) -> SyncerEvent {
    let update = |n: usize| Update::deletion(n.to_string().into());
    SyncerEvent::Updates((first..first + count).map(update).collect())
}

const STATUS: SyncerEvent = SyncerEvent::Status(SyncStatus::InSync);

#[tokio::test]
async fn waiting_events_are_read_together_up_to_the_limit() {
    let (sender, mut receiver) = channel(100);
    for event in [updates(0, 3), STATUS, updates(3, 3), updates(6, 3)] {
        sender.send(event).await.expect("the reader is there");
    }
    let mut batch = Vec::new();
    assert_eq!(receiver.recv_batch(&mut batch, 5).await, 3);
    assert_eq!(batch, [updates(0, 3), STATUS, updates(3, 3)]);
    assert_eq!(receiver.recv_batch(&mut batch, 5).await, 1);
    assert_eq!(batch.len(), 4);
}

#[tokio::test]
async fn the_writer_waits_while_the_reader_is_too_far_behind() {
    let (sender, mut receiver) = channel(10);
    sender.send(updates(0, 8)).await.expect("the reader is there");
    let mut blocked = tokio_test_task(sender.send(updates(8, 3)));
    assert!(blocked.poll_once().await.is_none());
    let mut batch = Vec::new();
    assert_eq!(receiver.recv_batch(&mut batch, 1).await, 1);
    assert_eq!(blocked.poll_once().await, Some(Ok(())));
}

#[tokio::test]
async fn an_event_larger_than_the_capacity_gets_through_alone() {
    let (sender, mut receiver) = channel(10);
    let mut batch = Vec::new();
    sender.send(updates(0, 1000)).await.expect("the reader is there");
    let mut blocked = tokio_test_task(sender.send(STATUS));
    assert!(blocked.poll_once().await.is_none());
    assert_eq!(receiver.recv_batch(&mut batch, 1).await, 1);
    assert_eq!(blocked.poll_once().await, Some(Ok(())));
}

#[tokio::test]
async fn a_dropped_writer_ends_the_stream_after_its_last_event() {
    let (sender, mut receiver) = channel(10);
    sender.send(STATUS).await.expect("the reader is there");
    drop(sender);
    let mut batch = Vec::new();
    assert_eq!(receiver.recv_batch(&mut batch, 10).await, 1);
    assert_eq!(receiver.recv_batch(&mut batch, 10).await, 0);
}

#[tokio::test]
async fn a_dropped_reader_frees_a_waiting_writer() {
    let (sender, receiver) = channel(1);
    sender.send(STATUS).await.expect("the reader is there");
    let mut blocked = tokio_test_task(sender.send(STATUS));
    assert!(blocked.poll_once().await.is_none());
    drop(receiver);
    assert_eq!(blocked.poll_once().await, Some(Err(Closed)));
    sender.closed().await;
}

#[tokio::test]
async fn a_cancelled_send_leaves_nothing_behind() {
    let (sender, mut receiver) = channel(2);
    sender.send(updates(0, 1)).await.expect("the reader is there");
    {
        let mut blocked = tokio_test_task(sender.send(updates(1, 2)));
        assert!(blocked.poll_once().await.is_none());
    }
    sender.send(updates(3, 1)).await.expect("the cancelled call took no room with it");
    let mut batch = Vec::new();
    receiver.recv_batch(&mut batch, 10).await;
    assert_eq!(batch, [updates(0, 1), updates(3, 1)]);
}

/// A future that is polled by hand.
struct Polled<F>(std::pin::Pin<Box<F>>);

fn tokio_test_task<F: Future>(future: F) -> Polled<F> {
    Polled(Box::pin(future))
}

impl<F: Future> Polled<F> {
    async fn poll_once(&mut self) -> Option<F::Output> {
        std::future::poll_fn(|context| match self.0.as_mut().poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}

fn any_event() -> impl Strategy<Value = SyncerEvent> {
    let as_of = |n: u64| AsOf { revision: n.to_string().into(), at: SystemTime::UNIX_EPOCH + Duration::from_secs(n) };
    prop_oneof![
        (0_usize..1000, 0_usize..30).prop_map(|(first, count)| updates(first, count)),
        Just(STATUS),
        (0_u64..9).prop_map(move |n| SyncerEvent::Progress(as_of(n))),
    ]
}

proptest! {
    #[test]
    fn everything_arrives_once_and_in_order(
        sent in proptest::collection::vec(any_event(), 0..60),
        capacity in 1_usize..40,
        limit in 1_usize..40,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be built");
        let got = runtime.block_on(async {
            let (sender, mut receiver) = channel(capacity);
            let to_send = sent.clone();
            let writer = tokio::spawn(async move {
                for event in to_send {
                    sender.send(event).await.expect("the reader is there");
                }
            });
            let mut got = Vec::new();
            loop {
                let mut batch = Vec::new();
                if receiver.recv_batch(&mut batch, limit).await == 0 {
                    break;
                }
                let before_last: usize = batch[..batch.len() - 1].iter().map(weight).sum();
                assert!(before_last < limit, "a batch ends as soon as the limit is reached");
                got.extend(batch);
            }
            writer.await.expect("the writer does not panic");
            got
        });
        prop_assert_eq!(got, sent);
    }
}
