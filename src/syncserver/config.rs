//! The server's settings, as values. Names, files and environment are [`crate::config`]'s business where it exists.

use std::time::Duration;

use crate::dialect::choice::OfUnknownVersions;

/// Port of Calico's Typha.
pub const DEFAULT_PORT: u16 = 5473;

/// Stands for a seed of the server's own choice: replicas that start together must not ping and drop in step.
pub const RANDOM_SEED: u64 = 0;

/// What each of the first 500 clients adds to the time between two rounds. With 500 of them and changes without end that is
/// 62 rounds a second: at some 7 µs for a client and round (docs/performance.md), about a fifth of one processor.
pub(super) const PACE_PER_CLIENT: Duration = Duration::from_micros(32);

/// How the clients of a feed are shared out among its pumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pumps {
    /// How many pumps there are; at least one, at most eight.
    pub count: usize,
    /// How many connections in a row one of them serves; at least one.
    pub row: u64,
}

/// Settings of the server. `Default` gives Typha's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address to listen on; empty means all addresses, IPv4 and IPv6.
    pub host: String,
    /// Port to listen on; 0 lets the system choose.
    pub port: u16,
    /// Updates per message (soft): joining of crumbs stops at this number.
    pub max_message_size: usize,
    /// A client is cut once its grace is over if the first change that it lacks was published longer ago than this.
    pub max_fall_behind: Duration,
    /// How long after its snapshot a client may be further behind than that.
    pub new_client_grace: Duration,
    /// Crumbs that are older than the newest by at least this are joined into one message with those that follow.
    pub min_batching_age: Duration,
    /// Time between pings; up to a tenth is added at random.
    pub ping_interval: Duration,
    /// A client that has not answered for this long is cut; also the wait for an acknowledgement.
    pub pong_timeout: Duration,
    /// From accept to a complete hello, TLS handshake included.
    pub handshake_timeout: Duration,
    /// A client that takes not one byte for this long is cut.
    pub write_timeout: Duration,
    /// The governor closes at most one connection per this time; up to a tenth is added at random.
    pub drop_interval: Duration,
    /// A graceful drain closes all connections within 95 % of this.
    pub shutdown_timeout: Duration,
    /// A graceful drain closes connections at most this far apart.
    pub shutdown_drop_interval_max: Duration,
    /// How many connections the governor allows at first.
    pub max_connections: usize,
    /// Ours: encoded bytes of history that a feed keeps for clients that lag; beyond that they get last values only.
    pub max_lag_bytes: usize,
    /// Ours: updates of history that a feed keeps for clients that lag; beyond that they get last values only.
    pub max_lag_updates: usize,
    /// Ours: an encoded snapshot is given to new clients until it is outdated for this long.
    pub snapshot_max_age: Duration,
    /// Ours: connections that may be in handshake at the same time; the rest wait in the listen queue.
    pub max_handshakes: usize,
    /// Ours: the kernel's send buffer per connection in bytes; `None` leaves it to the system. A small one shows early
    /// that a client has stalled, and bounds what the kernel holds for it.
    pub send_buffer: Option<usize>,
    /// Ours: under load, changes wait at most this long to be sent together, and less with fewer clients (see `pace`). A
    /// change after silence never waits.
    pub pace_max: Duration,
    /// Ours: how far apart rounds of changes are under load, for each of the first clients (see `pace`).
    pub pace_per_client: Duration,
    /// Ours: the pumps of each feed; `None`: one for each worker of the runtime that feeds run on, and 64 connections in a row.
    pub pumps: Option<Pumps>,
    /// Ours: the dialect of clients that do not understand today's policy keys and whose version says nothing.
    pub of_unknown_versions: OfUnknownVersions,
    /// Ours: seed of all jitter, so that a run can be repeated; [`RANDOM_SEED`] for one that nobody else has.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: DEFAULT_PORT,
            max_message_size: 100,
            max_fall_behind: Duration::from_secs(300),
            new_client_grace: Duration::from_secs(300),
            min_batching_age: Duration::from_millis(10),
            ping_interval: Duration::from_secs(10),
            pong_timeout: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(120),
            drop_interval: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(300),
            shutdown_drop_interval_max: Duration::from_secs(1),
            max_connections: 10_000,
            max_lag_bytes: 16 << 20,
            max_lag_updates: 100_000,
            snapshot_max_age: Duration::from_secs(5),
            max_handshakes: 1024,
            send_buffer: Some(256 << 10),
            pace_max: Duration::from_millis(250),
            pace_per_client: PACE_PER_CLIENT,
            pumps: None,
            of_unknown_versions: OfUnknownVersions::Auto,
            seed: RANDOM_SEED,
        }
    }
}
