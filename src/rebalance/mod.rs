//! Shares connections out among the servers of one Kubernetes service.
//!
//! ```text
//!  EndpointSlices ─KindEvents─► Replicas ─┐ count          ┌─ limit ──► governor: closes the newest above it
//!                                         ├► Rebalancer ───┤
//!  felix pipeline ─nodes──────────────────┘ formula        └─ peers ──► goodbyes: where to go instead
//! ```
//!
//! [`replicas`](crate::replicas) knows the servers of the service, [`formula`] says how many connections a server should
//! have, [`driver`] ties them to the clock and to the server. Where Typha polls every 30 seconds, a change counts here within a
//! second. The client's discovery reads the same [`Replicas`](crate::replicas::Replicas).
//!
//! Invariants: an unknown figure never makes a connection close; the limit is set only when it changes; nothing else watches
//! `EndpointSlice`s for this: the events come from the process's only watch of that kind.

mod driver;
mod formula;

pub use driver::{Rebalancer, Settings, Steered};
pub use formula::{Figures, Limits, max_connections};
