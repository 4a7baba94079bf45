//! The hand-over between two stages: bounded by the number of updates, in order, with batches for the reader.
//!
//! Fed by a stage (watcher syncer, validation), feeds the next one (validation, snapshot cache). The writer waits while the
//! reader is behind by more than the capacity, which is how a slow stage slows the datastore instead of filling memory.
//!
//! Invariants:
//! - order is kept; in particular a status never overtakes the updates before it, nor is it overtaken by those after it;
//! - at most `capacity` updates (plus one oversized event) are under way;
//! - dropping one end closes the other: the reader still gets what was sent before, the writer learns at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::demand::Demand;
use crate::model::SyncerEvent;

/// Most updates in one event. Calico's figure.
pub const MAX_BATCH: usize = 1000;
/// Updates that may lie between two stages: some batches of the syncer, so that neither side waits for the other's
/// rhythm. At about 1 KiB an update this is 16 MiB at worst, during a start.
pub const DEFAULT_CAPACITY: usize = 16_000;

/// The other end is gone; nothing more can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the next stage has stopped")]
pub struct Closed;

#[derive(Debug)]
struct Parcel {
    event: SyncerEvent,
    /// Gives room back to the writer when the reader takes the event.
    _room: OwnedSemaphorePermit,
}

/// The writing end.
#[derive(Clone, Debug)]
pub struct Sender {
    parcels: mpsc::Sender<Parcel>,
    room: Arc<Semaphore>,
    capacity: u32,
    demand: Demand,
}

/// The reading end.
#[derive(Debug)]
pub struct Receiver {
    parcels: mpsc::Receiver<Parcel>,
    room: Arc<Semaphore>,
}

/// A hand-over for up to `capacity` updates (at least 1). A status or a progress mark counts as one update.
#[must_use]
pub fn channel(capacity: usize) -> (Sender, Receiver) {
    let capacity = u32::try_from(capacity.max(1))
        .unwrap_or(u32::MAX)
        .min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
    let room = Arc::new(Semaphore::new(capacity as usize));
    // Every event holds at least one permit, so an event that has its permits finds room in the queue.
    let (sender, receiver) = mpsc::channel(capacity as usize);
    let demand = Demand::default();
    (Sender { parcels: sender, room: room.clone(), capacity, demand }, Receiver { parcels: receiver, room })
}

/// Weight of an event against a capacity or a batch limit: its updates, at least 1.
#[must_use]
pub fn weight(event: &SyncerEvent) -> usize {
    match event {
        SyncerEvent::Updates(updates) => updates.len().max(1),
        SyncerEvent::Status(_) | SyncerEvent::Progress(_) => 1,
    }
}

impl Sender {
    /// The same writing end, for readers with this demand.
    #[must_use]
    pub fn for_demand(self, demand: Demand) -> Self {
        Self { demand, ..self }
    }

    /// When the readers' consumers can use a change.
    #[must_use]
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// Hands an event over, waiting for room. An event larger than the whole capacity waits until everything else is taken.
    ///
    /// # Errors
    /// When the reader is gone.
    ///
    /// # Cancel safety
    /// Cancel safe in that nothing is handed over twice or in part; a cancelled call has handed over nothing.
    pub async fn send(&self, event: SyncerEvent) -> Result<(), Closed> {
        let permits = u32::try_from(weight(&event)).unwrap_or(u32::MAX).min(self.capacity);
        let room = self.room.clone().acquire_many_owned(permits).await.map_err(|_| Closed)?;
        self.parcels.send(Parcel { event, _room: room }).await.map_err(|_| Closed)
    }

    /// Waits until the reader is gone.
    pub async fn closed(&self) {
        self.parcels.closed().await;
    }
}

impl Receiver {
    /// Waits for at least one event, then appends the others that have come to `batch`, until `max_updates` are reached
    /// (the last event may exceed it). Returns the number of events; 0 means that the writer is gone and all was read.
    ///
    /// # Cancel safety
    /// Cancel safe: a cancelled call has taken nothing.
    pub async fn recv_batch(&mut self, batch: &mut Vec<SyncerEvent>, max_updates: usize) -> usize {
        let Some(first) = self.parcels.recv().await else { return 0 };
        let mut taken = 1;
        let mut updates = weight(&first.event);
        batch.push(first.event);
        while updates < max_updates
            && let Ok(next) = self.parcels.try_recv()
        {
            updates += weight(&next.event);
            taken += 1;
            batch.push(next.event);
        }
        taken
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A writer that waits for room must learn that there will be none.
        self.room.close();
    }
}

#[cfg(test)]
mod tests;
