//! Decides what the watch of a kind does next. No I/O, no clock.
//!
//! ```text
//!            ┌────────────── Relist, Lost, joined ──────────────┐
//!            ▼                                                  │
//!  start ► List ── pages … ── list ended ──► Watch(revision) ───┤
//!            ▲                                 ▲   │ ended      │
//!            │                                 └───┴────────────┤
//!          Pause ◄── Retry / Forbidden / KindAbsent, with what to do after it ◄┘
//! ```

use std::time::Duration;

use tokio::time::Instant;

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
/// How often to look again for one of Calico's own kinds: its definition is probably just being installed. Calico's figure.
pub(super) const ABSENT_PAUSE_CALICO: Duration = Duration::from_secs(5);
/// How often to look again for a third party's kind. Calico waits 30 minutes, which is felt when the kind is installed.
pub(super) const ABSENT_PAUSE_OTHERS: Duration = Duration::from_secs(60);
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
}

/// The meaning of a failure to subscribers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing to tell; trying goes on.
    Continue,
    /// The kind is absent.
    Absent,
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

/// The state of one kind's watch. See the module's picture.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    absent_pause: Duration,
    backoff: Backoff,
    forbidden: Backoff,
    /// Beginning of the failures in a row.
    failing_since: Option<Instant>,
    failures: u32,
    /// Positions lost since a watch last delivered something.
    relists: u32,
    lost: bool,
}

