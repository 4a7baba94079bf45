//! The machine by itself: steps, verdicts and phases as tables.

use super::*;
use crate::model::no_revision;

const ABSENT_PAUSE: Duration = Duration::from_secs(7);

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
    let mut machine = Machine::new(ABSENT_PAUSE, 1);
    assert_eq!(machine.step(), Step::List);
    assert!(machine.page_arrived());
    assert!(!machine.page_arrived());
    machine.list_ended(revision.into());
    assert_eq!(machine.step(), Step::Watch(revision.into()));
    machine.watch_opened(now);
    (machine, now)
}

fn pause(machine: &mut Machine, now: Instant) -> Duration {
    let (Step::Pause(until) | Step::AwaitArrival(until)) = machine.step() else {
        panic!("a pause is due, not {:?}", machine.step())
    };
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
        assert_eq!(machine.failed(now, &retry(), None), Verdict::Continue);
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
    assert_eq!(machine.failed(now, &relist(), None), Verdict::Continue);
    assert_eq!(pause(&mut machine, now), Duration::ZERO);
    assert_eq!(machine.step(), Step::List);
    // The list works, the watch from it does not: pauses from now on.
    machine.page_arrived();
    machine.list_ended("20".into());
    machine.watch_opened(now);
    assert_eq!(machine.failed(now, &relist(), None), Verdict::Continue);
    assert!(pause(&mut machine, now) > Duration::ZERO);
    assert_eq!(machine.step(), Step::List);
    // Once a watch has worked, the next time is the normal course of things again.
    machine.page_arrived();
    machine.list_ended("30".into());
    machine.watch_opened(now);
    machine.batch_arrived("31".into());
    assert_eq!(machine.failed(now, &relist(), None), Verdict::Continue);
    assert_eq!(pause(&mut machine, now), Duration::ZERO);
}

#[test]
fn an_absent_kind_is_looked_for_again_and_is_no_failure() {
    let now = Instant::now();
    let mut machine = Machine::new(ABSENT_PAUSE, 1);
    assert_eq!(machine.failed(now, &absent(), None), Verdict::Absent { is_news: true, emptied: false });
    assert_eq!(machine.failures(), 0);
    assert_eq!(pause(&mut machine, now), ABSENT_PAUSE);
    assert_eq!(machine.step(), Step::List);
}

#[test]
fn forbidden_is_retried_slowly() {
    let now = Instant::now();
    let mut machine = Machine::new(ABSENT_PAUSE, 1);
    for _ in 0..10 {
        machine.failed(now, &forbidden(), None);
        let pause = pause(&mut machine, now);
        assert!((FORBIDDEN_PAUSES.0 / 2..=FORBIDDEN_PAUSES.1).contains(&pause), "{pause:?}");
    }
}

#[test]
fn failures_in_a_row_for_long_are_told_once_and_end_in_a_list() {
    let (mut machine, start) = in_watch("10");
    machine.failed(start, &retry(), None);
    assert_eq!(machine.failed(start + LOST_AFTER - Duration::from_secs(1), &retry(), None), Verdict::Continue);
    let later = start + LOST_AFTER;
    assert_eq!(machine.failed(later, &retry(), None), Verdict::Lost);
    assert_eq!(machine.failed(later, &retry(), None), Verdict::Continue);
    machine.pause_over();
    assert_eq!(machine.step(), Step::List);
    // It answers, and fails again before the list is whole: lost again.
    assert!(machine.page_arrived());
    assert_eq!(machine.failed(later, &retry(), None), Verdict::Lost);
    machine.pause_over();
    machine.page_arrived();
    machine.list_ended("30".into());
    assert_eq!(machine.failed(later, &retry(), None), Verdict::Continue);
}

#[test]
fn a_watch_that_was_quiet_for_long_was_in_order() {
    let (mut machine, start) = in_watch("10");
    machine.failed(start, &retry(), None);
    machine.pause_over();
    machine.watch_opened(start);
    // Nothing changed for hours; the connection breaks. That is the first failure, not the end of a long row.
    assert_eq!(machine.failed(start + 10 * LOST_AFTER, &retry(), None), Verdict::Continue);
    assert_eq!(machine.failures(), 1);
}

#[test]
fn a_subscriber_that_joins_gets_a_list() {
    let (mut machine, _) = in_watch("10");
    machine.joined();
    assert_eq!(machine.step(), Step::List);
}

