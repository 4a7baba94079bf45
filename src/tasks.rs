//! Long-lived tasks by name, supervised.
//!
//! Every part of the program that runs for as long as the process is a task in a [`TaskRegistry`]. Such a task ends only
//! when the process is told to stop: one that panics, fails or just ends before that is a [`TaskFailure`], which the
//! composition root waits for and ends the process with. Per-connection tasks do not belong here: each ends alone.
//!
//! Tasks on which others depend, but which come and go (a feed and its pumps, the producer of a snapshot), are
//! [passing](TaskRegistry::spawn_passing): they may end at any time and are forgotten then; a panic of theirs is a
//! failure like any other.
//!
//! Tasks that hand work to each other may share one task of the runtime ([`TaskRegistry::spawn_together`], [`Relay`]); each
//! keeps its name and is supervised alone.
//!
//! The registry also knows the activity of each task (its own description, its number of runs, whether it is running
//! and since when), which the debug port shows. A task that blocks its thread is thereby found by name.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

mod bells;
mod relay;

pub use relay::Relay;

/// Failures that wait to be read. The first one ends the process, so further ones only need to not block.
const FAILURES: usize = 16;

/// A task that ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {name} {end}")]
pub struct TaskFailure {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub end: TaskEnd,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It returned.
    Ended,
    /// It returned an error.
    Failed(String),
    /// It panicked.
    Panicked(String),
    /// Its runtime dropped it.
    Dropped,
}

impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("ended before it was told to"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Dropped => f.write_str("was dropped by its runtime"),
        }
    }
}

/// The result of a task: nothing, or a `Result`.
pub trait TaskOutput: Send + 'static {
    /// How the task ended.
    fn end(self) -> TaskEnd;
}

impl TaskOutput for () {
    fn end(self) -> TaskEnd {
        TaskEnd::Ended
    }
}

impl<E: fmt::Display + Send + 'static> TaskOutput for Result<(), E> {
    fn end(self) -> TaskEnd {
        match self {
            Ok(()) => TaskEnd::Ended,
            // With `{:#}` anyhow's errors print their whole chain.
            Err(error) => TaskEnd::Failed(format!("{error:#}")),
        }
    }
}

/// Spawns and supervises long-lived tasks. Clones share their tasks.
#[derive(Clone, Debug)]
pub struct TaskRegistry {
    inner: Arc<RegistryInner>,
}

#[derive(Debug)]
struct RegistryInner {
    tasks: Mutex<Vec<Arc<Task>>>,
    /// Registries whose tasks are shown with ours.
    included: Mutex<Vec<TaskRegistry>>,
    failures: mpsc::Sender<TaskFailure>,
    failed: tokio::sync::Mutex<mpsc::Receiver<TaskFailure>>,
    running: watch::Sender<usize>,
    stopping: watch::Sender<bool>,
}

#[derive(Debug)]
struct Task {
    name: String,
    since: Instant,
    state: Mutex<TaskState>,
}

#[derive(Debug)]
struct TaskState {
    doing: String,
    runs: u64,
    running_since: Option<Instant>,
    last_run: Option<Instant>,
    longest_run: Duration,
    end: Option<TaskEnd>,
}

/// Information on a task, for people and tools.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskInfo {
    /// Its name.
    pub name: String,
    /// `idle` (waits for something), `running` (holds a worker thread now), or how it ended.
    pub state: String,
    /// Its latest description of its activity; may be empty.
    pub doing: String,
    /// Seconds since it was spawned.
    pub age_secs: f64,
    /// Number of its runs.
    pub runs: u64,
    /// Seconds since it began the current run, or since its last run ended.
    pub in_state_secs: f64,
    /// Its longest run so far in seconds. Much more than a few milliseconds means that it blocks its thread.
    pub longest_run_secs: f64,
}

/// A task describes its activity with this.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    task: Arc<Task>,
}

impl TaskHandle {
    /// Describes in a few words the present activity of the task.
    pub fn doing(&self, what: impl Into<String>) {
        self.task.lock().doing = what.into();
    }
}

impl Task {
    fn lock(&self) -> MutexGuard<'_, TaskState> {
        // Plain assignments happen under this lock, so a panic cannot leave half a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self, now: Instant) -> TaskInfo {
        let state = self.lock();
        let since = state.running_since.or(state.last_run).unwrap_or(self.since);
        TaskInfo {
            name: self.name.clone(),
            state: match (&state.end, state.running_since) {
                (Some(TaskEnd::Ended), _) => "ended".to_owned(),
                (Some(end), _) => end.to_string(),
                (None, Some(_)) => "running".to_owned(),
                (None, None) => "idle".to_owned(),
            },
            doing: state.doing.clone(),
            age_secs: now.saturating_duration_since(self.since).as_secs_f64(),
            runs: state.runs,
            in_state_secs: now.saturating_duration_since(since).as_secs_f64(),
            longest_run_secs: state.longest_run.as_secs_f64(),
        }
    }
}

