//! The catch-up of clients that the ring has left behind: last values only, encoded once for all that stand at the same
//! mark.
//!
//! Made of the difference of two maps, read by the [`Outgoing`](super::super::client::outgoing::Outgoing) of these
//! clients. After a restart all agents may be connected before the data comes, and be left behind together when it
//! comes faster than their network takes it.
//!
//! Invariants:
//! - the messages are the same for all readers, with the same boundaries;
//! - encoded messages are kept only while several clients read them, and only by a feed's newest catch-up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::ring::Mark;
use crate::model::Update;
use crate::syncproto::format::{SeqRange, WireFormat};

/// Updates per message, as in a snapshot.
const MESSAGE_UPDATES: usize = 1000;

/// A message ends when its values pass this many bytes.
const MESSAGE_BYTES: usize = 256 << 10;

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
    /// The first messages, each with the position after it; `None`: given up.
    made: Mutex<Option<Vec<(Bytes, CatchUpCursor)>>>,
}

impl CatchUp {
    /// These updates lead from the mark with the sequence number `after` to `target`.
    pub(crate) fn new(after: u64, target: Arc<Mark>, updates: Vec<Arc<Update>>) -> Arc<Self> {
        Arc::new(Self { after, target, updates: updates.into(), made: Mutex::new(Some(Vec::new())) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<(Bytes, CatchUpCursor)>>> {
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
        if Arc::strong_count(self) > 1
            && let Some(made) = &mut *self.lock()
            && made.len() == cursor.messages
        {
            made.push((bytes.clone(), next));
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
        let catch_up = CatchUp::new(7, lease.head(), updates);
        let alone = read(&catch_up, CatchUpCursor::default(), Wire::GobPlain);
        assert_eq!(alone.len(), 3, "a thousand in each");
        assert!(catch_up.lock().as_ref().unwrap().is_empty(), "nothing is kept for one");
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
        let catch_up = CatchUp::new(7, lease.head(), Vec::new());
        let native = Wire::from(crate::syncproto::native::Compression::None);
        for (wire, messages) in [(Wire::GobPlain, 0), (Wire::GobSnappy, 0), (native, 1)] {
            assert_eq!(read(&catch_up, CatchUpCursor::default(), wire).len(), messages, "{wire:?}");
        }
    }

    #[tokio::test]
    async fn values_end_a_message_as_well() {
        let (_cache, lease) = lone_feed();
        let updates = (0..10).map(|n| Arc::new(update(&format!("/k/{n}"), Some(&vec![n; 100 << 10])))).collect();
        let catch_up = CatchUp::new(7, lease.head(), updates);
        let sizes: Vec<usize> =
            read(&catch_up, CatchUpCursor::default(), Wire::GobPlain).iter().map(Bytes::len).collect();
        assert_eq!(sizes.len(), 4, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 310 << 10), "{sizes:?}");
    }
}
