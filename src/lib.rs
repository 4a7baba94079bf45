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

pub mod cli;
pub mod config;
pub mod daemon;
pub mod datastore;
pub mod debug;
pub mod decoupler;
#[cfg(test)]
mod fuzzing;
pub mod health;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod model;
pub mod pipeline;
pub mod problems;
pub mod snapcache;
pub mod status;
pub mod syncclient;
pub mod syncer;
pub mod syncproto;
pub mod syncserver;
pub mod tasks;
pub mod tls;
pub mod validate;
