//! The validation stage: between a syncer and its snapshot cache.
//!
//! Fed by a [`decoupler`], feeds the next one. Valid values lose their typed form here: nobody looks at it again. The pipeline
//! chooses where an invalid value leads ([`OnInvalid`]).
//!
//! Invariants: nothing is held back and order is kept; a broken value is counted every time and logged once per key and
//! reason while it stays broken.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::key_counter::KeyCounter;
use super::{Finding, Findings, Validate};
use crate::decoupler;
use crate::decoupler::MAX_BATCH;
use crate::metrics::SyncerMetrics;
use crate::model::{Key, SyncerEvent, Update, UpdateType, no_revision};
use crate::problems::{Novelty, ProblemBook, shortened};

/// Name under which this stage reports problems.
const FOUND_BY: &str = "validation";

/// While more values than this are invalid, a further one is named by its document only: to find its fields costs a look into its text, and
/// one file may have all of them.
const MAX_PLACED: usize = 64;

/// Where an invalid value leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalid {
    /// The update goes on without its value (and without the v3 resource version, which is a part of it); key, type and revision
    /// stay. Agents see the key as absent. Calico's way.
    #[default]
    Absent,
    /// The update is left out: agents keep the last valid value. A key that is new is absent.
    KeepLast,
    /// The value goes on as it is.
    Pass,
}

/// The pipeline's choices for this stage.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Where an invalid value leads.
    pub on_invalid: OnInvalid,
    /// The family of a key, in a word, under which its problems are counted. There must be a fixed number of families.
    pub family: fn(&str) -> &str,
}

/// Gives the value of a key that agents have now.
pub type Held = Arc<dyn Fn(&Key) -> Option<Bytes> + Send + Sync>;

/// The validation stage of one syncer.
pub struct ValidationFilter {
    rules: Rules,
    held: Option<Held>,
    /// Keys whose value is invalid now and noted in `problems`, each with the rank of its datastore.
    invalid: HashSet<(u8, Key)>,
    metrics: SyncerMetrics,
    problems: ProblemBook,
    counter: Option<KeyCounter>,
}

impl ValidationFilter {
    /// A stage that counts in `metrics`, notes in `problems`, and lets `counter` see what passes.
    #[must_use]
    pub fn new(rules: Rules, metrics: SyncerMetrics, problems: ProblemBook, counter: Option<KeyCounter>) -> Self {
        Self { rules, held: None, invalid: HashSet::new(), metrics, problems, counter }
    }

    /// Checks changes of values as changes, too: against the values that agents have.
    #[must_use]
    pub fn with_held(self, held: Held) -> Self {
        Self { held: Some(held), ..self }
    }

    /// Validates the updates of an event in place.
    pub fn check(&mut self, event: &mut SyncerEvent) {
        if let SyncerEvent::Updates(updates) = event {
            updates.retain_mut(|update| self.check_update(update));
        }
        if let Some(counter) = &mut self.counter {
            counter.see(event);
        }
    }

    /// Runs until cancelled, or until either neighbour is gone.
    pub async fn run(mut self, mut from: decoupler::Receiver, to: decoupler::Sender, cancel: CancellationToken) {
        let work = async {
            let mut batch = Vec::new();
            while from.recv_batch(&mut batch, MAX_BATCH).await > 0 {
                for mut event in batch.drain(..) {
                    self.check(&mut event);
                    if to.send(event).await.is_err() {
                        return;
                    }
                }
            }
        };
        // Dropping both ends on the way out tells the neighbours.
        let _ = cancel.run_until_cancelled(work).await;
    }

