//! Bulrush: a fan-out sync proxy. One watch on the datastore, thousands of agents kept in sync.
//!
//! ```text
//!  etcd ─┐
//!  files ┼─ datastore ─► syncer ─► decoupler ─► validate ─► snapcache ─► syncserver ─► agents
//!  …    ─┘   list+watch   objects     bounded     invalid     persistent    each change
//!                         → updates   hand-over   = absent    map + crumbs  encoded once
//! ```
//!
//! Modules in reading order, which is the data's order.

// The road, in the data's order. (Blank lines keep the formatter from sorting it.)
pub mod model;

pub mod datastore;

pub mod syncer;

pub mod decoupler;

pub mod demand;

pub mod validate;

pub mod snapcache;

pub mod dialect;

pub mod syncproto;

pub mod syncserver;

// Beside the road.
pub mod config;
pub mod debug;
pub mod health;
pub mod http;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod problems;
pub mod replicas;
pub mod sizing;
pub mod status;
mod sync;
pub mod syncclient;
pub mod tasks;
pub mod tls;

// Above it.
pub mod rebalance;

pub mod pipeline;

pub mod daemon;

pub mod preflight;

pub mod cli;

#[cfg(test)]
mod fuzzing;

// The reader of the vectors is shared with the integration tests, for which the library is another crate, and so is paused time.
#[cfg(test)]
extern crate self as bulrush;
#[cfg(test)]
#[path = "../tests/support/paused.rs"]
mod paused;
#[cfg(test)]
#[path = "../tests/support/vectors/mod.rs"]
mod vectors;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
