//! A limited number of bytes that several holders take and give back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes, first come, first served.
#[derive(Debug)]
pub(crate) struct Room {
    left: AtomicUsize,
}

/// The share of one holder. Its bytes are given back when it is dropped.
#[derive(Debug)]
pub(crate) struct RoomShare {
    room: Arc<Room>,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    /// A share without bytes.
    pub(crate) fn taker(self: &Arc<Self>) -> RoomShare {
        RoomShare { room: self.clone(), bytes: 0 }
    }
}

impl RoomShare {
    /// Takes this number of bytes more. False: there is no room for them.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let taken =
            self.room.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }
}

impl Drop for RoomShare {
    fn drop(&mut self) {
        self.room.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_taken_come_back() {
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
