//! Log lines: from `tracing` to standard output, a file and the local syslog.
//!
//! The program first calls [`Logging::install`] with the early level, and [`Logging::configure`] once there is a
//! configuration. Each destination has a severity that may change at run time ([`LogHandle`]), a bounded
//! queue and a thread that writes (`queue`, `sink`), so a slow disk or terminal never holds up the data. When a queue is full,
//! lines are dropped and counted, and the log says so in their place.
//!
//! Invariants:
//! - writing a line never waits, unless `DebugDisableLogDropping` asks for it;
//! - one event is one line, with any text: control characters are escaped, and the length is limited;
//! - lines of libraries that are less severe than INFO are left out, except at TRACE.

mod format;
mod layer;
mod queue;
mod sink;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogFormat, LoggingConfig, Severity};
use crate::metrics::LogMetrics;
pub(crate) use format::timestamp;
use layer::LogLayer;
use queue::Queue;
use sink::Sink;

/// The target of lines about the cause of the process's end. Their severity is CRITICAL.
pub const FATAL_TARGET: &str = "bulrush::fatal";
/// Longest wait for lines to be written, at the end of the process and after a panic.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log file, or its folder, cannot be made.
    #[error("open log file {}: {source}; check LogFilePath, or set it to none", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The thread of a destination cannot be started.
    #[error("start the thread that writes to {destination}: {source}")]
    Thread {
        /// The destination.
        destination: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Another log was installed before.
    #[error("install the log: {0}")]
    Install(#[from] tracing_subscriber::util::TryInitError),
}

/// A destination of lines.
#[derive(Debug)]
struct Destination {
    name: &'static str,
    /// A [`Severity`] as a number, from 1; 0: off.
    severity: AtomicU8,
    queue: Arc<Queue>,
}

impl Destination {
    fn severity(&self) -> Option<Severity> {
        decode(self.severity.load(Relaxed))
    }
}

fn encode(severity: Option<Severity>) -> u8 {
    severity.map_or(0, |severity| severity as u8 + 1)
}

fn decode(number: u8) -> Option<Severity> {
    Severity::ALL.get(usize::from(number).checked_sub(1)?).copied()
}

/// The destinations and the form of lines, shared by the layer and all handles.
#[derive(Debug)]
struct Outputs {
    destinations: ArcSwap<Vec<Arc<Destination>>>,
    json: AtomicBool,
    metrics: LogMetrics,
}

impl Outputs {
    /// The least severe level that any destination takes.
    fn most(&self) -> Option<Severity> {
        self.destinations.load().iter().filter_map(|destination| destination.severity()).max()
    }

    /// Starts the thread of a destination and adds it.
    fn add(&self, name: &'static str, severity: Option<Severity>, sink: impl Sink) -> Result<(), Error> {
        let queue = Arc::new(Queue::new(self.metrics.logs_dropped.clone()));
        let errors = self.metrics.log_errors.clone();
        let reader = queue.clone();
        std::thread::Builder::new()
            .name(format!("log-{name}"))
            .spawn(move || sink::run(&reader, sink, &errors))
            .map_err(|source| Error::Thread { destination: name, source })?;
        let destination = Destination { name, severity: AtomicU8::new(encode(severity)), queue };
        let mut all = Vec::clone(&self.destinations.load());
        all.push(Arc::new(destination));
        self.destinations.store(Arc::new(all));
        Ok(())
    }
}

/// The log of the process.
#[derive(Clone, Debug)]
pub struct Logging {
    shared: Arc<Outputs>,
}

impl Logging {
    /// A log to standard output that is not installed as the process's.
    ///
    /// # Errors
    /// When no thread can be started.
    fn new(early: Severity, metrics: LogMetrics, screen: impl Sink) -> Result<(Self, LogLayer), Error> {
        let shared = Outputs { destinations: ArcSwap::default(), json: AtomicBool::new(false), metrics };
        let shared = Arc::new(shared);
        shared.add("screen", Some(early), screen)?;
        Ok((Self { shared: shared.clone() }, LogLayer(shared)))
    }

    /// A log that writes to nowhere and is not installed, for tests of other modules.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let metrics = LogMetrics::new(&prometheus::Registry::new());
        Self::new(Severity::Info, metrics, sink::Screen).expect("threads can be started in tests").0
    }

    /// Installs the process's log, to standard output, with the level for the time before there is a configuration.
    /// Panics are logged from now on.
    ///
    /// # Errors
    /// When a log was installed before, or no thread can be started.
    pub fn install(early: Severity, metrics: LogMetrics) -> Result<Self, Error> {
        let (logging, layer) = Self::new(early, metrics, sink::Screen)?;
        tracing_subscriber::registry().with(layer).try_init()?;
        let flushed = logging.clone();
        std::panic::set_hook(Box::new(move |panic| {
            let message = crate::tasks::panic_message(panic.payload());
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let thread = std::thread::current();
            let thread = thread.name().unwrap_or_default();
            tracing::error!(target: FATAL_TARGET, place, thread, "panic: {message}");
            flushed.flush(FLUSH_TIMEOUT);
        }));
        Ok(logging)
    }

    /// Sets the destinations up as configured. Once per process.
    ///
    /// # Errors
    /// When the log file cannot be opened, or no thread can be started. A syslog that cannot be reached is not an error.
    pub fn configure(&self, config: &LoggingConfig) -> Result<(), Error> {
        self.shared.json.store(config.format == LogFormat::Json, Relaxed);
        if let (Some(severity), Some(path)) = (config.file, &config.file_path) {
            let file = sink::LogFile::open(path).map_err(|source| Error::File { path: path.clone(), source })?;
            self.shared.add("file", Some(severity), file)?;
        }
        let mut no_syslog = None;
        if let Some(severity) = config.sys {
            match sink::Syslog::connect(sink::SYSLOG_SOCKETS) {
                Ok(syslog) => self.shared.add("sys", Some(severity), syslog)?,
                Err(error) => no_syslog = Some(error),
            }
        }
        for destination in &**self.shared.destinations.load() {
            destination.queue.set_waiting(config.disable_dropping);
        }
        self.handle().set(|destination| destination.name == "screen", config.screen);
        if let Some(error) = no_syslog {
            tracing::info!(%error, "there is no local syslog to log to");
        }
        Ok(())
    }

    /// A handle that reads and changes severities.
    #[must_use]
    pub fn handle(&self) -> LogHandle {
        LogHandle { shared: self.shared.clone() }
    }

    /// Waits until all lines so far are written, at most for `timeout` per destination. Blocks the thread, so it is for the end
    /// of the process.
    pub fn flush(&self, timeout: Duration) {
        for destination in &**self.shared.destinations.load() {
            destination.queue.wait_until_written(timeout);
        }
    }
}

