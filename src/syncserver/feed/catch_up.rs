//! The catch-up of clients that the ring has left behind, encoded once for all that stand at the same mark.
//!
//! Made of the difference of two maps (last values only) or of a [large publication](super::large) (its updates in
//! their order), read by the [`Outgoing`](super::super::client::outgoing::Outgoing) of these clients. After a restart all agents may be connected before the data comes, and be left behind together when it
//! comes faster than their network takes it.
//!
//! Invariants:
//! - the messages are the same for all readers, with the same boundaries;
//! - encoded messages are kept only while several clients read them, and only by a feed's newest catch-ups;
//! - no more than [`KEPT_BYTES`] of them are kept: a client that is farther behind the first one encodes for itself, which is
//!   no more work than it has room for in its socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::ring::Mark;
use crate::model::Update;
use crate::syncproto::format::{SeqRange, WireFormat};

/// Updates per message, as in a snapshot.
const MESSAGE_UPDATES: usize = 1000;

/// A message ends when its values pass this many bytes.
const MESSAGE_BYTES: usize = 256 << 10;

/// Most encoded bytes that a catch-up keeps: beyond the largest content of Calico, and a second's worth of a fast
/// network for clients that take a large publication together.
const KEPT_BYTES: usize = 64 << 20;

/// The position of a client in a catch-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CatchUpCursor {
    messages: usize,
    updates: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct CatchUp {
    after: u64,
    target: Arc<Mark>,
    updates: Box<[Arc<Update>]>,
    is_publication: bool,
    /// Encoded messages; `None`: given up.
    made: Mutex<Option<Made>>,
}

/// Encoded messages in a row, each with the position after it.
#[derive(Debug, Default)]
struct Made {
    /// Number of the first of them: earlier ones were dropped.
    first: usize,
    messages: VecDeque<(Bytes, CatchUpCursor)>,
    bytes: usize,
}

impl Made {
    fn get(&self, number: usize) -> Option<&(Bytes, CatchUpCursor)> {
        self.messages.get(number.checked_sub(self.first)?)
    }

    /// Keeps a message if it is the next one, and no more bytes than allowed. Returns those that it drops.
    fn keep(&mut self, number: usize, bytes: Bytes, next: CatchUpCursor) -> Vec<Bytes> {
        let mut dropped = Vec::new();
        if number != self.first + self.messages.len() {
            return dropped;
        }
        self.bytes += bytes.len();
        self.messages.push_back((bytes, next));
        while self.bytes > KEPT_BYTES
            && let Some((oldest, _)) = self.messages.pop_front()
        {
            self.first += 1;
            self.bytes -= oldest.len();
            dropped.push(oldest);
        }
        dropped
    }
}

impl CatchUp {
    /// These updates, last values only, lead from one mark to another.
    pub(crate) fn difference(from: &Mark, target: Arc<Mark>, updates: Vec<Arc<Update>>) -> Arc<Self> {
        Self::new(from, target, updates, false)
    }

    /// These updates are a large publication, which leads from one mark to the next.
    pub(crate) fn publication(from: &Mark, target: Arc<Mark>, updates: Vec<Arc<Update>>) -> Arc<Self> {
        Self::new(from, target, updates, true)
    }

