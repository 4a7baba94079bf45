//! Why a connection ended: one value for the log, the metric's label, the goodbye and the tests.

use std::fmt;

use prometheus::IntCounterVec;

use super::average::LOWEST_BYTES_PER_SEC;
use crate::model::SyncerType;

/// Why a connection was closed, or never came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed the connection.
    ClientClosed,
    /// Reading or writing failed; the system's words.
    ConnectionLost(String),
    /// The TLS handshake failed; its words.
    TlsFailed(String),
    /// No complete hello in time (TLS handshake included).
    HandshakeTimeout,
    /// Many connections were in their handshake, and this one had been there for long.
    HandshakeEvicted,
    /// The first message was not a hello, or could not be read.
    NotAHello(String),
    /// The client wants a syncer that does not exist or does not run here.
    UnknownSyncer(String),
    /// The client speaks as a release of Calico that is not served; why, in words.
    NoDialect(String),
    /// As many clients as the server takes at most are there already.
    TooManyConnections,
    /// The client asks for something that we do not offer, in words.
    Unsupported(String),
    /// The client began a long message and did not finish it while others waited for room to do the same.
    UnfinishedMessage,
    /// Something that cannot be read came from the client.
    BadMessage(String),
    /// Something that has no place here came from the client.
    UnexpectedMessage(String),
    /// The client did not acknowledge the decoder restart in time.
    AckTimeout,
    /// The client has not answered pings for too long.
    PongTimeout,
    /// Not one byte could be written for too long.
    WriteTimeout,
    /// The client took its snapshot, or what it lacked, at less than the lowest average rate.
    TooSlow,
    /// More old versions of the data were held by slow clients than allowed, and this client held the oldest.
    OldestVersion,
    /// The client was too far behind, and its grace period is over.
    FellBehind,
    /// The governor closed it: more connections than allowed.
    Rebalanced,
    /// The server drains, and it was this connection's turn.
    Draining,
    /// The server stopped.
    Stopped,
    /// The syncer's cache has ended.
    SyncerEnded(SyncerType),
    /// Something panicked while it worked for this connection; its words.
    Panicked(String),
}

impl CloseReason {
    /// Every value of the `reason` label.
    pub const LABELS: [&'static str; 24] = [
        "client-closed",
        "connection-lost",
        "tls-failed",
        "handshake-timeout",
        "handshake-evicted",
        "not-a-hello",
        "unknown-syncer",
        "no-dialect",
        "too-many-connections",
        "unsupported",
        "unfinished-message",
        "bad-message",
        "unexpected-message",
        "ack-timeout",
        "pong-timeout",
        "write-timeout",
        "too-slow",
        "oldest-version",
        "fell-behind",
        "rebalanced",
        "draining",
        "stopped",
        "syncer-ended",
        "panicked",
    ];

    /// The value of the `reason` label, one of [`Self::LABELS`].
    #[must_use]
    pub fn label(&self) -> &'static str {
        let label = match self {
            Self::ClientClosed => "client-closed",
            Self::ConnectionLost(_) => "connection-lost",
            Self::TlsFailed(_) => "tls-failed",
            Self::HandshakeTimeout => "handshake-timeout",
            Self::HandshakeEvicted => "handshake-evicted",
            Self::NotAHello(_) => "not-a-hello",
            Self::UnknownSyncer(_) => "unknown-syncer",
            Self::NoDialect(_) => "no-dialect",
            Self::TooManyConnections => "too-many-connections",
            Self::Unsupported(_) => "unsupported",
            Self::UnfinishedMessage => "unfinished-message",
            Self::BadMessage(_) => "bad-message",
            Self::UnexpectedMessage(_) => "unexpected-message",
            Self::AckTimeout => "ack-timeout",
            Self::PongTimeout => "pong-timeout",
            Self::WriteTimeout => "write-timeout",
            Self::TooSlow => "too-slow",
            Self::OldestVersion => "oldest-version",
            Self::FellBehind => "fell-behind",
            Self::Rebalanced => "rebalanced",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::SyncerEnded(_) => "syncer-ended",
            Self::Panicked(_) => "panicked",
        };
        debug_assert!(Self::LABELS.contains(&label), "{label} is not listed");
        label
    }

    /// Begins the series of every reason in the metric that counts them: one that begins with its first burst has no increase to
    /// alert on.
    pub(super) fn begin_series(closed: &IntCounterVec) {
        for label in Self::LABELS {
            closed.with_label_values(&[label]);
        }
    }

    /// Whether this is how connections end in everyday life: logged as information, not as a warning.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::ClientClosed | Self::Rebalanced | Self::Draining | Self::Stopped)
    }

    /// Whether the client is to go to another server: the answer here would be the same, or nobody is left to give it.
    #[must_use]
    pub(super) fn sends_elsewhere(&self) -> bool {
        matches!(self, Self::Rebalanced | Self::Draining | Self::Stopped | Self::TooManyConnections)
    }

    /// Whether the connection is beyond telling its client anything. After a panic, nobody knows which of the bytes that are
    /// queued have left.
    #[must_use]
    pub(super) fn peer_is_gone(&self) -> bool {
        matches!(
            self,
            Self::ClientClosed | Self::ConnectionLost(_) | Self::TlsFailed(_) | Self::WriteTimeout | Self::Panicked(_)
        )
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientClosed => f.write_str("the client closed the connection"),
            Self::ConnectionLost(error) => write!(f, "connection lost: {error}"),
            Self::TlsFailed(error) => write!(f, "tls handshake failed: {error}"),
            Self::HandshakeTimeout => f.write_str("no complete hello within the handshake timeout"),
            Self::HandshakeEvicted => {
                f.write_str("too many connections in handshake, and this one's client was silent for longest")
            }
            Self::NotAHello(what) => write!(f, "the first message is not a client hello: {what}"),
            Self::UnknownSyncer(name) => write!(f, "no such syncer: {name:?}"),
            Self::NoDialect(why) => f.write_str(why),
            Self::TooManyConnections => f.write_str("this server has as many connections as it takes at most"),
            Self::Unsupported(what) => f.write_str(what),
            Self::UnfinishedMessage => {
                f.write_str("the client did not finish a long message while others waited for room to send theirs")
            }
            Self::BadMessage(error) => write!(f, "cannot read what the client sent: {error}"),
            Self::UnexpectedMessage(what) => write!(f, "the client sent what has no place here: {what}"),
            Self::AckTimeout => f.write_str("the client did not acknowledge the decoder restart in time"),
            Self::PongTimeout => f.write_str("the client has not answered pings within the pong timeout"),
            Self::WriteTimeout => f.write_str("the client took not one byte within the write timeout"),
            Self::TooSlow => {
                write!(f, "the client took what was sent at less than {LOWEST_BYTES_PER_SEC} bytes a second on average")
            }
            Self::OldestVersion => f.write_str(
                "too many slow clients held old versions of the data in memory, and this client held the oldest",
            ),
            Self::FellBehind => f.write_str("the client is too far behind and its grace period is over"),
            Self::Rebalanced => f.write_str("closed to spread connections over all servers"),
            Self::Draining => f.write_str("the server is shutting down gracefully"),
            Self::Stopped => f.write_str("the server has stopped"),
            Self::SyncerEnded(syncer) => write!(f, "the {syncer} syncer has ended"),
            Self::Panicked(message) => {
                write!(f, "a bug in Bulrush ended this connection, please report it with the log: {message}")
            }
        }
    }
}
