//! What is wrong right now with which object: what has been logged already, and what the status shows.
//!
//! Fed by watcher caches (objects that cannot be converted) and the validation stage (values that are not valid); read by
//! the status endpoint. One book per syncer.
//!
//! Invariants: an entry exists exactly as long as its problem does, so a problem is logged once while it lasts and again
//! when it comes back; the book is bounded, whatever is stored in the datastore.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most problems that one book remembers. A person reads tens; beyond this, problems are only counted.
pub const MAX_PROBLEMS: usize = 1000;

/// Where a problem was found and what it concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The stage or source that found it, for example `IPPool` or `validation`.
    pub found_by: &'static str,
    /// The object or key, as text.
    pub name: String,
}

/// One problem, for the status endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What it concerns.
    pub subject: Subject,
    /// What is wrong.
    pub reason: String,
}

/// Whether a problem that was just reported is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Novelty {
    /// First time, or the reason changed: log it.
    New,
    /// Logged before with the same reason.
    Known,
    /// The book has just become full: say that further problems are only counted.
    FullNow,
    /// The book is full: only count it.
    Full,
}

#[derive(Debug, Default)]
struct Entries {
    reasons: BTreeMap<Subject, String>,
    told_full: bool,
}

/// The problems of one syncer. Clones share the book.
#[derive(Clone, Debug, Default)]
pub struct ProblemBook {
    entries: Arc<Mutex<Entries>>,
    /// Number of entries, so that the usual case (none) costs no lock and no text.
    len: Arc<AtomicUsize>,
}

impl ProblemBook {
    /// An empty book.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is wrong. Cheap; call it before building a name for [`Self::clear`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// How many problems the book holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Notes a problem.
    #[must_use]
    pub fn report(&self, found_by: &'static str, name: String, reason: &str) -> Novelty {
        let entries = &mut *self.lock();
        let subject = Subject { found_by, name };
        let has_room = entries.reasons.len() < MAX_PROBLEMS;
        let novelty = match entries.reasons.get_mut(&subject) {
            Some(known) if known == reason => Novelty::Known,
            Some(known) => {
                reason.clone_into(known);
                Novelty::New
            }
            None if has_room => {
                entries.reasons.insert(subject, reason.to_owned());
                Novelty::New
            }
            None if entries.told_full => Novelty::Full,
            None => {
                entries.told_full = true;
                Novelty::FullNow
            }
        };
        self.len.store(entries.reasons.len(), Ordering::Relaxed);
        novelty
    }

    /// A problem is over, if there was one.
    pub fn clear(&self, found_by: &'static str, name: String) {
        let mut entries = self.lock();
        entries.reasons.remove(&Subject { found_by, name });
        if entries.reasons.len() < MAX_PROBLEMS / 2 {
            entries.told_full = false;
        }
        self.len.store(entries.reasons.len(), Ordering::Relaxed);
    }

    /// The first `limit` problems, in order of who found them and what they concern.
    #[must_use]
    pub fn snapshot(&self, limit: usize) -> Vec<Problem> {
        let entries = self.lock();
        let problems = entries.reasons.iter().take(limit);
        problems.map(|(subject, reason)| Problem { subject: subject.clone(), reason: reason.clone() }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A panic cannot leave the map half changed, so its content is good even then.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_new_once_per_reason_and_again_after_it_was_over() {
        let book = ProblemBook::new();
        assert!(book.is_empty());
        assert_eq!(book.report("Pod", "a/b".to_owned(), "bad address"), Novelty::New);
        assert_eq!(book.report("Pod", "a/b".to_owned(), "bad address"), Novelty::Known);
        assert_eq!(book.report("Pod", "a/b".to_owned(), "bad mac"), Novelty::New);
        assert_eq!(book.snapshot(10).len(), 1);
        book.clear("Pod", "a/b".to_owned());
        book.clear("Pod", "a/b".to_owned());
        assert!(book.is_empty());
        assert_eq!(book.report("Pod", "a/b".to_owned(), "bad mac"), Novelty::New);
    }

    #[test]
    fn a_flood_is_bounded_and_says_so_once() {
        let book = ProblemBook::new();
        let novelties: Vec<_> = (0..MAX_PROBLEMS + 3).map(|n| book.report("Pod", n.to_string(), "bad")).collect();
        assert_eq!(book.len(), MAX_PROBLEMS);
        assert_eq!(novelties[MAX_PROBLEMS..], [Novelty::FullNow, Novelty::Full, Novelty::Full]);
        for n in 0..MAX_PROBLEMS {
            book.clear("Pod", n.to_string());
        }
        assert!(book.is_empty());
        assert_eq!(book.report("Pod", "again".to_owned(), "bad"), Novelty::New);
    }
}
