//! Panics of tasks on simulated hosts. The runtime hides them: a connection, a feed or a pump that panics is gone, and
//! agents that need it wait for ever, or come back and are served by another one as if nothing had happened.
//!
//! All hosts of a run are on one thread, so a panic belongs to the run of its thread. Panics on threads of the blocking
//! pool are not seen here; the code that waits for them has to report them.

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

use bulrush::tasks::panic_message;
use turmoil::Sim;

thread_local! {
    /// Panics on this thread so far. `None`: there is no listener.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// A listener that records every panic of this thread, caught or not, until it is dropped. A thread has one at a time.
#[derive(Debug)]
pub(super) struct Ear(());

impl Ear {
    pub(super) fn listen() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |info| {
                before(info);
                let place = info.location().map_or_else(String::new, |place| format!(" at {place}"));
                let words = format!("{}{place}", panic_message(info.payload()));
                // A panic while the thread ends or while this is borrowed belongs to no run.
                let _ = HEARD.try_with(|heard| {
                    if let Ok(mut heard) = heard.try_borrow_mut()
                        && let Some(heard) = heard.as_mut()
                    {
                        heard.push(words);
                    }
                });
            }));
        });
        HEARD.set(Some(Vec::new()));
        Self(())
    }

    /// Returns an error if a task has panicked since the last call.
    #[allow(clippy::unused_self, reason = "panics are recorded only while a listener exists")]
    pub(super) fn verdict(&self) -> Result<(), String> {
        let heard = HEARD.with_borrow_mut(|heard| heard.as_mut().map(std::mem::take).unwrap_or_default());
        if heard.is_empty() { Ok(()) } else { Err(format!("a task panicked: {}", heard.join("; "))) }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        HEARD.set(None);
    }
}

/// Runs a simulation until all its clients have ended, as [`Sim::run`] does, and fails at the first panic of any task.
pub(super) fn run(mut sim: Sim<'_>) -> turmoil::Result {
    let ear = Ear::listen();
    loop {
        let ended = sim.step();
        ear.verdict()?;
        if ended? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;

    #[test]
    fn a_panic_that_the_runtime_hides_is_noticed() {
        for panics in [false, true] {
            let mut sim = turmoil::Builder::new().build();
            let ended = CancellationToken::new();
            let told = ended.clone();
            sim.host("server", move || {
                let told = told.clone();
                async move {
                    TaskTracker::new().spawn(async move {
                        // Cancelled at the task's end, also by a panic.
                        let _told = told.drop_guard();
                        assert!(!panics, "nobody waits for this task");
                    });
                    pending().await
                }
            });
            sim.client("agent", async move {
                ended.cancelled().await;
                Ok(())
            });
            let outcome = run(sim).map_err(|error| error.to_string());
            assert_eq!(outcome.is_err(), panics, "{outcome:?}");
            if let Err(words) = outcome {
                assert!(words.starts_with("a task panicked: nobody waits for this task at "), "{words}");
            }
        }
    }
}
