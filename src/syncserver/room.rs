//! Room for bytes that several may take from, and give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes, shared out first come, first served.
#[derive(Debug)]
pub(super) struct Room {
    left: AtomicUsize,
}

/// The share of one holder. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    /// Takes nothing yet.
    pub(super) fn taker(self: &Arc<Self>) -> Taken {
        Taken { room: self.clone(), bytes: 0 }
    }
}

impl Taken {
    /// Takes this number of bytes more. False: there is no room for them.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken =
            self.room.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let room = Room::new(100);
        let (mut one, mut other) = (room.taker(), room.taker());
        assert!(one.take(60) && other.take(30));
        assert!(!other.take(11));
        assert!(other.take(10));
        drop(one);
        assert!(other.take(60) && !other.take(1));
        drop(other);
        assert!(room.taker().take(100));
    }
}
