//! The bounded queue between the threads that log and the thread that writes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntCounter;

use super::format::Line;

/// Lines that may wait for a destination, as in Typha: enough for a burst, and a few MiB at most.
const CAPACITY: usize = 100;

/// A bounded queue of lines with many writers and one reader.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Notified when a line came.
    filled: Condvar,
    /// Notified when a line was taken or written.
    drained: Condvar,
    dropped: IntCounter,
}

#[derive(Debug, Default)]
struct QueueState {
    lines: VecDeque<Line>,
    /// True while the reader has a line that is not written yet.
    writing: bool,
    /// Number of lines dropped since a line was last taken.
    dropped: u64,
    /// True if writers wait for room instead of dropping lines.
    waiting: bool,
}

impl Queue {
    /// An empty queue. `dropped` counts the lines that it drops.
    pub(super) fn new(dropped: IntCounter) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), drained: Condvar::new(), dropped }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing in this file panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether a full queue makes writers wait.
    pub(super) fn set_waiting(&self, waiting: bool) {
        self.lock().waiting = waiting;
    }

    /// Adds a line. If the queue is full, waits or drops the line.
    pub(super) fn push(&self, line: Line) {
        let mut state = self.lock();
        while state.lines.len() >= CAPACITY {
            if !state.waiting {
                state.dropped += 1;
                self.dropped.inc();
                return;
            }
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.lines.push_back(line);
        drop(state);
        self.filled.notify_one();
    }

    /// Waits for a line. Returns it with the number of lines dropped before it. The line taken before counts as written now.
    pub(super) fn take(&self) -> (Line, u64) {
        let mut state = self.lock();
        state.writing = false;
        self.drained.notify_all();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.writing = true;
                let dropped = std::mem::take(&mut state.dropped);
                drop(state);
                self.drained.notify_all();
                return (line, dropped);
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until everything is written, at most for `timeout`.
    pub(super) fn wait_until_written(&self, timeout: Duration) {
        let busy = |state: &mut QueueState| state.writing || !state.lines.is_empty();
        let _ = self.drained.wait_timeout_while(self.lock(), timeout, busy);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::config::Severity;

    fn line(number: usize) -> Line {
        Line { severity: Severity::Info, text: number.to_string().into() }
    }

    #[test]
    fn a_full_queue_drops_counts_and_tells() {
        let dropped = IntCounter::new("dropped", "Help.").unwrap();
        let queue = Queue::new(dropped.clone());
        for number in 0..CAPACITY + 7 {
            queue.push(line(number));
        }
        assert_eq!(dropped.get(), 7);
        assert_eq!(queue.take(), (line(0), 7));
        assert_eq!(queue.take(), (line(1), 0));
    }

    #[test]
    fn a_writer_may_wait_for_room() {
        let dropped = IntCounter::new("dropped", "Help.").unwrap();
        let queue = Arc::new(Queue::new(dropped.clone()));
        queue.set_waiting(true);
        let writer = queue.clone();
        let thread = std::thread::spawn(move || (0..3 * CAPACITY).for_each(|number| writer.push(line(number))));
        for number in 0..3 * CAPACITY {
            assert_eq!(queue.take(), (line(number), 0));
        }
        thread.join().unwrap();
        assert_eq!(dropped.get(), 0);
    }

    #[test]
    fn waiting_for_the_end_ends_when_all_is_written_or_time_is_up() {
        let queue = Queue::new(IntCounter::new("dropped", "Help.").unwrap());
        let waited = |most: Duration| {
            let began = Instant::now();
            queue.wait_until_written(most);
            began.elapsed()
        };
        assert!(waited(Duration::from_secs(60)) < Duration::from_secs(10), "nothing is left to write");
        queue.push(line(1));
        assert!(waited(Duration::from_millis(20)) >= Duration::from_millis(20), "nobody writes");
    }
}
