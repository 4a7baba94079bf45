//! The reasons for which a client cannot start, or has no connection.

use std::time::Duration;

/// The reason for which a client cannot start, or for which it has no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings make no sense.
    #[error("start client: {reason}")]
    Settings {
        /// The mistake.
        reason: String,
    },
    /// There is no server to connect to.
    #[error("find servers of service {service}: {reason}")]
    Discovery {
        /// The service whose servers were looked for.
        service: String,
        /// The reason why no server is known, and what to check.
        reason: String,
    },
    /// The address cannot be reached.
    #[error("connect: {reason}")]
    Connect {
        /// The reason.
        reason: String,
    },
    /// Something took too long.
    #[error("{doing}: nothing for {} s", after.as_secs_f64())]
    Timeout {
        /// The step that took too long.
        doing: &'static str,
        /// The time-out.
        after: Duration,
    },
    /// Reading or writing failed.
    #[error("{doing}: {reason}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The reason.
        reason: String,
    },
    /// The server closed the connection.
    #[error("server closed the connection{hint}")]
    Closed {
        /// A likely cause, or empty.
        hint: &'static str,
    },
    /// The server does not take the client.
    #[error("server refused: {reason}")]
    Refused {
        /// The server's words.
        reason: String,
        /// The servers that it names instead.
        alternatives: Vec<String>,
    },
    /// The server said goodbye.
    #[error("server said goodbye: {reason}")]
    Goodbye {
        /// The server's words.
        reason: String,
        /// The servers that it names instead.
        alternatives: Vec<String>,
    },
    /// The server breaks the protocol, or speaks another one.
    #[error("protocol error: {reason}")]
    Protocol {
        /// The mistake.
        reason: String,
    },
    /// The client was closed.
    #[error("client was closed")]
    Stopped,
}