impl Default for TaskRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl TaskRegistry {
    /// Without tasks.
    #[must_use]
    pub fn new() -> Self {
        let (failures, failed) = mpsc::channel(FAILURES);
        let inner = RegistryInner {
            tasks: Mutex::default(),
            included: Mutex::default(),
            failures,
            failed: tokio::sync::Mutex::new(failed),
            running: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Spawns a long-lived task on the current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub fn spawn<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future + Send + 'static,
        F::Output: TaskOutput,
    {
        self.spawn_with(name, |_| future);
    }

    /// Spawns a long-lived task that describes its activity through the handle that it is given.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub fn spawn_with<F>(&self, name: impl Into<String>, make: impl FnOnce(TaskHandle) -> F)
    where
        F: Future + Send + 'static,
        F::Output: TaskOutput,
    {
        let task = self.register(name.into());
        let future = make(TaskHandle { task: task.clone() });
        tokio::spawn(self.supervise(task, Lasts::ForEver, future));
    }

    /// Spawns a task that may end at any time, and is forgotten then. A panic is a failure, and so is a drop by the
    /// runtime before [`Self::stopping`].
    pub fn spawn_passing<F>(&self, runtime: &Handle, name: impl Into<String>, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.supervise(self.register(name.into()), Lasts::AsLongAsItLikes, future));
    }

    /// Spawns several long-lived tasks as legs of one [`Relay`], so that a hand-over from one to the next costs no trip
    /// through the scheduler. Legs that feed others come before them. They have one thread at a time between them: work
    /// that has to run beside them needs a task of its own.
    ///
    /// # Panics
    /// Outside a tokio runtime, as `tokio::spawn` does.
    pub fn spawn_together(&self, legs: impl IntoIterator<Item = (String, BoxFuture<'static, ()>)>) {
        let supervised = |(name, leg)| self.supervise(self.register(name), Lasts::ForEver, leg).boxed();
        tokio::spawn(Relay::new(legs.into_iter().map(supervised)));
    }

    /// One more task.
    fn register(&self, name: String) -> Arc<Task> {
        let state = TaskState {
            doing: String::new(),
            runs: 0,
            running_since: None,
            last_run: None,
            longest_run: Duration::ZERO,
            end: None,
        };
        let task = Arc::new(Task { name, since: Instant::now(), state: Mutex::new(state) });
        self.inner.lock().push(task.clone());
        self.inner.running.send_modify(|running| *running += 1);
        task
    }

    /// Runs the task, and reports its end.
    fn supervise<F>(&self, task: Arc<Task>, lasts: Lasts, future: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future + Send + 'static,
        F::Output: TaskOutput,
    {
        let supervised = Supervised { task: task.clone(), lasts, inner: self.inner.clone() };
        let future = Watched { task, future: Box::pin(future) };
        async move {
            let end = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(output) => output.end(),
                Err(panic) => TaskEnd::Panicked(panic_message(&*panic)),
            };
            supervised.ended(end);
        }
    }

    /// From now on a task may end. Call this when the process begins to stop; a panic or error stays a failure.
    pub fn stopping(&self) {
        self.inner.stopping.send_replace(true);
    }

    /// Waits for a task that ended before its time.
    ///
    /// # Cancel safety
    /// Cancel safe: a failure is taken only when the call returns.
    pub async fn failure(&self) -> TaskFailure {
        let mut failed = self.inner.failed.lock().await;
        match failed.recv().await {
            Some(failure) => failure,
            // The registry itself holds a sender.
            None => std::future::pending().await,
        }
    }

    /// Waits until no task is left.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn all_ended(&self) {
        // The registry itself holds the sender, so this does not end early.
        let _ = self.inner.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// From now on [`Self::dump`] shows the tasks of `other`, too. Its failures and its end stay its own. Must not lead back to
    /// this registry.
    pub fn include(&self, other: &TaskRegistry) {
        self.included().push(other.clone());
    }

    /// All tasks in the order in which they were spawned, with those that have ended unless they were passing; after them those
    /// of registries that are [included](Self::include).
    #[must_use]
    pub fn dump(&self) -> Vec<TaskInfo> {
        let now = Instant::now();
        let mut all: Vec<TaskInfo> = self.inner.lock().iter().map(|task| task.info(now)).collect();
        let included = self.included().clone();
        all.extend(included.iter().flat_map(Self::dump));
        all
    }

    fn included(&self) -> MutexGuard<'_, Vec<TaskRegistry>> {
        // One value is added under this lock, so a panic cannot leave half a change.
        self.inner.included.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryInner {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Task>>> {
        // One task is added or removed under this lock, so a panic cannot leave half a change.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a task may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasts {
    /// Once it is told to.
    ForEver,
    /// At any time.
    AsLongAsItLikes,
}

/// Reports a task's end exactly once, also when the runtime drops the task.
struct Supervised {
    task: Arc<Task>,
    lasts: Lasts,
    inner: Arc<RegistryInner>,
}

impl Supervised {
    fn ended(self, end: TaskEnd) {
        self.task.lock().end = Some(end);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let end = self.task.lock().end.get_or_insert(TaskEnd::Dropped).clone();
        let passed = self.lasts == Lasts::AsLongAsItLikes && end == TaskEnd::Ended;
        let expected = passed || *self.inner.stopping.borrow() && matches!(end, TaskEnd::Ended | TaskEnd::Dropped);
        if passed {
            // Thousands come and go in the life of a process.
            self.inner.lock().retain(|task| !Arc::ptr_eq(task, &self.task));
        }
        if !expected {
            // A full queue holds enough failures to end the process with.
            let _ = self.inner.failures.try_send(TaskFailure { name: self.task.name.clone(), end });
        }
        self.inner.running.send_modify(|running| *running -= 1);
    }
}

/// Notes when the future inside runs.
struct Watched<F> {
    task: Arc<Task>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        {
            let mut state = self.task.lock();
            state.runs += 1;
            state.running_since = Some(began);
        }
        let poll = self.future.as_mut().poll(context);
        let ended = Instant::now();
        let mut state = self.task.lock();
        state.running_since = None;
        state.last_run = Some(ended);
        state.longest_run = state.longest_run.max(ended - began);
        poll
    }
}

/// The message of a panic, which nearly always is a text.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests;