    fn new(from: &Mark, target: Arc<Mark>, updates: Vec<Arc<Update>>, is_publication: bool) -> Arc<Self> {
        let made = Mutex::new(Some(Made::default()));
        Arc::new(Self { after: from.sequence, target, updates: updates.into(), is_publication, made })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Made>> {
        // One message is appended under this lock, or all are dropped, so a panic cannot leave half a change.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sequence number of the mark from which it leads.
    pub(crate) fn after(&self) -> u64 {
        self.after
    }

    /// The mark to which it leads.
    pub(crate) fn target(&self) -> &Arc<Mark> {
        &self.target
    }

    /// Whether it is a large publication, and not the difference of two maps.
    pub(crate) fn is_publication(&self) -> bool {
        self.is_publication
    }

    /// Number of updates.
    pub(crate) fn len(&self) -> usize {
        self.updates.len()
    }

    /// The message at a position, and the position after it; `None` at the end. Where messages are `numbered` there is
    /// at least one, which moves the client's mark even if nothing has changed.
    pub(crate) fn message(
        self: &Arc<Self>,
        cursor: CatchUpCursor,
        format: &dyn WireFormat,
        numbered: bool,
    ) -> Option<(Bytes, CatchUpCursor)> {
        if let Some(made) = &*self.lock()
            && let Some((bytes, next)) = made.get(cursor.messages)
        {
            return Some((bytes.clone(), *next));
        }
        let rest = &self.updates[cursor.updates..];
        if rest.is_empty() && (cursor.messages > 0 || !numbered) {
            return None;
        }
        let mut bytes = 0;
        let mut fits = |update: &Arc<Update>| {
            let fits = bytes < MESSAGE_BYTES;
            bytes += update.value.as_ref().map_or(0, |value| value.bytes.len());
            fits
        };
        let count = rest.iter().take(MESSAGE_UPDATES).take_while(|update| fits(update)).count();
        // The client's sequence number moves with the last message.
        let upto = if count == rest.len() { self.target.sequence } else { self.after };
        // Not under the lock: a second client that comes here meanwhile does the same work, a third one finds it done.
        let bytes = format.updates(SeqRange { after: self.after, upto }, &rest[..count]);
        let next = CatchUpCursor { messages: cursor.messages + 1, updates: cursor.updates + count };
        if Arc::strong_count(self) > 1 {
            let dropped = self.lock().as_mut().map(|made| made.keep(cursor.messages, bytes.clone(), next));
            drop(dropped);
        }
        Some((bytes, next))
    }

    /// There is a newer catch-up: drops the encoded messages. Clients that are not done encode the rest alone.
    pub(crate) fn give_up(&self) {
        let made = self.lock().take();
        drop(made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syncserver::tests::harness::{lone_feed, update};
    use crate::syncserver::wire::Wire;

    /// All messages from a position on.
    fn read(catch_up: &Arc<CatchUp>, mut cursor: CatchUpCursor, wire: Wire) -> Vec<Bytes> {
        let format = wire.format();
        std::iter::from_fn(|| {
            let (bytes, next) = catch_up.message(cursor, &*format, wire.is_numbered())?;
            cursor = next;
            Some(bytes)
        })
        .collect()
    }

    fn is_shared(left: &[Bytes], right: &[Bytes]) -> bool {
        assert_eq!(left, right);
        left.iter().zip(right).all(|(left, right)| left.as_ptr() == right.as_ptr())
    }

    #[tokio::test]
    async fn messages_encoded_for_one_client_are_shared_with_the_next() {
        let (_cache, lease) = lone_feed();
        let updates = (0..2500).map(|n| Arc::new(update(&format!("/k/{n}"), Some(b"v")))).collect();
        let catch_up = CatchUp::difference(&lease.head(), lease.head(), updates);
        let alone = read(&catch_up, CatchUpCursor::default(), Wire::GobPlain);
        assert_eq!(alone.len(), 3, "a thousand in each");
        assert!(catch_up.lock().as_ref().unwrap().messages.is_empty(), "nothing is kept for one");
        let other = catch_up.clone();
        let first = read(&other, CatchUpCursor::default(), Wire::GobPlain);
        assert!(!is_shared(&alone, &first));
        assert!(is_shared(&first, &read(&catch_up, CatchUpCursor::default(), Wire::GobPlain)));
        // Half-way through when a newer one comes.
        let (_, place) = catch_up.message(CatchUpCursor::default(), &*Wire::GobPlain.format(), false).unwrap();
        catch_up.give_up();
        let rest = read(&catch_up, place, Wire::GobPlain);
        assert!(!is_shared(&first[1..], &rest));
    }

    #[tokio::test]
    async fn an_empty_catch_up_has_a_message_only_if_messages_are_numbered() {
        let (_cache, lease) = lone_feed();
        let catch_up = CatchUp::difference(&lease.head(), lease.head(), Vec::new());
        let native = Wire::from(crate::syncproto::native::Compression::None);
        for (wire, messages) in [(Wire::GobPlain, 0), (Wire::GobSnappy, 0), (native, 1)] {
            assert_eq!(read(&catch_up, CatchUpCursor::default(), wire).len(), messages, "{wire:?}");
        }
    }

    #[tokio::test]
    async fn values_end_a_message_as_well() {
        let (_cache, lease) = lone_feed();
        let updates = (0..10).map(|n| Arc::new(update(&format!("/k/{n}"), Some(&vec![n; 100 << 10])))).collect();
        let catch_up = CatchUp::difference(&lease.head(), lease.head(), updates);
        let sizes: Vec<usize> =
            read(&catch_up, CatchUpCursor::default(), Wire::GobPlain).iter().map(Bytes::len).collect();
        assert_eq!(sizes.len(), 4, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 310 << 10), "{sizes:?}");
    }

    /// Two clients read the same updates, whose encoding is larger than may be kept.
    #[tokio::test]
    async fn no_more_than_a_bounded_number_of_bytes_is_kept_and_who_is_behind_encodes_alone() {
        const VALUE: usize = 1 << 20;
        let (_cache, lease) = lone_feed();
        let count = 2 * KEPT_BYTES / VALUE;
        let value = vec![b'v'; VALUE];
        let updates = (0..count).map(|n| Arc::new(update(&format!("/k/{n}"), Some(&value)))).collect();
        let catch_up = CatchUp::publication(&lease.head(), lease.head(), updates);
        let (_other, format) = (catch_up.clone(), Wire::GobPlain.format());
        let mut cursor = CatchUpCursor::default();
        let mut sums = Vec::new();
        while let Some((bytes, next)) = catch_up.message(cursor, &*format, false) {
            let again = catch_up.message(cursor, &*format, false).unwrap().0;
            assert_eq!(bytes.as_ptr(), again.as_ptr(), "it is shared with one that follows closely");
            assert!(catch_up.lock().as_ref().unwrap().bytes <= KEPT_BYTES);
            sums.push(crc32c::crc32c(&bytes));
            cursor = next;
        }
        assert_eq!(sums.len(), count);
        cursor = CatchUpCursor::default();
        for sum in sums {
            let (bytes, next) = catch_up.message(cursor, &*format, false).unwrap();
            assert_eq!(crc32c::crc32c(&bytes), sum, "the same messages");
            cursor = next;
        }
    }
}
