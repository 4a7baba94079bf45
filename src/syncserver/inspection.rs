//! The findings of a feed's housekeeping at its clients: how much they lack, and whether any of them lags without a reason. No I/O.
//!
//! A client that rests sleeps until a pump serves it or somebody wakes its task. Should that be lost, by a bug, it would be given
//! nothing more and nobody would see it: it answers pings. So each second housekeeping looks in at everybody, and wakes those
//! that have waited since the last time though nothing kept them. Such a bug costs an agent two housekeepings at most, and is
//! counted.
//!
//! There is a reason to wait while
//! - the client's socket is full, or its task is at work on it;
//! - a pass is on its way to all clients;
//! - the runtimes are so busy that a task that was woken a housekeeping ago has not run: a [`Probe`] tells.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::ring::Mark;

/// The measure that housekeeping applies.
#[derive(Debug)]
pub(super) struct Check<'a> {
    /// The newest place.
    pub(super) head: &'a Mark,
    /// Every client that waits has a reason.
    pub(super) excused: bool,
}

/// The findings at one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Updates that it lacks; none while its snapshot is on its way.
    pub(super) lacks: u64,
    pub(super) waits: Waits,
}

/// Whether there is something for a client that nobody is about to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    #[default]
    No,
    /// Perhaps it is just about to be sent.
    Suspected,
    /// It was so the last time already, without a reason.
    Lost,
}

/// The findings at all clients of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Inspection {
    /// Updates that the client that is farthest behind lacks.
    pub(super) most_lacked: u64,
    /// Clients and pumps that wait, perhaps with a reason.
    pub(super) suspected: u64,
    /// Clients and pumps that were woken.
    pub(super) woken: u64,
    /// For how long the pump that is longest at it has not come back from its clients.
    pub(super) stuck_for: Duration,
}

impl Inspection {
    pub(super) fn count(&mut self, waits: Waits) {
        self.suspected += u64::from(waits != Waits::No);
        self.woken += u64::from(waits == Waits::Lost);
    }
}

/// Remembers of a client from one look to the next that it waits, and whether its task had been nudged by then.
#[derive(Debug, Default)]
pub(super) struct Suspicion(Option<bool>);

impl Suspicion {
    /// It was served, or its task was at work on it.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Housekeeping looks. If the answer is [`Waits::Lost`], it is to be nudged.
    pub(super) fn look(&mut self, waits: bool, nudged: bool, excused: bool) -> Waits {
        if !waits {
            self.clear();
            return Waits::No;
        }
        // A nudge that came since is on its way.
        let same = self.0.replace(nudged) == Some(nudged);
        if !same || excused {
            return Waits::Suspected;
        }
        self.0 = Some(true);
        Waits::Lost
    }
}

/// Tells whether tasks that are woken run in time: tasks that do nothing, sent out with one housekeeping, should have run by the
/// next.
#[derive(Debug, Default)]
pub(super) struct Probe(Vec<JoinHandle<()>>);

impl Probe {
    /// Whether a task that was sent out has not come back.
    pub(super) fn is_late(&self) -> bool {
        self.0.iter().any(|probe| !probe.is_finished())
    }

    /// Sends out anew, unless something is still out.
    pub(super) fn send<'a>(&mut self, runtimes: impl IntoIterator<Item = &'a Handle>) {
        if !self.is_late() {
            self.0 = runtimes.into_iter().map(|runtime| runtime.spawn(async {})).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Waits::{Lost, No, Suspected};
    use super::*;

    #[test]
    fn only_who_waits_twice_in_the_same_way_without_a_reason_is_lost() {
        /// Whether it waits, was nudged, is excused.
        type Look = (bool, bool, bool);
        // One look after the other, and the finding of each.
        let cases: [(&[Look], &[Waits]); 6] = [
            (&[(false, false, false), (true, false, false), (false, false, false)], &[No, Suspected, No]),
            (&[(true, false, false), (true, false, false), (true, true, false)], &[Suspected, Lost, Lost]),
            (&[(true, false, false), (true, true, false), (true, true, false)], &[Suspected, Suspected, Lost]),
            (&[(true, true, false), (true, true, true), (true, true, false)], &[Suspected, Suspected, Lost]),
            (&[(true, false, true), (false, false, true), (true, false, true)], &[Suspected, No, Suspected]),
            (&[(true, true, false), (true, true, false)], &[Suspected, Lost]),
        ];
        for (looks, expected) in cases {
            let mut suspicion = Suspicion::default();
            let found: Vec<Waits> = looks.iter().map(|(w, n, e)| suspicion.look(*w, *n, *e)).collect();
            assert_eq!(found, expected, "{looks:?}");
        }
        let mut suspicion = Suspicion::default();
        suspicion.look(true, false, false);
        suspicion.clear();
        assert_eq!(suspicion.look(true, false, false), Suspected, "it was served in between");
    }

    #[tokio::test]
    async fn a_probe_is_late_until_its_task_has_run() {
        let mut probe = Probe::default();
        assert!(!probe.is_late());
        probe.send([&Handle::current()]);
        assert!(probe.is_late());
        tokio::task::yield_now().await;
        assert!(!probe.is_late());
    }
}
