//! Dialects: the content of a cache in the keys and values of a released line of Calico, for agents of that line.
//!
//! ```text
//!  SnapCache ─┬──────────────────────────────────────────► feeds of agents of Calico's development branch
//!             └─ Table (felix, v3.31) ─ Mirror ──► feeds of 3.31's agents
//!                made for the first of them, dropped some time after the last
//! ```
//!
//! [`choice`] says which dialect a client gets. A [`view`] is the difference between two dialects as pure functions: it
//! turns the cache's keys ([`keys`]) and values ([`values`]) into the line's, and puts the data that the pipeline
//! carries [aside](crate::calico::aside) in their place. [`tables`] keeps a table for each dialect in use; equal
//! entries share their memory with the cache.
//!
//! Source of all facts here: the Typhas of the newest patch of each line, on a real etcd and a real API server
//! (docs/operations.md, section "Agents of several releases").
//!
//! Invariants:
//! - a table is a function of the cache's content alone, never of its history: so all replicas spell each key alike,
//!   before and after a restart, and no agent receives both spellings of a policy;
//! - a table has a crumb for each of the cache's, with the same number, moment and status.

pub mod choice;
mod keys;
pub mod tables;
mod values;
mod view;

pub use view::View;
