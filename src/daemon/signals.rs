//! The signals that the daemon listens to, as events.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// SIGTERM, SIGINT: drain and end; a second time: end at once.
    End,
    /// SIGHUP: read files again.
    Reload,
    /// SIGUSR1: write a heap profile, or reload if no profile is configured.
    Profile,
}

/// All signals at once.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: Signal,
}

impl Signals {
    /// Starts listening; from now on none of these signals ends the process by itself.
    ///
    /// # Errors
    /// When the system refuses to install a handler.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    /// The next request.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.hang_up.recv() => Request::Reload,
            _ = self.user.recv() => Request::Profile,
        }
    }
}
