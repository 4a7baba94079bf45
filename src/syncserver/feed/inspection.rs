//! Housekeeping of a feed at its clients: how many updates they lack, and whether any of them lags without a reason. No
//! I/O.
//!
//! A client that rests sleeps until a pump serves it or its task is woken. If a bug lost that wake-up, the client would
//! get nothing more, unnoticed, because it answers pings. So each second housekeeping checks all clients, and wakes
//! those that have waited since the last check without a reason. Such a bug delays an agent by two housekeepings at
//! most, and is counted.
//!
//! Reasons to wait are:
//! - the client's socket is full, or its task is at work on it;
//! - a pass is on its way to all clients;
//! - the runtimes are so busy that a task that was woken a housekeeping ago has not run: a [`Probe`] shows that.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::ring::Mark;

/// The standard of a check.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    /// The newest mark.
    pub(crate) head: &'a Mark,
    /// Every client that waits has a reason.
    pub(crate) excused: bool,
}

/// The findings at one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Updates that it lacks; 0 while its snapshot is on its way.
    pub(crate) lacks: u64,
    pub(crate) waits: Waits,
}

/// Whether there is something for a client, and nothing is about to send it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    #[default]
    No,
    /// Perhaps it is about to be sent.
    Suspected,
    /// It was so at the last check already, without a reason.
    Lost,
}

/// The findings at all clients of a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Updates that the slowest client lacks.
    pub(crate) most_lacked: u64,
    /// Clients and pumps that wait, perhaps with a reason.
    pub(crate) suspected: u64,
    /// Clients and pumps that were woken.
    pub(crate) woken: u64,
    /// The longest time for which a pump has not finished a pass.
    pub(crate) stuck_for: Duration,
}

impl Inspection {
    pub(crate) fn count(&mut self, waits: Waits) {
        self.suspected += u64::from(waits != Waits::No);
        self.woken += u64::from(waits == Waits::Lost);
    }
}

/// Whether a client waited at the last check and, if so, whether its task had been nudged by then.
#[derive(Debug, Default)]
pub(crate) struct Suspicion(Option<bool>);

impl Suspicion {
    /// It was served, or its task was at work on it.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// Housekeeping checks the client. If the answer is [`Waits::Lost`], nudge it.
    pub(crate) fn look(&mut self, waits: bool, nudged: bool, excused: bool) -> Waits {
        if !waits {
            self.clear();
            return Waits::No;
        }
        // A nudge since the last check is on its way.
        let same = self.0.replace(nudged) == Some(nudged);
        if !same || excused {
            return Waits::Suspected;
        }
        self.0 = Some(true);
        Waits::Lost
    }
}

/// Shows whether woken tasks run in time: tasks that do nothing, spawned at one housekeeping, should have run by the
/// next.
#[derive(Debug, Default)]
pub(crate) struct Probe(Vec<JoinHandle<()>>);

impl Probe {
    /// Whether a task that was spawned has not run.
    pub(crate) fn is_late(&self) -> bool {
        self.0.iter().any(|probe| !probe.is_finished())
    }

    /// Spawns the tasks again, unless one has not run yet.
    pub(crate) fn send<'a>(&mut self, runtimes: impl IntoIterator<Item = &'a Handle>) {
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
    fn only_a_client_that_waits_at_two_checks_without_a_reason_is_lost() {
        /// Whether the client waits, was nudged, is excused.
        type Look = (bool, bool, bool);
        // Checks in a row, and the finding of each.
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
