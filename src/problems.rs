//! The book of present problems: objects that cannot be converted and values that are not valid.
//!
//! Watcher caches and the validation stage report problems, and log the ones that the book calls new. The status endpoint
//! shows the book, and [`log_rest`] logs the number of problems that were not logged one by one. A gauge counts the entries by
//! finder and kind. Each syncer has one book.
//!
//! Invariants: an entry exists exactly as long as its problem does, so a problem is logged once while it lasts and again
//! when it comes back; of one kind at most one problem per [`LOG_INTERVAL`] is logged, the others are counted into one line;
//! the book is bounded in entries and bytes, whatever is stored in the datastore.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntGaugeVec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::model::SyncerName;

/// Most problems in a book. People read tens; further problems are only counted.
pub const MAX_PROBLEMS: usize = 1000;
/// Time between two problems of one kind that are logged one by one: a broken controller writes thousands of bad objects, and
/// more important lines need room in the log.
pub const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Longest name and longest reason in a book, in bytes. They keep a book of absurd objects below 1 MiB.
pub const MAX_TEXT: usize = 512;

/// The finder of a problem, and the object or key that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The stage or source that found it, for example `IPPool` or `validation`.
    pub found_by: Arc<str>,
    /// The object or key, as text.
    pub name: String,
}

/// One problem, for the status endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object or key that has it.
    pub subject: Subject,
    /// The problem in words.
    pub reason: String,
}

/// The news value of a problem that was just reported: tells whether to log it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// First time, or the reason changed: log it.
    New,
    /// New too, but another one of its kind was just logged: the next line of [`log_rest`] counts it.
    Quiet,
    /// Logged before with the same reason.
    Known,
    /// The book has just become full: say that further problems are only counted.
    FullNow,
    /// The book is full: only count it.
    Full,
}

#[derive(Debug, Default)]
struct Entries {
    noted: BTreeMap<Subject, Noted>,
    told_full: bool,
    /// By finder and kind; one for each kind at most.
    gates: BTreeMap<(Arc<str>, String), Gate>,
}

/// The book's entry about a subject.
#[derive(Debug)]
struct Noted {
    kind: String,
    reason: String,
}

/// Limits the log lines of one kind.
#[derive(Debug)]
struct Gate {
    opens: Instant,
    /// Number of problems that came while it was shut.
    rest: u64,
}

/// Problems of a kind that were not logged one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The finder.
    pub found_by: Arc<str>,
    /// The kind of the objects or keys.
    pub kind: String,
    /// Their number.
    pub count: u64,
}

/// The problems of one syncer. Clones share the book.
#[derive(Clone, Debug)]
pub struct ProblemBook {
    syncer: SyncerName,
    entries: Arc<Mutex<Entries>>,
    /// Number of entries, so that the usual case (none) costs no lock and no text.
    len: Arc<AtomicUsize>,
    /// Number of entries by finder and kind.
    gauge: Option<IntGaugeVec>,
}

impl ProblemBook {
    /// An empty book.
    #[must_use]
    pub fn new(syncer: SyncerName) -> Self {
        Self { syncer, entries: Arc::default(), len: Arc::default(), gauge: None }
    }

    /// The same book, whose number of problems `gauge` shows. The gauge's labels are finder and kind.
    #[must_use]
    pub fn shown_by(self, gauge: IntGaugeVec) -> Self {
        Self { gauge: Some(gauge), ..self }
    }

    /// The syncer of this book. An object that several syncers need is in several books.
    #[must_use]
    pub fn syncer(&self) -> SyncerName {
        self.syncer
    }

    /// Whether the book is empty. Cheap: call it before building a name for [`Self::clear`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Number of problems in the book.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Notes a problem with `name`, which is one of `kind`. There must be a fixed number of kinds.
    #[must_use]
    pub fn report(&self, found_by: &str, kind: &str, name: String, reason: &str) -> Novelty {
        self.report_at(Instant::now(), found_by, kind, name, reason)
    }

    fn report_at(&self, now: Instant, found_by: &str, kind: &str, name: String, reason: &str) -> Novelty {
        let entries = &mut *self.lock();
        let subject = Subject { found_by: found_by.into(), name: bounded_name(name) };
        let reason = &*shortened(reason);
        let has_room = entries.noted.len() < MAX_PROBLEMS;
        let novelty = match entries.noted.get_mut(&subject) {
            Some(known) if known.reason == reason => Novelty::Known,
            Some(known) => {
                reason.clone_into(&mut known.reason);
                Novelty::New
            }
            None if has_room => {
                entries.noted.insert(subject, Noted { kind: kind.to_owned(), reason: reason.to_owned() });
                self.show(found_by, kind, 1);
                Novelty::New
            }
            None if entries.told_full => Novelty::Full,
            None => {
                entries.told_full = true;
                Novelty::FullNow
            }
        };
        self.len.store(entries.noted.len(), Ordering::Relaxed);
        if novelty == Novelty::New && !entries.may_log(now, found_by, kind) { Novelty::Quiet } else { novelty }
    }

