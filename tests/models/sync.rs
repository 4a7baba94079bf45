//! Loom's counterparts of the product's own `sync`.

use std::task::Waker;

use loom::sync::atomic::{AtomicBool, Ordering};

pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// A waker that may be exchanged and woken from any thread: loom's in place of `futures-util`'s.
#[derive(Debug)]
pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

impl AtomicWaker {
    pub(crate) fn new() -> Self {
        Self(loom::future::AtomicWaker::new())
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.0.register_by_ref(waker);
    }

    pub(crate) fn wake(&self) {
        self.0.wake();
    }
}

/// A cell that is set at most once: std's, whose content is visible only to a thread that sees the flag beside it.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    content: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> Self {
        Self { is_set: AtomicBool::new(false), content: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.content.get().filter(|_| self.is_set.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, content: T) -> Result<(), T> {
        self.content.set(content)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.content.take()
    }
}

/// The guarantees of tokio's `watch`, as simply as possible: each value has a number, and each receiver has the last seen
/// number.
pub(crate) mod watch {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::{Poll, Waker};

    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    struct Channel<T> {
        value: Mutex<T>,
        version: AtomicUsize,
        closed: AtomicBool,
        waiting: Mutex<Vec<Waker>>,
    }

    impl<T> Channel<T> {
        fn wake(&self) {
            let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    #[derive(Debug)]
    pub(crate) struct Sender<T>(Arc<Channel<T>>);

    #[derive(Debug)]
    pub(crate) struct Receiver<T> {
        channel: Arc<Channel<T>>,
        seen: usize,
    }

    impl<T> Clone for Receiver<T> {
        fn clone(&self) -> Self {
            Self { channel: self.channel.clone(), seen: self.seen }
        }
    }

    pub(crate) fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
        let channel = Arc::new(Channel {
            value: Mutex::new(value),
            version: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            waiting: Mutex::default(),
        });
        (Sender(channel.clone()), Receiver { channel, seen: 0 })
    }

    impl<T> Sender<T> {
        pub(crate) fn borrow(&self) -> MutexGuard<'_, T> {
            self.0.value.lock().unwrap()
        }

        pub(crate) fn send_replace(&self, value: T) -> T {
            let mut guard = self.borrow();
            let old = std::mem::replace(&mut *guard, value);
            self.0.version.fetch_add(1, Ordering::Release);
            drop(guard);
            self.0.wake();
            old
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.closed.store(true, Ordering::Release);
            self.0.wake();
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn borrow(&self) -> MutexGuard<'_, T> {
            self.channel.value.lock().unwrap()
        }

        pub(crate) fn borrow_and_update(&mut self) -> MutexGuard<'_, T> {
            let guard = self.channel.value.lock().unwrap();
            self.seen = self.channel.version.load(Ordering::Acquire);
            guard
        }

        pub(crate) fn has_changed(&self) -> bool {
            self.seen != self.channel.version.load(Ordering::Acquire)
        }

        pub(crate) fn mark_unchanged(&mut self) {
            self.seen = self.channel.version.load(Ordering::Acquire);
        }

        pub(crate) async fn changed(&mut self) -> Result<(), ()> {
            poll_fn(|cx| {
                self.channel.waiting.lock().unwrap().push(cx.waker().clone());
                // The end is read first: once it has come, the last value has come, too.
                let closed = self.channel.closed.load(Ordering::Acquire);
                let version = self.channel.version.load(Ordering::Acquire);
                if version != self.seen {
                    self.seen = version;
                    return Poll::Ready(Ok(()));
                }
                if closed { Poll::Ready(Err(())) } else { Poll::Pending }
            })
            .await
        }
    }
}
