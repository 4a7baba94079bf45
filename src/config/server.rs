//! Settings of the server that agents connect to, as values.

use std::time::Duration;

use crate::calico::dialect::choice::OfUnknownVersions;

/// Lets the server choose a random seed: replicas that start together must not ping and drop in step.
pub const RANDOM_SEED: u64 = 0;

/// Time that each of the first 500 clients adds to the time between two rounds. With 500 clients and constant changes there are
/// 62 rounds a second; at some 7 µs for each client and round (docs/performance.md), that is about a fifth of one processor.
pub(super) const PACE_PER_CLIENT: Duration = Duration::from_micros(32);

/// The sharing of a feed's clients among its pumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pumps {
    /// Number of pumps; at least one, at most eight.
    pub count: usize,
    /// Number of connections in a row that one pump serves; at least one.
    pub row: u64,
}

/// Settings of the server. `Default` gives the defaults of the options. Durations and counts are more than zero unless their
/// text says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Host name or address to listen on; empty means all addresses, IPv4 and IPv6.
    pub host: String,
    /// Port to listen on. 0 lets the system choose; no option can set it.
    pub port: u16,
    /// Updates per message, as a soft limit: once a message has this number, no further crumb is joined to it.
    pub max_message_size: usize,
    /// Once its grace period is over, a client is disconnected if the first change that it lacks is older than this.
    pub max_fall_behind: Duration,
    /// Grace period: for this long after its snapshot, a client may be further behind than that.
    pub new_client_grace: Duration,
    /// A crumb that is older than the newest one by at least this is joined with the following crumbs into one message.
    pub min_batching_age: Duration,
    /// Time between pings; up to a tenth is added at random.
    pub ping_interval: Duration,
    /// A client that has not answered for this long is disconnected; also the time-out of an acknowledgement. More than
    /// twice `ping_interval`.
    pub pong_timeout: Duration,
    /// Time from accept to a complete hello, with the TLS handshake.
    pub handshake_timeout: Duration,
    /// A client that takes no byte for this long is disconnected.
    pub write_timeout: Duration,
    /// The governor closes at most one connection per this time; up to a tenth is added at random.
    pub drop_interval: Duration,
    /// A graceful drain closes all connections within 95 % of this time.
    pub shutdown_timeout: Duration,
    /// Longest time between two closes of a graceful drain.
    pub shutdown_drop_interval_max: Duration,
    /// Number of connections that the governor allows at first.
    pub max_connections: usize,
    /// Ours: encoded bytes of history that a feed keeps for clients that lag. A client that lags more gets only the last values.
    pub max_lag_bytes: usize,
    /// Ours: updates of history that a feed keeps for clients that lag. A client that lags more gets only the last values.
    pub max_lag_updates: usize,
    /// Ours: new clients get an encoded snapshot until it has been outdated for this long.
    pub snapshot_max_age: Duration,
    /// Ours: most connections in handshake at the same time; further ones wait in the listen queue.
    pub max_handshakes: usize,
    /// Ours: the kernel's send buffer per connection in bytes; `None` leaves it to the system. A small buffer shows early
    /// that a client has stalled, and limits the memory that the kernel uses for it.
    pub send_buffer: Option<usize>,
    /// Ours: under load, changes wait at most this long to be sent together, and less with fewer clients. A change after
    /// silence never waits. With zero, no change waits.
    pub pace_max: Duration,
    /// Ours, without an option: time between two rounds of changes under load, for each of the first 500 clients.
    pub pace_per_client: Duration,
    /// Ours, without an option: the pumps of each feed. `None` means one for each worker of the feeds' runtime, and 64
    /// connections in a row.
    pub pumps: Option<Pumps>,
    /// Ours: the dialect for clients that do not understand today's policy keys and whose version has no number.
    pub of_unknown_versions: OfUnknownVersions,
    /// Ours, without an option: seed of all jitter, so that a run can be repeated; [`RANDOM_SEED`] chooses one at random.
    pub seed: u64,
}
