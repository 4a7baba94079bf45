//! Decides what the watch of a kind does next, and in which phase it is. No I/O, no clock.

use std::time::Duration;

use tokio::time::Instant;

use super::status::Phase;
use crate::datastore::Error;
use crate::datastore::backoff::Backoff;
use crate::model::Revision;

/// Failures in a row for this long: subscribers are told that the datastore is lost. Calico's figure.
pub const LOST_AFTER: Duration = Duration::from_secs(600);
/// First pause after a failure. Calico waits 500 ms between any two attempts and 1 s after a list, failures or not; here only
/// failures cost a pause, and the first one is short because most failures are restarts of something.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause after failures: how late the return of a datastore may be noticed.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// First and longest pause when listing or watching is not permitted: somebody has to change a role first.
pub(super) const FORBIDDEN_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// A watch that stayed open for this long was in order, even if nothing changed. Longer than any connect time-out of a
/// datastore, so that a connection which never came about does not count.
pub(super) const WATCH_SETTLED: Duration = Duration::from_secs(120);
/// A watch that ends sooner than this without having delivered anything is reopened after a pause, not at once.
pub(super) const WATCH_TOO_SHORT: Duration = Duration::from_secs(1);

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Read the whole list.
    List,
    /// Watch from this revision.
    Watch(Revision),
    /// Wait until then, call [`Machine::pause_over`] and ask again.
    Pause(Instant),
    /// The same, for a kind that is absent: wait until it may have arrived, or until then where the datastore cannot tell.
    AwaitArrival(Instant),
}

/// The meaning of a failure to subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to tell; trying goes on.
    Continue,
    /// The kind counts as absent.
    Absent {
        /// It did not before.
        is_news: bool,
        /// Its objects are gone, and subscribers may hold some.
        emptied: bool,
    },
    /// The datastore counts as lost from now on.
    Lost,
}

#[derive(Clone, Debug)]
enum State {
    Listing { has_page: bool },
    Watching { from: Revision, opened: Option<Instant>, delivered: bool },
    Paused { until: Instant, then: Then },
}

#[derive(Clone, Debug)]
enum Then {
    List,
    Watch(Revision),
}

/// Whether the kind is there: so it is until a page arrives or another answer comes, whatever fails meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// As far as is known.
    There,
    /// The datastore does not know it.
    Absent,
    /// It is not permitted, counts as absent, and is not missed.
    Spared,
}

/// The state of one kind's watch.
///
/// ```text
///             ┌───────── position gone, lost, joined ───────────┐
///             ▼                                                 │
///  start ► Listing ── pages … ── list ended ──► Watching(from) ─┤
///             ▲                                   ▲   │ ended   │ failed, or ended at once and empty
///             │                                   └───┘         │
///          Paused, with what follows it ◄───────────────────────┘ ◄── Listing failed
///
///  phase: something fails                      Retrying, and Lost once it has for LOST_AFTER
///         else, the kind is absent or spared   Absent, until a page arrives
///         else                                 Listing or Watching, by the state
/// ```
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    standing: Standing,
    /// Subscribers may hold objects: something was listed, and they were not told since that all of it is gone.
    may_hold: bool,
    absent_pause: Duration,
    backoff: Backoff,
    forbidden: Backoff,
    /// Beginning of the failures in a row.
    failing_since: Option<Instant>,
    failures: u32,
    /// Positions lost since a watch last delivered something.
    relists: u32,
    lost: bool,
    /// Why the phase is no good one, in words.
    trouble: Option<String>,
}