    /// Checks an update, and changes it as the pipeline has chosen. Returns whether it goes on.
    fn check_update(&mut self, update: &mut Update) -> bool {
        let subject = update.value.as_mut().and_then(|value| value.subject.take());
        let findings = subject.as_ref().map(|subject| self.ask(update, &**subject)).unwrap_or_default();
        if findings.are_harmless() {
            if !self.invalid.is_empty() && self.invalid.remove(&(update.rank(), update.key.clone())) {
                self.problems.clear(FOUND_BY, subject_name(update));
            }
            return true;
        }
        self.metrics.values_invalid.inc();
        self.note(update, subject.as_deref(), &findings);
        match self.rules.on_invalid {
            OnInvalid::Pass => true,
            OnInvalid::KeepLast if update.update_type == UpdateType::Updated => false,
            OnInvalid::KeepLast | OnInvalid::Absent => {
                update.value = None;
                update.v3_resource_version = no_revision();
                true
            }
        }
    }

    fn ask(&self, update: &Update, subject: &dyn Validate) -> Findings {
        let held = self.held.as_ref().filter(|_| update.update_type == UpdateType::Updated);
        let now = update.value.as_ref().map(|value| &value.bytes);
        // A value that is the same is no change: it may be here because the rules are others.
        match held.and_then(|held| held(&update.key)).filter(|old| now != Some(old)) {
            Some(old) => subject.validate_change(&old),
            None => subject.validate(),
        }
    }

    /// Notes and logs that a value is invalid.
    fn note(&mut self, update: &Update, subject: Option<&dyn Validate>, findings: &Findings) {
        let reason = self.reason(update, subject, findings);
        let family = (self.rules.family)(&update.key);
        match self.problems.report(FOUND_BY, family, subject_name(update), &reason) {
            Novelty::New => {
                let (key, reason) = (shortened(&update.key), shortened(&reason));
                let (syncer, revision) = (self.problems.syncer(), &update.revision);
                let leads_to = match self.rules.on_invalid {
                    OnInvalid::Absent => "agents see it as absent",
                    OnInvalid::KeepLast => "agents keep the last valid one",
                    OnInvalid::Pass => "agents get it all the same",
                };
                warn!(%syncer, %key, %revision, %reason, "value is not valid; {leads_to}");
            }
            Novelty::FullNow => {
                warn!(syncer = %self.problems.syncer(), "too many values are not valid; further ones are only counted");
                return;
            }
            Novelty::Quiet | Novelty::Known => {}
            Novelty::Full => return,
        }
        // Bounded, because the book is: every key here has its entry there.
        self.invalid.insert((update.rank(), update.key.clone()));
    }
}

impl ValidationFilter {
    /// The findings, each with its place in a text where there is one; else with the place of the value.
    fn reason(&self, update: &Update, subject: Option<&dyn Validate>, findings: &Findings) -> String {
        let findings_of = findings.as_slice();
        let places = subject.filter(|_| self.invalid.len() < MAX_PLACED).map(|subject| {
            let pointers: Vec<String> = findings_of.iter().map(Finding::pointer).collect();
            subject.places(&pointers)
        });
        if let Some(places) = places.filter(|places| !places.is_empty()) {
            let lines = places.iter().zip(findings_of).map(|(place, finding)| format!("{place} {}", finding.line()));
            return lines.collect::<Vec<_>>().join("; ");
        }
        match update.origin.as_ref().map(|origin| &*origin.place).filter(|place| !place.is_empty()) {
            Some(place) => format!("{place}: {findings}"),
            None => findings.to_string(),
        }
    }
}

