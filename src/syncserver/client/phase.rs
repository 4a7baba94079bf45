//! The phase of one client's stream. The source of the next bytes, the answers that the client owes, and the state that
//! status shows all follow from it. No I/O, no clock.
//!
//! ```text
//!  AwaitingAck ─acknowledged─► Ready ─begun─► Snapshot ─queued─► SnapshotQueued ─written─► Following ◄─caught up─┐
//!                                                                                             └──forgotten──► CatchUp
//!  any phase ─ended─► Closing
//! ```
//!
//! A healthy client that is busy with a large snapshot may not answer for long. So until the snapshot is written it
//! only has to take bytes, and not too slowly on [average](super::average). From then on it owes answers to pings.

use std::sync::Arc;

use super::super::feed::catch_up::{CatchUp, CatchUpCursor};
use super::super::feed::snapshot::{Snapshot, SnapshotCursor};
use crate::outlet::status::ClientState;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nothing may be sent before the client has acknowledged the decoder restart.
    AwaitingAck,
    /// The snapshot begins as soon as the answer to the hello is written.
    Ready,
    /// Pieces of a shared snapshot are sent.
    Snapshot { snapshot: Arc<Snapshot>, cursor: SnapshotCursor },
    /// The whole snapshot is queued, but not yet written.
    SnapshotQueued,
    /// Segments of the feed's ring are sent.
    Following,
    /// The ring does not lead on from the client's position: a large publication is sent, or the difference to a newer
    /// map, last values only.
    CatchUp { catch_up: Arc<CatchUp>, cursor: CatchUpCursor },
    /// Only a goodbye is sent any more.
    Closing,
}

/// An event that leads from one phase to the next.
#[derive(Debug)]
pub(crate) enum Event {
    Acknowledged,
    Begun(Arc<Snapshot>),
    Queued,
    Written,
    Forgotten(Arc<CatchUp>),
    CaughtUp,
    Ended,
}

/// An answer that a client owes within the pong time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Ack,
    Pong,
}

/// The obligations of a client in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Obligations {
    pub(crate) answer: Option<Answer>,
    /// It has to take bytes at the lowest average rate.
    pub(crate) lowest_rate: bool,
}

impl Phase {
    /// The phase after the hello.
    pub(crate) fn first(needs_ack: bool) -> Self {
        if needs_ack { Self::AwaitingAck } else { Self::Ready }
    }

    /// Goes on to the next phase. Returns false for an event that means nothing in the present phase.
    pub(crate) fn on(&mut self, event: Event) -> bool {
        *self = match (&*self, event) {
            (Self::AwaitingAck, Event::Acknowledged) => Self::Ready,
            (Self::Ready, Event::Begun(snapshot)) => Self::Snapshot { snapshot, cursor: SnapshotCursor::default() },
            (Self::Snapshot { .. }, Event::Queued) => Self::SnapshotQueued,
            (Self::SnapshotQueued, Event::Written) | (Self::CatchUp { .. }, Event::CaughtUp) => Self::Following,
            (Self::Following, Event::Forgotten(catch_up)) => {
                Self::CatchUp { catch_up, cursor: CatchUpCursor::default() }
            }
            (_, Event::Ended) => Self::Closing,
            _ => return false,
        };
        true
    }

    /// Whether the snapshot has begun.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self, Self::AwaitingAck | Self::Ready)
    }

    /// Whether the client's next bytes come from the ring, once all that is queued is written.
    pub(crate) fn is_on_ring(&self) -> bool {
        matches!(self, Self::SnapshotQueued | Self::Following)
    }

    pub(crate) fn obligations(&self) -> Obligations {
        let answer = match self {
            Self::AwaitingAck => Some(Answer::Ack),
            Self::Following | Self::CatchUp { .. } => Some(Answer::Pong),
            Self::Ready | Self::Snapshot { .. } | Self::SnapshotQueued | Self::Closing => None,
        };
        let lowest_rate = matches!(self, Self::Snapshot { .. } | Self::SnapshotQueued | Self::CatchUp { .. });
        Obligations { answer, lowest_rate }
    }

    /// The state that status shows.
    pub(crate) fn shown(&self) -> ClientState {
        match self {
            Self::AwaitingAck | Self::Ready => ClientState::AwaitingAck,
            Self::Snapshot { .. } | Self::SnapshotQueued => ClientState::Snapshot,
            Self::Following => ClientState::Following,
            Self::CatchUp { .. } => ClientState::CatchUp,
            Self::Closing => ClientState::Closing,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::syncserver::tests::harness::lone_feed;

    #[tokio::test]
    async fn one_event_leads_on_from_each_phase_and_all_else_follows_from_the_phase() {
        use ClientState::{AwaitingAck, CatchUp, Closing, Following, Snapshot};
        let (_cache, feed) = lone_feed();
        let (snapshot, head) = (feed.snapshot(Instant::now()), feed.head());
        let catch_up = feed.catch_up(&head, head.clone(), 0);
        let event = |n| match n {
            0 => Event::Acknowledged,
            1 => Event::Begun(snapshot.clone()),
            2 => Event::Queued,
            3 => Event::Written,
            4 => Event::Forgotten(catch_up.clone()),
            _ => Event::CaughtUp,
        };
        let (ack, pong) = (Some(Answer::Ack), Some(Answer::Pong));
        // State shown, answer owed, lowest rate, has begun, is on the ring; and the event that leads on.
        let table = [
            (AwaitingAck, ack, false, false, false, 0),
            (AwaitingAck, None, false, false, false, 1),
            (Snapshot, None, true, true, false, 2),
            (Snapshot, None, true, true, true, 3),
            (Following, pong, false, true, true, 4),
            (CatchUp, pong, true, true, false, 5),
            (Following, pong, false, true, true, 4),
        ];
        let found = |phase: &Phase, leads_on: i32| {
            let Obligations { answer, lowest_rate } = phase.obligations();
            (phase.shown(), answer, lowest_rate, phase.has_begun(), phase.is_on_ring(), leads_on)
        };
        for rows in 1..=table.len() {
            let mut phase = Phase::first(true);
            for (n, row) in table[..rows].iter().enumerate() {
                assert_eq!(found(&phase, row.5), *row);
                assert!((0..=5).filter(|n| *n != row.5).all(|n| !phase.on(event(n))), "{row:?}");
                assert!(phase.on(if n + 1 == rows { Event::Ended } else { event(row.5) }), "{row:?}");
            }
            assert_eq!(found(&phase, 0), (Closing, None, false, true, false, 0));
        }
    }
}