impl Machine {
    /// A machine that begins with a list.
    pub(super) fn new(is_calico: bool, seed: u64) -> Self {
        Self {
            state: State::Listing { has_page: false },
            absent_pause: if is_calico { ABSENT_PAUSE_CALICO } else { ABSENT_PAUSE_OTHERS },
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE, seed),
            forbidden: Backoff::new(FORBIDDEN_PAUSES.0, FORBIDDEN_PAUSES.1, seed),
            failing_since: None,
            failures: 0,
            relists: 0,
            lost: false,
        }
    }

    /// The next thing to do.
    pub(super) fn step(&self) -> Step {
        match &self.state {
            State::Listing { .. } => Step::List,
            State::Watching { from, .. } => Step::Watch(from.clone()),
            State::Paused { until, .. } => Step::Pause(*until),
        }
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

    /// Listing or watching failed.
    pub(super) fn failed(&mut self, now: Instant, error: &Error) -> Verdict {
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
            Error::KindAbsent { .. } => {
                self.went_well();
                self.state = State::Paused { until: now + self.absent_pause, then: Then::List };
                return Verdict::Absent;
            }
        };
        let is_relist = matches!(error, Error::Relist { .. });
        if !is_relist || self.relists > 0 {
            self.failures = self.failures.saturating_add(1);
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

    /// Listing is not permitted, and nobody misses the kind: it is looked for again slowly.
    pub(super) fn spared(&mut self, now: Instant) {
        (self.failing_since, self.failures, self.lost) = (None, 0, false);
        self.state = State::Paused { until: now + self.forbidden.next_delay(), then: Then::List };
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
        self.forbidden.reset();
    }
}

fn watching(from: Revision) -> State {
    State::Watching { from, opened: None, delivered: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::no_revision;

    fn retry() -> Error {
        Error::Retry { doing: "list pods".to_owned(), reason: "connection refused".to_owned() }
    }

    fn relist() -> Error {
        Error::Relist { doing: "watch pods".to_owned(), revision: no_revision(), reason: "compacted".to_owned() }
    }

    fn absent() -> Error {
        Error::KindAbsent { kind: "v1/Pod".to_owned(), gone: false }
    }

    fn forbidden() -> Error {
        Error::Forbidden { doing: "list pods".to_owned(), reason: "no list on pods".to_owned() }
    }

    /// A machine whose list is done and whose watch is open, and the moment of that.
    fn in_watch(revision: &str) -> (Machine, Instant) {
        let now = Instant::now();
        let mut machine = Machine::new(true, 1);
        assert_eq!(machine.step(), Step::List);
        assert!(machine.page_arrived());
        assert!(!machine.page_arrived());
        machine.list_ended(revision.into());
        assert_eq!(machine.step(), Step::Watch(revision.into()));
        machine.watch_opened(now);
        (machine, now)
    }

    fn pause(machine: &mut Machine, now: Instant) -> Duration {
        let Step::Pause(until) = machine.step() else { panic!("a pause is due, not {:?}", machine.step()) };
        machine.pause_over();
        until - now
    }

    #[test]
    fn a_watch_that_ends_is_reopened_where_it_was_without_a_list() {
        let (mut machine, now) = in_watch("10");
        machine.batch_arrived("12".into());
        machine.watch_ended(now);
        assert_eq!(machine.step(), Step::Watch("12".into()));
    }

    #[test]
    fn a_watch_that_ends_at_once_and_empty_is_reopened_after_a_pause() {
        let (mut machine, now) = in_watch("10");
        machine.watch_ended(now);
        assert!(pause(&mut machine, now) > Duration::ZERO);
        assert_eq!(machine.step(), Step::Watch("10".into()));
    }

    #[test]
    fn a_failed_watch_continues_at_the_last_revision_after_growing_pauses() {
        let (mut machine, now) = in_watch("10");
        machine.batch_arrived("11".into());
        let mut longest = Duration::ZERO;
        for failure in 1..=20 {
            assert_eq!(machine.failed(now, &retry()), Verdict::Continue);
            assert_eq!(machine.failures(), failure);
            longest = longest.max(pause(&mut machine, now));
            assert_eq!(machine.step(), Step::Watch("11".into()));
        }
        assert!(longest > LONGEST_PAUSE / 2 && longest <= LONGEST_PAUSE);
    }

    #[test]
    fn a_lost_position_is_listed_again_at_once_but_not_in_a_tight_loop() {
        let (mut machine, now) = in_watch("10");
        machine.batch_arrived("11".into());
        assert_eq!(machine.failed(now, &relist()), Verdict::Continue);
        assert_eq!(pause(&mut machine, now), Duration::ZERO);
        assert_eq!(machine.step(), Step::List);
        // The list works, the watch from it does not: pauses from now on.
        machine.page_arrived();
        machine.list_ended("20".into());
        machine.watch_opened(now);
        assert_eq!(machine.failed(now, &relist()), Verdict::Continue);
        assert!(pause(&mut machine, now) > Duration::ZERO);
        assert_eq!(machine.step(), Step::List);
        // Once a watch has worked, the next time is the normal course of things again.
        machine.page_arrived();
        machine.list_ended("30".into());
        machine.watch_opened(now);
        machine.batch_arrived("31".into());
        assert_eq!(machine.failed(now, &relist()), Verdict::Continue);
        assert_eq!(pause(&mut machine, now), Duration::ZERO);
    }

    #[test]
    fn an_absent_kind_is_looked_for_again_and_is_no_failure() {
        let now = Instant::now();
        for (is_calico, due) in [(true, ABSENT_PAUSE_CALICO), (false, ABSENT_PAUSE_OTHERS)] {
            let mut machine = Machine::new(is_calico, 1);
            assert_eq!(machine.failed(now, &absent()), Verdict::Absent);
            assert_eq!(machine.failures(), 0);
            assert_eq!(pause(&mut machine, now), due);
            assert_eq!(machine.step(), Step::List);
        }
    }

    #[test]
    fn forbidden_is_retried_slowly() {
        let now = Instant::now();
        let mut machine = Machine::new(true, 1);
        for _ in 0..10 {
            machine.failed(now, &forbidden());
            let pause = pause(&mut machine, now);
            assert!((FORBIDDEN_PAUSES.0 / 2..=FORBIDDEN_PAUSES.1).contains(&pause), "{pause:?}");
        }
    }

    #[test]
    fn failures_in_a_row_for_long_are_told_once_and_end_in_a_list() {
        let (mut machine, start) = in_watch("10");
        machine.failed(start, &retry());
        assert_eq!(machine.failed(start + LOST_AFTER - Duration::from_secs(1), &retry()), Verdict::Continue);
        let later = start + LOST_AFTER;
        assert_eq!(machine.failed(later, &retry()), Verdict::Lost);
        assert_eq!(machine.failed(later, &retry()), Verdict::Continue);
        machine.pause_over();
        assert_eq!(machine.step(), Step::List);
        // It answers, and fails again before the list is whole: lost again.
        assert!(machine.page_arrived());
        assert_eq!(machine.failed(later, &retry()), Verdict::Lost);
        machine.pause_over();
        machine.page_arrived();
        machine.list_ended("30".into());
        assert_eq!(machine.failed(later, &retry()), Verdict::Continue);
    }

    #[test]
    fn a_watch_that_was_quiet_for_long_was_in_order() {
        let (mut machine, start) = in_watch("10");
        machine.failed(start, &retry());
        machine.pause_over();
        machine.watch_opened(start);
        // Nothing changed for hours; the connection breaks. That is the first failure, not the end of a long row.
        assert_eq!(machine.failed(start + 10 * LOST_AFTER, &retry()), Verdict::Continue);
        assert_eq!(machine.failures(), 1);
    }

    #[test]
    fn whoever_joins_gets_a_list() {
        let (mut machine, _) = in_watch("10");
        machine.joined();
        assert_eq!(machine.step(), Step::List);
    }
}