    /// The problems that were not logged one by one since the last call, of kinds whose interval is over.
    #[must_use]
    pub fn take_rest(&self, now: Instant) -> Vec<Rest> {
        let mut rest = Vec::new();
        self.lock().gates.retain(|(found_by, kind), gate| {
            if gate.opens > now {
                return true;
            }
            let count = std::mem::take(&mut gate.rest);
            if count > 0 {
                gate.opens = now + LOG_INTERVAL;
                rest.push(Rest { found_by: found_by.clone(), kind: kind.clone(), count });
            }
            count > 0
        });
        rest
    }

    /// Removes a problem, if there is one.
    pub fn clear(&self, found_by: &str, name: String) {
        let mut entries = self.lock();
        if let Some(over) = entries.noted.remove(&Subject { found_by: found_by.into(), name: bounded_name(name) }) {
            self.show(found_by, &over.kind, -1);
        }
        if entries.noted.len() < MAX_PROBLEMS / 2 {
            entries.told_full = false;
        }
        self.len.store(entries.noted.len(), Ordering::Relaxed);
    }

    /// The first `limit` problems, in order of finder and name.
    #[must_use]
    pub fn snapshot(&self, limit: usize) -> Vec<Problem> {
        let entries = self.lock();
        let problems = entries.noted.iter().take(limit);
        problems.map(|(subject, noted)| Problem { subject: subject.clone(), reason: noted.reason.clone() }).collect()
    }