impl fmt::Debug for ValidationFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidationFilter").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// The name of an update's problem: the same for the same key of one datastore.
fn subject_name(update: &Update) -> String {
    match update.rank() {
        0 => update.key.as_str().to_owned(),
        rank => format!("{} (source {})", update.key, u16::from(rank) + 1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::calico::syncers::FELIX;
    use crate::model::finding::BAD_VALUE;
    use crate::model::{SyncStatus, UpdateType, Value};
    use crate::problems::MAX_PROBLEMS;
    use crate::validate::Validate;

    /// Valid if it says so.
    #[derive(Debug)]
    struct Subject(Result<(), &'static str>);

    impl Validate for Subject {
        fn validate(&self) -> Findings {
            let mut findings = Findings::none();
            if let Err(path) = self.0 {
                findings.error(BAD_VALUE, path, "x", "y");
            }
            findings
        }

        fn places(&self, pointers: &[String]) -> Vec<String> {
            pointers.iter().filter(|pointer| *pointer == "/in/a/text").map(|_| "a.yaml:3:5".to_owned()).collect()
        }
    }

    fn update(key: &str, subject: Option<Result<(), &'static str>>, update_type: UpdateType) -> Update {
        let value = subject.map(|result| Value::checked("{}", Arc::new(Subject(result))));
        Update {
            key: key.into(),
            value,
            revision: "7".into(),
            v3_resource_version: "8".into(),
            ttl: Duration::ZERO,
            update_type,
            origin: None,
        }
    }

    fn stage() -> (ValidationFilter, SyncerMetrics, ProblemBook) {
        stage_with(OnInvalid::Absent)
    }

    fn stage_with(on_invalid: OnInvalid) -> (ValidationFilter, SyncerMetrics, ProblemBook) {
        let metrics = SyncerMetrics::unregistered();
        let problems = ProblemBook::new(FELIX);
        let rules = Rules { on_invalid, family: |_| "k" };
        (ValidationFilter::new(rules, metrics.clone(), problems.clone(), None), metrics, problems)
    }

    fn check(stage: &mut ValidationFilter, update: Update) -> Update {
        let mut event = SyncerEvent::Updates(vec![update]);
        stage.check(&mut event);
        let SyncerEvent::Updates(mut updates) = event else { unreachable!("the event stays what it is") };
        updates.pop().expect("nothing is held back")
    }

    #[test]
    fn an_invalid_value_becomes_absent_while_key_type_and_revision_stay() {
        let (mut stage, metrics, problems) = stage();
        let blanked = check(&mut stage, update("/k", Some(Err("spec.selector")), UpdateType::New));
        let expected = Update { v3_resource_version: no_revision(), ..update("/k", None, UpdateType::New) };
        assert_eq!(blanked, expected);
        assert_eq!(&*blanked.revision, "7");
        assert_eq!(metrics.values_invalid.get(), 1);
        assert!(problems.snapshot(1)[0].reason.contains("spec.selector"));
    }

    #[test]
    fn fields_are_placed_in_the_text_of_the_first_invalid_values() {
        let (mut stage, _, problems) = stage();
        for n in 0..=MAX_PLACED {
            let path = if n == 0 { "elsewhere" } else { "in.a.text" };
            check(&mut stage, update(&format!("/k/{n:03}"), Some(Err(path)), UpdateType::New));
        }
        let reasons: Vec<String> =
            problems.snapshot(MAX_PLACED + 1).into_iter().map(|problem| problem.reason).collect();
        assert_eq!(reasons[0], r#"elsewhere: "x" is not valid: y"#);
        assert_eq!(reasons[1], r#"a.yaml:3:5 error bad-value /in/a/text: "x" is not valid: y"#);
        assert_eq!(reasons[MAX_PLACED], r#"in.a.text: "x" is not valid: y"#);
    }

    #[test]
    fn the_pipeline_chooses_where_an_invalid_value_leads() {
        use UpdateType::{New, Updated};
        // The choice, how the key changed, and what goes on: `None` nothing, otherwise whether the value is in it.
        for (on_invalid, update_type, expected) in [
            (OnInvalid::Absent, New, Some(false)),
            (OnInvalid::Absent, Updated, Some(false)),
            (OnInvalid::KeepLast, New, Some(false)),
            (OnInvalid::KeepLast, Updated, None),
            (OnInvalid::Pass, New, Some(true)),
            (OnInvalid::Pass, Updated, Some(true)),
        ] {
            let (mut stage, metrics, problems) = stage_with(on_invalid);
            let mut event = SyncerEvent::Updates(vec![update("/k", Some(Err("spec")), update_type)]);
            stage.check(&mut event);
            let SyncerEvent::Updates(updates) = event else { unreachable!("the event stays what it is") };
            let passed = updates.first().map(|update| update.value.is_some());
            assert_eq!(passed, expected, "{on_invalid:?} {update_type:?}");
            assert_eq!((metrics.values_invalid.get(), problems.len()), (1, 1));
        }
    }

    #[test]
    fn a_valid_value_keeps_its_bytes_and_loses_its_typed_form() {
        let (mut stage, metrics, _) = stage();
        let passed = check(&mut stage, update("/k", Some(Ok(())), UpdateType::New));
        let value = passed.value.expect("it is valid");
        assert_eq!((&value.bytes[..], value.subject.is_none()), (&b"{}"[..], true));
        assert_eq!(metrics.values_invalid.get(), 0);
    }

    #[test]
    fn a_problem_lasts_until_the_key_is_valid_or_gone() {
        let (mut stage, metrics, problems) = stage();
        for cure in [update("/k", Some(Ok(())), UpdateType::Updated), update("/k", None, UpdateType::Deleted)] {
            for _ in 0..3 {
                check(&mut stage, update("/k", Some(Err("spec.order")), UpdateType::Updated));
                assert_eq!(problems.len(), 1);
            }
            check(&mut stage, cure);
            assert!(problems.is_empty());
        }
        assert_eq!(metrics.values_invalid.get(), 6);
    }

    #[test]
    fn a_flood_of_invalid_values_is_counted_in_bounded_memory() {
        let (mut stage, metrics, problems) = stage();
        for n in 0..3 * MAX_PROBLEMS {
            check(&mut stage, update(&format!("/k/{n}"), Some(Err("spec")), UpdateType::New));
        }
        assert_eq!(metrics.values_invalid.get(), 3 * MAX_PROBLEMS as u64);
        assert!(problems.len() <= MAX_PROBLEMS && stage.invalid.len() <= MAX_PROBLEMS);
        for n in 0..3 * MAX_PROBLEMS {
            check(&mut stage, update(&format!("/k/{n}"), None, UpdateType::Deleted));
        }
        assert!(problems.is_empty() && stage.invalid.is_empty());
    }

    #[tokio::test]
    async fn order_is_kept_and_the_end_of_a_neighbour_ends_the_stage() {
        let (stage, _, _) = stage();
        let (sender, from) = decoupler::channel(10);
        let (to, mut receiver) = decoupler::channel(10);
        let running = tokio::spawn(stage.run(from, to, CancellationToken::new()));
        let sent = [
            SyncerEvent::Updates(vec![update("/a", None, UpdateType::Deleted)]),
            SyncerEvent::Status(SyncStatus::InSync),
            SyncerEvent::Updates(vec![update("/b", None, UpdateType::Deleted)]),
        ];
        for event in &sent {
            sender.send(event.clone()).await.expect("the stage runs");
        }
        drop(sender);
        let mut got = Vec::new();
        while receiver.recv_batch(&mut got, 100).await > 0 {}
        assert_eq!(got, sent);
        running.await.expect("the stage does not panic");
    }

    #[tokio::test]
    async fn cancelling_ends_a_stage_that_waits_for_room() {
        let (stage, _, _) = stage();
        let (sender, from) = decoupler::channel(10);
        let (to, _receiver) = decoupler::channel(1);
        let cancel = CancellationToken::new();
        let running = tokio::spawn(stage.run(from, to, cancel.clone()));
        for _ in 0..3 {
            sender.send(SyncerEvent::Status(SyncStatus::InSync)).await.expect("there is room");
        }
        cancel.cancel();
        running.await.expect("the stage does not panic");
        assert!(sender.send(SyncerEvent::Status(SyncStatus::InSync)).await.is_err());
    }
}
