//! The fan-out: serves the content of a cache to any number of agents, each at its own pace.
//!
//! ```text
//!                    ┌ feed (felix, gob-snappy) ┐         ┌ connection ─► agent
//!  snapcache ─crumbs─┤ encodes each change once ├─marks───┤ connection ─► agent
//!                    └ feed (felix, native-zstd)┘         └ connection ─► agent
//! ```
//!
//! [`server`] accepts and ends connections; its [`governor`](server::governor) decides when healthy ones have to go. [`client`]
//! has the state machines of one connection. A [`feed`] follows a cache once for all clients of one wire format, keeps the recent
//! history in a [`ring`](feed::ring) and shares a [`snapshot`](feed::snapshot). A client that the ring has left behind gets a
//! [`catch_up`](feed::catch_up).
//!
//! Invariants, whatever clients do:
//! - a client ends with the content of the cache's map, or is disconnected with a reason;
//! - no status is told before the data that it belongs to;
//! - per key, changes come in order; a client that lags may miss intermediate values, never the last one or a deletion;
//! - the same change is encoded once per wire format, and all clients get the same bytes;
//! - nothing waits for a slow client, and its memory is bounded: per feed the ring, the snapshots and one encoded
//!   catch-up; per client one full output queue, one version of the map, and during a catch-up a list of the updates
//!   that it lacks.

#[doc(hidden)]
pub mod benching;
mod calls;
mod client;
mod config;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod feed;
mod jitter;
mod reason;
mod server;
mod wire;

pub use client::transport::{Listener, Stream, TcpInlet, TlsSource};
pub use config::{Config, DEFAULT_PORT, Pumps, RANDOM_SEED};
pub use reason::CloseReason;
pub use server::run::{Bound, Handle, Metrics, Server};
pub use wire::Wire;

#[cfg(test)]
mod tests;
