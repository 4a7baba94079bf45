//! The fan-out: what a cache holds, to any number of agents, each at its own pace.
//!
//! ```text
//!                    ┌ feed (felix, gob-snappy) ┐         ┌ connection ─► agent
//!  snapcache ─crumbs─┤ encodes each change once ├─marks───┤ connection ─► agent
//!                    └ feed (felix, native-zstd)┘         └ connection ─► agent
//! ```
//!
//! [`server`] accepts and ends connections. A [`connection`] drives the state machines of one client: [`handshake`],
//! [`inbound`], [`liveness`], [`sender`]. A [`feed`] follows a cache once for all clients of one wire format, keeps the
//! recent history in a [`ring`] and shares a [`snapshot`], which is cut into [`pieces`]; whoever the ring has left behind gets a
//! [`catch_up`]. [`governor`] says when healthy connections have to go.
//!
//! Invariants, whatever clients do:
//! - what a client ends with equals the cache's map, or it is disconnected with a reason;
//! - no status is told before the data that it belongs to;
//! - per key, changes come in order; a client that lags may miss intermediate values, never the last one or a deletion;
//! - the same change is encoded once per wire format, and the same bytes go to everybody;
//! - nobody waits for a slow client, and what is held for it is bounded: ring, snapshots and one encoded catch-up per feed, and per
//!   client one filled output queue, one version of the map, and while it catches up a list of what it lacks.

mod accepting;
mod average;
#[doc(hidden)]
pub mod benching;
mod calls;
mod catch_up;
mod config;
mod connection;
mod difference;
mod errands;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod feed;
mod feeds;
mod filter;
mod governor;
mod handshake;
mod inbound;
mod inspection;
mod jitter;
mod join;
mod line;
mod link;
mod liveness;
mod made;
mod pace;
mod peers;
mod pieces;
mod pinned;
mod places;
mod pump;
mod reason;
mod ring;
mod room;
mod sender;
mod server;
mod sharing;
mod slots;
mod snapshot;
mod status;
mod tracker;
mod transport;
mod turns;
mod wire;

pub use config::{Config, DEFAULT_PORT, Pumps, RANDOM_SEED};
pub use filter::Filter;
pub use handshake::Agent;
pub use peers::Peers;
pub use reason::CloseReason;
pub use server::{Bound, Handle, Metrics, Server};
pub use status::{ClientState, ClientStatus};
pub use transport::{Listener, Stream, TcpInlet, TlsSource};
pub use wire::Wire;

#[cfg(test)]
mod tests;
