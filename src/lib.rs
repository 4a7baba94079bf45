//! Bulrush is a fan-out sync proxy: one watch on the datastore, thousands of agents kept in sync. This crate is the program, and a
//! library for agents, which follow the data of a Bulrush or of a Calico Typha:
//!
//! ```text
//!  server ─► tls ─► syncclient ─► model ─► agent
//!            or TCP  protocols,   keys, values,
//!                    reconnects   updates, statuses
//! ```
//!
//! - [`tls`]: certificates from files, read again when they change, and the name that the server must have.
//! - [`syncclient`]: the [`Client`](syncclient::Client), its settings, its [events](syncclient::SyncEvent) and its
//!   [errors](syncclient::Error). It connects again when a server is lost, and tells its agent only the difference.
//! - [`model`]: the data that the events carry.
//!
//! [`syncclient`] begins with an example.
//!
//! # Features
//!
//! | feature | content |
//! | --- | --- |
//! | `client` | the three modules above, without Kubernetes, etcd, HTTP and metrics; needs no `protoc` to build |
//! | `typed` | `client`, and `syncclient::typed`: objects of any kind as the agent's own types |
//! | `discovery` | `client`, and `syncclient::discovery`, which finds servers by their Kubernetes service; needs no `protoc` either |
//! | `server` (default) | the program: both of these, the daemon and its commands |
//! | `jemalloc` (default) | `server` with jemalloc as its allocator, and its heap profiles |
//!
//! An agent without discovery depends on `bulrush` with `default-features = false, features = ["client"]`.
//!
//! All other modules are the program's own. They are public only for its binary, tests, benches and fuzz targets, and change without
//! notice. ARCHITECTURE.md describes them.

#![cfg_attr(
    not(feature = "server"),
    allow(rustdoc::broken_intra_doc_links, reason = "hidden rooms mention rooms that such a build does not have")
)]

// The program's road, in the data's order. (Blank lines keep the formatter from sorting it.)
pub mod model;

#[cfg(feature = "discovery")]
#[doc(hidden)]
pub mod datastore;

#[cfg(feature = "discovery")]
#[doc(hidden)]
pub mod syncer;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod decoupler;

#[cfg(feature = "discovery")]
#[doc(hidden)]
pub mod demand;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod validate;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod snapcache;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod publish;

#[doc(hidden)]
pub mod calico;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod generic;

#[doc(hidden)]
pub mod syncproto;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod outlet;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod syncserver;

pub mod tls;

pub mod syncclient;

// Beside the road.
#[cfg(feature = "discovery")]
#[doc(hidden)]
pub mod replicas;
#[cfg(feature = "discovery")]
#[cfg_attr(not(feature = "server"), allow(unused_imports, reason = "most of it is for the server"))]
mod sync;
#[cfg(feature = "discovery")]
#[doc(hidden)]
pub mod tasks;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod config;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod debug;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod health;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod http;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod listen;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod logging;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod metrics;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod problems;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod sizing;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod status;

// Above it.
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod rebalance;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod pipeline;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod daemon;

#[cfg(feature = "server")]
#[doc(hidden)]
pub mod preflight;

#[cfg(feature = "server")]
#[doc(hidden)]
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