/// An event in the table of phases.
#[derive(Debug)]
enum Act {
    Starts,
    Listed,
    Watched,
    Ends,
    EndsAtOnce,
    PauseOver,
    Page,
    Fails(Error),
    NotPermittedNorMissed,
    Joined,
}

impl Act {
    fn happens(&self, machine: &mut Machine, now: Instant) {
        match self {
            Self::Starts => {}
            Self::Listed => {
                machine.pause_over();
                machine.page_arrived();
                machine.list_ended("10".into());
            }
            Self::Watched => {
                machine.pause_over();
                machine.watch_opened(now);
                machine.batch_arrived("11".into());
            }
            Self::Ends => machine.watch_ended(now),
            Self::EndsAtOnce => {
                machine.watch_opened(now);
                machine.watch_ended(now);
            }
            Self::PauseOver => machine.pause_over(),
            Self::Page => {
                machine.pause_over();
                machine.page_arrived();
            }
            Self::Fails(error) => {
                machine.failed(now, error, None);
            }
            Self::NotPermittedNorMissed => {
                machine.failed(now, &forbidden(), Some("nobody reads it"));
            }
            Self::Joined => machine.joined(),
        }
    }
}

fn gone() -> Error {
    Error::KindAbsent { kind: "v1/Pod".to_owned(), gone: true }
}

#[test]
fn phases_follow_what_happens() {
    let (at_once, later) = (Duration::ZERO, 2 * LOST_AFTER);
    // Each row goes on where the one before it ended. The last word: whether there is trouble to tell.
    let (mut machine, start) = (Machine::new(ABSENT_PAUSE, 1), Instant::now());
    for (act, after, phase, trouble) in [
        (Act::Starts, at_once, Phase::Listing, false),
        (Act::Listed, at_once, Phase::Watching, false),
        (Act::Fails(retry()), at_once, Phase::Retrying, true),
        (Act::PauseOver, at_once, Phase::Retrying, true),
        (Act::Watched, at_once, Phase::Watching, false),
        (Act::Ends, at_once, Phase::Watching, false),
        (Act::EndsAtOnce, at_once, Phase::Watching, false),
        (Act::Fails(relist()), at_once, Phase::Listing, false),
        (Act::Fails(relist()), at_once, Phase::Retrying, true),
        (Act::Fails(retry()), later, Phase::Lost, true),
        (Act::Page, later, Phase::Retrying, true),
        (Act::Fails(retry()), later, Phase::Lost, true),
        (Act::Listed, later, Phase::Watching, false),
        (Act::Fails(absent()), later, Phase::Absent, false),
        (Act::PauseOver, later, Phase::Absent, false),
        (Act::Fails(retry()), later, Phase::Retrying, true),
        (Act::Fails(gone()), later, Phase::Absent, false),
        (Act::NotPermittedNorMissed, later, Phase::Absent, true),
        (Act::Page, later, Phase::Listing, false),
        (Act::NotPermittedNorMissed, later, Phase::Retrying, true),
        (Act::Joined, later, Phase::Retrying, true),
    ] {
        act.happens(&mut machine, start + after);
        assert_eq!((machine.phase(), machine.trouble().is_some()), (phase, trouble), "{act:?}: {machine:?}");
    }
}

#[test]
fn absence_is_news_once_and_takes_objects_away_only_if_they_are_gone() {
    let told = |is_news, emptied| Verdict::Absent { is_news, emptied };
    let spared = Some("nobody reads it");
    let (mut machine, now) = (Machine::new(ABSENT_PAUSE, 1), Instant::now());
    assert_eq!(machine.failed(now, &forbidden(), spared), told(true, false));
    assert!(matches!(machine.step(), Step::Pause(_)), "no datastore tells when a role changes");
    assert_eq!(machine.failed(now, &forbidden(), spared), told(false, false));
    assert_eq!(machine.failed(now, &gone(), None), told(false, false));
    assert!(matches!(machine.step(), Step::AwaitArrival(_)));
    machine.pause_over();
    machine.page_arrived();
    assert_eq!(machine.failed(now, &forbidden(), spared), Verdict::Continue, "objects that were there are missed");
    assert_eq!(machine.failed(now, &absent(), None), told(true, false));
    assert_eq!(machine.failed(now, &gone(), None), told(false, true));
    assert_eq!(machine.failed(now, &gone(), None), told(false, false), "told once");
    assert_eq!(machine.failed(now, &forbidden(), spared), told(true, false), "nobody holds any now");
}