impl Machine {
    /// A machine that begins with a list. An absent kind is looked for again after `absent_pause`.
    pub(super) fn new(absent_pause: Duration, seed: u64) -> Self {
        Self {
            state: State::Listing { has_page: false },
            standing: Standing::There,
            may_hold: false,
            absent_pause,
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed),
            forbidden: Backoff::new(FORBIDDEN_PAUSES.0, FORBIDDEN_PAUSES.1, seed),
            failing_since: None,
            failures: 0,
            relists: 0,
            lost: false,
            trouble: None,
        }
    }

    /// The next thing to do.
    pub(super) fn step(&self) -> Step {
        match &self.state {
            State::Listing { .. } => Step::List,
            State::Watching { from, .. } => Step::Watch(from.clone()),
            State::Paused { until, .. } if self.failures == 0 && self.standing == Standing::Absent => {
                Step::AwaitArrival(*until)
            }
            State::Paused { until, .. } => Step::Pause(*until),
        }
    }

    /// The phase to publish.
    pub(super) fn phase(&self) -> Phase {
        match (&self.state, self.standing) {
            _ if self.failures > 0 && self.lost => Phase::Lost,
            _ if self.failures > 0 => Phase::Retrying,
            (_, Standing::Absent | Standing::Spared) => Phase::Absent,
            (State::Listing { .. } | State::Paused { then: Then::List, .. }, Standing::There) => Phase::Listing,
            (State::Watching { .. } | State::Paused { then: Then::Watch(_), .. }, Standing::There) => Phase::Watching,
        }
    }

    /// Why the phase is no good one, in words, to publish with it.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Failures since something last went well. A single lost position is none: it is the normal course of things.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// A pause is over.
    pub(super) fn pause_over(&mut self) {
        if let State::Paused { then, .. } = &self.state {
            self.state = match then {
                Then::List => State::Listing { has_page: false },
                Then::Watch(from) => watching(from.clone()),
            };
        }
    }

    /// A page of the list arrived; true if it is the list's first.
    pub(super) fn page_arrived(&mut self) -> bool {
        // The datastore answers, but only a whole list ends the failures in a row.
        self.lost = false;
        self.may_hold = true;
        self.standing = Standing::There;
        if self.failures == 0 {
            self.trouble = None;
        }
        match &mut self.state {
            State::Listing { has_page } => !std::mem::replace(has_page, true),
            State::Watching { .. } | State::Paused { .. } => false,
        }
    }

    /// The list is complete.
    pub(super) fn list_ended(&mut self, revision: Revision) {
        self.went_well();
        self.state = watching(revision);
    }

    /// A watch was opened.
    pub(super) fn watch_opened(&mut self, now: Instant) {
        if let State::Watching { opened, .. } = &mut self.state {
            *opened = Some(now);
        }
    }

    /// The watch delivered something and stands at this revision now.
    pub(super) fn batch_arrived(&mut self, revision: Revision) {
        self.watch_was_good();
        if let State::Watching { from, delivered, .. } = &mut self.state {
            *from = revision;
            *delivered = true;
        }
    }

    /// The watch ended in an orderly way: it is reopened where it was, at once unless it was very short.
    pub(super) fn watch_ended(&mut self, now: Instant) {
        let State::Watching { from, opened, delivered } = &self.state else { return };
        let too_short = !delivered && opened.is_some_and(|opened| now - opened < WATCH_TOO_SHORT);
        let from = from.clone();
        if too_short {
            let until = now + self.backoff.next_delay();
            self.state = State::Paused { until, then: Then::Watch(from) };
        } else {
            self.watch_was_good();
            self.state = watching(from);
        }
    }

    /// A subscriber joined that has seen nothing yet: everything is listed again.
    pub(super) fn joined(&mut self) {
        self.state = State::Listing { has_page: false };
    }

    /// Listing or watching failed. `spared` says why nobody misses the kind where it is not permitted; objects that were there
    /// once are missed all the same.
    pub(super) fn failed(&mut self, now: Instant, error: &Error, spared: Option<&str>) -> Verdict {
        if let (Error::Forbidden { .. }, false, Some(why)) = (error, self.may_hold, spared) {
            (self.failing_since, self.failures, self.lost) = (None, 0, false);
            self.state = State::Paused { until: now + self.forbidden.next_delay(), then: Then::List };
            self.trouble = Some(format!("not permitted, and counts as absent: {why}"));
            let before = std::mem::replace(&mut self.standing, Standing::Spared);
            return Verdict::Absent { is_news: before != Standing::Spared, emptied: false };
        }
        let settled =
            matches!(&self.state, State::Watching { opened: Some(opened), .. } if now - *opened >= WATCH_SETTLED);
        if settled {
            self.watch_was_good();
        }
        let again = match &self.state {
            State::Watching { from, .. } | State::Paused { then: Then::Watch(from), .. } => Then::Watch(from.clone()),
            State::Listing { .. } | State::Paused { then: Then::List, .. } => Then::List,
        };
        let (pause, then) = match error {
            Error::Retry { .. } => (self.backoff.next_delay(), again),
            // The first one is the normal course of things; if it comes again and again, the pauses grow.
            Error::Relist { .. } if self.relists == 0 => (Duration::ZERO, Then::List),
            Error::Relist { .. } => (self.backoff.next_delay(), Then::List),
            Error::Forbidden { .. } => (self.forbidden.next_delay(), again),
            Error::KindAbsent { gone, .. } => {
                self.went_well();
                self.state = State::Paused { until: now + self.absent_pause, then: Then::List };
                let before = std::mem::replace(&mut self.standing, Standing::Absent);
                let emptied = *gone && std::mem::take(&mut self.may_hold);
                return Verdict::Absent { is_news: before == Standing::There, emptied };
            }
        };
        let is_relist = matches!(error, Error::Relist { .. });
        if !is_relist || self.relists > 0 {
            self.failures = self.failures.saturating_add(1);
            self.trouble = Some(error.to_string());
        }
        self.relists = self.relists.saturating_add(u32::from(is_relist));
        let since = *self.failing_since.get_or_insert(now);
        let lost_now = !self.lost && now - since >= LOST_AFTER;
        self.lost |= lost_now;
        // After so long nobody knows what was missed: begin with a list.
        let then = if self.lost { Then::List } else { then };
        self.state = State::Paused { until: now + pause, then };
        if lost_now { Verdict::Lost } else { Verdict::Continue }
    }

    fn watch_was_good(&mut self) {
        self.went_well();
        self.backoff.reset();
        self.relists = 0;
    }

    fn went_well(&mut self) {
        self.failing_since = None;
        self.failures = 0;
        self.lost = false;
        self.trouble = None;
        self.forbidden.reset();
    }
}

fn watching(from: Revision) -> State {
    State::Watching { from, opened: None, delivered: false }
}

#[cfg(test)]
mod tests;