    /// Changes the gauge. A series stays when it falls to 0; there is one for each kind at most.
    fn show(&self, found_by: &str, kind: &str, change: i64) {
        if let Some(gauge) = &self.gauge {
            gauge.with_label_values(&[found_by, kind]).add(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A panic cannot leave the map half changed, so its content is good even then.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn may_log(&mut self, now: Instant, found_by: &str, kind: &str) -> bool {
        match self.gates.entry((found_by.into(), kind.to_owned())) {
            Entry::Vacant(vacant) => drop(vacant.insert(Gate { opens: now + LOG_INTERVAL, rest: 0 })),
            Entry::Occupied(mut gate) if gate.get().opens <= now => gate.get_mut().opens = now + LOG_INTERVAL,
            Entry::Occupied(mut gate) => {
                gate.get_mut().rest += 1;
                return false;
            }
        }
        true
    }
}

/// The text, cut to [`MAX_TEXT`] bytes with a mark if it is longer.
#[must_use]
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let mut end = MAX_TEXT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes)", &text[..end], text.len()).into()
}

/// A short name for a name of any length: the same for the same name, different for different names.
fn bounded_name(name: String) -> String {
    if name.len() <= MAX_TEXT {
        return name;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    format!("{}#{:016x}", shortened(&name), hasher.finish())
}

/// Logs, until cancelled, the number of problems of a book that were not logged one by one.
///
/// # Cancel safety
/// May be dropped at any time.
pub async fn log_rest(book: ProblemBook, cancel: CancellationToken) {
    while cancel.run_until_cancelled(tokio::time::sleep(LOG_INTERVAL)).await.is_some() {
        for Rest { found_by, kind, count } in book.take_rest(Instant::now()) {
            warn!(
                syncer = %book.syncer,
                %found_by,
                kind,
                count,
                "more of this kind cannot be converted or are not valid; bulrush status names them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::syncers::FELIX;
    use crate::metrics::SyncerMetrics;

    /// Every problem a kind of its own, so that nothing is quiet.
    fn report(book: &ProblemBook, name: &str, reason: &str) -> Novelty {
        book.report("Pod", name, name.to_owned(), reason)
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_kind_one_problem_is_logged_and_the_rest_is_counted() {
        let book = ProblemBook::new(FELIX);
        let start = Instant::now();
        let report = |at: Duration, kind: &str, name: &str| {
            book.report_at(start + at, "Pod", kind, format!("{kind} {name}"), "bad")
        };
        let rest = |at: Duration| {
            let rest = book.take_rest(start + at);
            rest.into_iter().map(|rest| (rest.kind, rest.count)).collect::<Vec<_>>()
        };
        let second = Duration::from_secs(1);
        assert_eq!(report(second, "v1/Pod", "a"), Novelty::New);
        assert_eq!(report(second * 2, "v1/Pod", "b"), Novelty::Quiet);
        assert_eq!(report(second * 2, "v1/Pod", "b"), Novelty::Known);
        assert_eq!(report(second * 3, "v1/Pod", "c"), Novelty::Quiet);
        assert_eq!(report(second * 3, "v1/Node", "d"), Novelty::New);
        assert_eq!(rest(second * 60), []);
        assert_eq!(rest(second * 61), [("v1/Pod".to_owned(), 2)]);
        // The line of the rest counts as one of the kind.
        assert_eq!(report(second * 62, "v1/Pod", "e"), Novelty::Quiet);
        assert_eq!(report(second * 122, "v1/Pod", "f"), Novelty::New);
        assert_eq!(rest(second * 182), [("v1/Pod".to_owned(), 1)]);
        assert_eq!(rest(second * 300), []);
        assert!(book.lock().gates.is_empty(), "nothing is kept for kinds that are well");
        assert_eq!(report(second * 300, "v1/Pod", "g"), Novelty::New);
    }

    #[test]
    fn absurd_texts_are_cut_and_still_told_apart() {
        let book = ProblemBook::new(FELIX);
        let name = |end: &str| format!("{}{end}", "é".repeat(1_000_000));
        assert_eq!(report(&book, &name("1"), &"x".repeat(1_000_000)), Novelty::New);
        assert_eq!(report(&book, &name("2"), "x"), Novelty::New);
        assert_eq!(book.len(), 2);
        for problem in book.snapshot(10) {
            assert!(problem.subject.name.len() < 2 * MAX_TEXT && problem.reason.len() < 2 * MAX_TEXT);
        }
        book.clear("Pod", name("1"));
        assert_eq!(book.len(), 1);
    }

    #[test]
    fn a_problem_is_new_once_per_reason_and_again_after_it_was_over() {
        let book = ProblemBook::new(FELIX);
        assert!(book.is_empty());
        assert_eq!(report(&book, "a/b", "bad address"), Novelty::New);
        assert_eq!(report(&book, "a/b", "bad address"), Novelty::Known);
        assert_eq!(report(&book, "a/b", "bad mac"), Novelty::Quiet);
        assert_eq!(book.snapshot(10).len(), 1);
        book.clear("Pod", "a/b".to_owned());
        book.clear("Pod", "a/b".to_owned());
        assert!(book.is_empty());
        assert_eq!(report(&book, "a/b", "bad mac"), Novelty::Quiet);
    }

    #[test]
    fn the_gauge_shows_what_is_wrong_now() {
        let metrics = SyncerMetrics::unregistered();
        let book = ProblemBook::new(FELIX).shown_by(metrics.problems.clone());
        let shown = |found_by: &str, kind: &str| metrics.problems.with_label_values(&[found_by, kind]).get();
        for name in ["a", "b", "a"] {
            let _ = book.report("Pod", "v1/Pod", name.to_owned(), "bad");
        }
        let _ = book.report("Pod", "v1/Pod", "a".to_owned(), "bad in another way");
        let _ = book.report("validation", "workload", "a".to_owned(), "bad");
        assert_eq!((shown("Pod", "v1/Pod"), shown("validation", "workload")), (2, 1));
        book.clear("Pod", "a".to_owned());
        book.clear("Pod", "a".to_owned());
        book.clear("Pod", "never".to_owned());
        assert_eq!((shown("Pod", "v1/Pod"), shown("validation", "workload")), (1, 1));
        for n in 0..2 * MAX_PROBLEMS {
            let _ = book.report("Pod", "v1/Pod", n.to_string(), "bad");
        }
        let all = shown("Pod", "v1/Pod") + shown("validation", "workload");
        assert_eq!(usize::try_from(all), Ok(MAX_PROBLEMS));
    }

    #[test]
    fn a_flood_is_bounded_and_says_so_once() {
        let book = ProblemBook::new(FELIX);
        let novelties: Vec<_> = (0..MAX_PROBLEMS + 3).map(|n| report(&book, &n.to_string(), "bad")).collect();
        assert_eq!(book.len(), MAX_PROBLEMS);
        assert_eq!(novelties[MAX_PROBLEMS..], [Novelty::FullNow, Novelty::Full, Novelty::Full]);
        for n in 0..MAX_PROBLEMS {
            book.clear("Pod", n.to_string());
        }
        assert!(book.is_empty());
        assert_eq!(report(&book, "again", "bad"), Novelty::New);
    }
}
