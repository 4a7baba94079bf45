//! Progress of a long run, as lines on standard error.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two lines of one step.
const EVERY: Duration = Duration::from_secs(3);

/// One step of a run, of known or unknown length.
#[derive(Debug)]
pub(crate) struct Step {
    what: String,
    began: Instant,
    next: Instant,
}

impl Step {
    /// Begins a step, which is printed only once it takes long.
    pub(crate) fn begin(what: impl Into<String>) -> Self {
        let began = Instant::now();
        Self { what: what.into(), began, next: began + EVERY }
    }

    /// `done` of `all` is done.
    pub(crate) fn at(&mut self, done: usize, all: usize) {
        self.note(|| format!("{done} of {all}"));
    }

    /// Prints a note of this step.
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + EVERY;
            eprintln!("  {} … {} ({:.0} s)", self.what, text(), self.began.elapsed().as_secs_f64());
        }
    }

    /// Ends the step.
    pub(crate) fn done(self) {
        eprintln!("  {} … done ({:.1} s)", self.what, self.began.elapsed().as_secs_f64());
    }
}