/// Reads and changes the severities of the destinations.
#[derive(Clone, Debug)]
pub struct LogHandle {
    shared: Arc<Outputs>,
}

impl LogHandle {
    /// The destinations that exist (`screen`, `file`, `sys`) with their severities; `None` is off.
    #[must_use]
    pub fn severities(&self) -> Vec<(&'static str, Option<Severity>)> {
        self.shared.destinations.load().iter().map(|one| (one.name, one.severity())).collect()
    }

    /// Sets the severity of one destination. False: there is no such destination.
    #[must_use = "there may be no such destination"]
    pub fn set_one(&self, name: &str, severity: Option<Severity>) -> bool {
        self.set(|destination| destination.name == name, severity)
    }

    /// Sets the severity of all destinations that are on.
    pub fn set_all(&self, severity: Severity) {
        self.set(|destination| destination.severity().is_some(), Some(severity));
    }

    fn set(&self, which: impl Fn(&Destination) -> bool, severity: Option<Severity>) -> bool {
        let all = self.shared.destinations.load();
        let mut any = false;
        for destination in all.iter().filter(|destination| which(destination)) {
            destination.severity.store(encode(severity), Relaxed);
            any = true;
        }
        // Call sites remember whether their lines are wanted.
        tracing::callsite::rebuild_interest_cache();
        any
    }
}
