//! What clients are sent that the ring has left behind: last values only, encoded once for all that fell out at the same place.
//!
//! Fed by the difference of two maps, feeds the [senders](super::sender) of these clients. After a restart all agents may be
//! here before the data, and fall out together when it comes faster than their network takes it.
//!
//! Invariants:
//! - the messages are the same for all readers, and cut at the same places;
//! - what was encoded is kept while several clients read it, and by a feed's newest catch-up only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::ring::Mark;
use crate::model::Update;
use crate::syncproto::format::{SeqRange, WireFormat};

/// Updates per message, as in a snapshot.
const MESSAGE_UPDATES: usize = 1000;

/// A message ends when its values pass this many bytes.
const MESSAGE_BYTES: usize = 256 << 10;

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    messages: usize,
    updates: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct CatchUp {
    after: u64,
    target: Arc<Mark>,
    updates: Box<[Arc<Update>]>,
    /// The first messages, with where the next one begins; `None`: given up.
    made: Mutex<Option<Vec<(Bytes, Place)>>>,
}

impl CatchUp {
    /// These updates lead from the place with this sequence number to `target`.
    pub(super) fn new(after: u64, target: Arc<Mark>, updates: Vec<Arc<Update>>) -> Arc<Self> {
        Arc::new(Self { after, target, updates: updates.into(), made: Mutex::new(Some(Vec::new())) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<(Bytes, Place)>>> {
        // One message is appended under this lock, or all are dropped, so a panic cannot leave half of anything.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sequence number of the place that it leads away from.
    pub(super) fn after(&self) -> u64 {
        self.after
    }

    /// The place that it leads to.
    pub(super) fn target(&self) -> &Arc<Mark> {
        &self.target
    }

    /// How many updates there are.
    pub(super) fn len(&self) -> usize {
        self.updates.len()
    }

    /// The message at a place, and where the next one begins; `None` at the end. Where messages are `numbered` there is one at
    /// least, which moves the client's position even if nothing has changed.
    pub(super) fn message(
        self: &Arc<Self>,
        place: Place,
        format: &dyn WireFormat,
        numbered: bool,
    ) -> Option<(Bytes, Place)> {
        if let Some(made) = &*self.lock()
            && let Some((bytes, next)) = made.get(place.messages)
        {
            return Some((bytes.clone(), *next));
        }
        let rest = &self.updates[place.updates..];
        if rest.is_empty() && (place.messages > 0 || !numbered) {
            return None;
        }
        let mut bytes = 0;
        let mut fits = |update: &Arc<Update>| {
            let fits = bytes < MESSAGE_BYTES;
            bytes += update.value.as_ref().map_or(0, |value| value.bytes.len());
            fits
        };
        let count = rest.iter().take(MESSAGE_UPDATES).take_while(|update| fits(update)).count();
        // The position moves with the last message.
        let upto = if count == rest.len() { self.target.sequence } else { self.after };
        // Not under the lock: a second client that comes here meanwhile does the same, a third one finds it.
        let bytes = format.updates(SeqRange { after: self.after, upto }, &rest[..count]);
        let next = Place { messages: place.messages + 1, updates: place.updates + count };
        if Arc::strong_count(self) > 1
            && let Some(made) = &mut *self.lock()
            && made.len() == place.messages
        {
            made.push((bytes.clone(), next));
        }
        Some((bytes, next))
    }

    /// There is a newer one: forgets what was encoded. Whoever is not done encodes the rest alone.
    pub(super) fn give_up(&self) {
        let made = self.lock().take();
        drop(made);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::harness::{lone_feed, update};
    use super::super::wire::Wire;
    use super::*;

    /// All messages from a place on.
    fn read(catch_up: &Arc<CatchUp>, mut place: Place, wire: Wire) -> Vec<Bytes> {
        let format = wire.format();
        std::iter::from_fn(|| {
            let (bytes, next) = catch_up.message(place, &*format, wire.is_numbered())?;
            place = next;
            Some(bytes)
        })
        .collect()
    }

    fn is_shared(left: &[Bytes], right: &[Bytes]) -> bool {
        assert_eq!(left, right);
        left.iter().zip(right).all(|(left, right)| left.as_ptr() == right.as_ptr())
    }

    #[tokio::test]
    async fn what_one_client_has_had_encoded_the_next_one_gets() {
        let (_cache, lease) = lone_feed();
        let updates = (0..2500).map(|n| Arc::new(update(&format!("/k/{n}"), Some(b"v")))).collect();
        let catch_up = CatchUp::new(7, lease.head(), updates);
        let alone = read(&catch_up, Place::default(), Wire::GobPlain);
        assert_eq!(alone.len(), 3, "a thousand in each");
        assert!(catch_up.lock().as_ref().unwrap().is_empty(), "nothing is kept for one");
        let other = catch_up.clone();
        let first = read(&other, Place::default(), Wire::GobPlain);
        assert!(!is_shared(&alone, &first));
        assert!(is_shared(&first, &read(&catch_up, Place::default(), Wire::GobPlain)));
        // Half-way through when a newer one comes.
        let (_, place) = catch_up.message(Place::default(), &*Wire::GobPlain.format(), false).unwrap();
        catch_up.give_up();
        let rest = read(&catch_up, place, Wire::GobPlain);
        assert!(!is_shared(&first[1..], &rest));
    }

    #[tokio::test]
    async fn nothing_is_said_where_nothing_changed_unless_messages_are_numbered() {
        let (_cache, lease) = lone_feed();
        let catch_up = CatchUp::new(7, lease.head(), Vec::new());
        let native = Wire::from(crate::syncproto::native::Compression::None);
        for (wire, messages) in [(Wire::GobPlain, 0), (Wire::GobSnappy, 0), (native, 1)] {
            assert_eq!(read(&catch_up, Place::default(), wire).len(), messages, "{wire:?}");
        }
    }

    #[tokio::test]
    async fn values_end_a_message_as_well() {
        let (_cache, lease) = lone_feed();
        let updates = (0..10).map(|n| Arc::new(update(&format!("/k/{n}"), Some(&vec![n; 100 << 10])))).collect();
        let catch_up = CatchUp::new(7, lease.head(), updates);
        let sizes: Vec<usize> = read(&catch_up, Place::default(), Wire::GobPlain).iter().map(Bytes::len).collect();
        assert_eq!(sizes.len(), 4, "{sizes:?}");
        assert!(sizes.iter().all(|size| *size < 310 << 10), "{sizes:?}");
    }
}
