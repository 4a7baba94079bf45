//! A snapshot is read while it is still being made.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use loom::sync::Mutex;

use crate::calls::{Call, Calls};
use crate::made::{Awaits, Made};
use crate::sync::watch;
use crate::{Deed, model, run_beside};

#[derive(Debug)]
struct Reader {
    id: u64,
    calls: Calls,
}

impl Awaits for Reader {
    fn id(&self) -> u64 {
        self.id
    }

    fn nudge(&self) {
        self.calls.nudge();
    }
}

impl Reader {
    fn new(id: u64) -> Arc<Self> {
        Arc::new(Self { id, calls: Calls::new() })
    }

    /// Reads everything, two pieces in the end, as a connection's task does.
    async fn read(self: &Arc<Self>, made: &Made<usize, Self>) {
        let mut reading = Reading::default();
        poll_fn(|cx| {
            loop {
                // Twice, as when a message of the client comes.
                for _ in 0..2 {
                    reading.refill(|has| made.look_for(self, |made| (has < *made).then_some(())).is_some());
                }
                if reading.has == 2 {
                    return Poll::Ready(());
                }
                if self.calls.poll_call(cx) != Poll::Ready(Call::Look) {
                    return Poll::Pending;
                }
                reading.dry = false;
            }
        })
        .await
    }
}

#[derive(Default)]
struct Reading {
    has: usize,
    /// The last read found nothing more.
    dry: bool,
}

impl Reading {
    /// Reads all pieces made so far.
    fn refill(&mut self, has_more: impl Fn(usize) -> bool) {
        while !self.dry {
            if has_more(self.has) {
                self.has += 1;
            } else {
                self.dry = true;
            }
        }
    }
}

#[test]
fn a_reader_gets_every_piece() {
    model(|| {
        let (made, reader) = (Arc::new(Made::new(0)), Reader::new(1));
        let producer: Deed = {
            let made = made.clone();
            Box::new(move || {
                for _ in 0..2 {
                    made.progress(|made| *made += 1);
                }
            })
        };
        run_beside([producer], reader.read(&made));
        assert_eq!(made.see(|made| *made), 2);
    });
}

/// The old code: progress was a counter. Progress between two looks at it counted as seen, though the task had not
/// looked for pieces after that.
struct OldReader {
    reading: Reading,
    progress: watch::Receiver<usize>,
}

impl OldReader {
    fn refill(&mut self, made: &Mutex<usize>) {
        self.reading.dry &= !self.progress.has_changed();
        self.progress.mark_unchanged();
        self.reading.refill(|has| has < *made.lock().unwrap());
    }
}

#[test]
#[should_panic(expected = "the task rests, and no thread is left to wake it")]
fn the_old_counter_lost_progress_between_two_looks() {
    model(|| {
        let made = Arc::new(Mutex::new(0));
        let (ticks, progress) = watch::channel(0);
        let ticks = Arc::new(ticks);
        let mut reader = OldReader { reading: Reading::default(), progress };
        let producer: Deed = {
            let (made, ticks) = (made.clone(), ticks.clone());
            Box::new(move || {
                for tick in 1..=2 {
                    *made.lock().unwrap() += 1;
                    ticks.send_replace(tick);
                }
            })
        };
        run_beside(
            [producer],
            poll_fn(|cx| {
                loop {
                    for _ in 0..2 {
                        reader.refill(&made);
                    }
                    if reader.reading.has == 2 {
                        return Poll::Ready(());
                    }
                    let mut progress = reader.progress.clone();
                    if pin!(progress.changed()).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }),
        );
    });
}
