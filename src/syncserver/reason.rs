//! The reasons why connections end: one value for the log, the metric's label, the goodbye and the tests.

use prometheus::IntCounterVec;

use crate::model::SyncerName;
use crate::syncproto::native::NO_SUCH_SYNCER;

/// The lowest average rate at which a client may take a snapshot or a catch-up. Agents on the slowest links are well above it:
/// Calico's clients give up on a server when a message of a thousand updates, some 100 KiB, takes longer than 30 s.
pub(crate) const LOWEST_BYTES_PER_SEC: u64 = 4 << 10;

/// The reason why a connection was closed, or never came about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The client closed the connection.
    #[error("the client closed the connection")]
    ClientClosed,
    /// Reading or writing failed; with the system's message.
    #[error("connection lost: {0}")]
    ConnectionLost(String),
    /// The TLS handshake failed; with its message.
    #[error("tls handshake failed: {0}")]
    TlsFailed(String),
    /// No complete hello came in time (TLS handshake included).
    #[error("no complete hello within the handshake timeout")]
    HandshakeTimeout,
    /// Many connections were in their handshake, and this client had been silent for longest.
    #[error("too many connections in handshake, and this one's client was silent for longest")]
    HandshakeEvicted,
    /// The first message was not a hello, or could not be read.
    #[error("the first message is not a client hello: {0}")]
    NotAHello(String),
    /// The client wants a syncer that does not exist or does not run here.
    #[error("{}: {wanted:?}; this server has {running}", NO_SUCH_SYNCER)]
    UnknownSyncer {
        /// The name that the client gave, or its beginning.
        wanted: String,
        /// The names of those that run here.
        running: String,
    },
    /// The client's release of Calico is not served; with an explanation.
    #[error("{0}")]
    NoDialect(String),
    /// The server has its maximum number of clients.
    #[error("this server has its maximum number of connections")]
    TooManyConnections,
    /// The client asks for something that we do not offer; with an explanation.
    #[error("{0}")]
    Unsupported(String),
    /// The client began a long message and did not finish it while others waited for room to do the same.
    #[error("the client did not finish a long message while others waited for room to send theirs")]
    UnfinishedMessage,
    /// The client sent something that cannot be read.
    #[error("the client sent a message that cannot be read: {0}")]
    BadMessage(String),
    /// The client sent a message that is not allowed at this point.
    #[error("the client sent an unexpected message: {0}")]
    UnexpectedMessage(String),
    /// The client did not acknowledge the decoder restart in time.
    #[error("the client did not acknowledge the decoder restart in time")]
    AckTimeout,
    /// The client has not answered pings for too long.
    #[error("the client has not answered pings within the pong timeout")]
    PongTimeout,
    /// The client has taken not one byte for too long.
    #[error("the client took not one byte within the write timeout")]
    WriteTimeout,
    /// The client took its snapshot or catch-up at less than the lowest average rate.
    #[error("the client took its data at less than {LOWEST_BYTES_PER_SEC} bytes a second on average")]
    TooSlow,
    /// More old versions of the data were held by slow clients than allowed, and this client held the oldest.
    #[error("too many slow clients held old versions of the data in memory, and this client held the oldest")]
    OldestVersion,
    /// The client was too far behind, and its grace period is over.
    #[error("the client is too far behind and its grace period is over")]
    FellBehind,
    /// The governor closed it: there are more connections than allowed.
    #[error("closed to spread connections over all servers")]
    Rebalanced,
    /// The server drains, and this connection was next.
    #[error("the server is shutting down gracefully")]
    Draining,
    /// The server stopped.
    #[error("the server has stopped")]
    Stopped,
    /// The syncer's cache has ended.
    #[error("the {0} syncer has ended")]
    SyncerEnded(SyncerName),
    /// A panic happened while this connection was served; with its message.
    #[error("a bug in Bulrush ended this connection, please report it with the log: {0}")]
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
            Self::UnknownSyncer { .. } => "unknown-syncer",
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

    /// Begins the series of every reason in the metric that counts them. An alert sees no increase in a series that
    /// begins with its first burst.
    pub(crate) fn begin_series(closed: &IntCounterVec) {
        for label in Self::LABELS {
            closed.with_label_values(&[label]);
        }
    }

    /// Whether connections end like this in everyday life: logged as information, not as a warning.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::ClientClosed | Self::Rebalanced | Self::Draining | Self::Stopped)
    }

    /// Whether the client should go to another server: here it would get the same answer, or none.
    #[must_use]
    pub(crate) fn sends_elsewhere(&self) -> bool {
        matches!(self, Self::Rebalanced | Self::Draining | Self::Stopped | Self::TooManyConnections)
    }

    /// Whether the client can no longer be told anything. After a panic it is unknown which of the queued bytes have
    /// left.
    #[must_use]
    pub(crate) fn peer_is_gone(&self) -> bool {
        matches!(
            self,
            Self::ClientClosed | Self::ConnectionLost(_) | Self::TlsFailed(_) | Self::WriteTimeout | Self::Panicked(_)
        )
    }
}
