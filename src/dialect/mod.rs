//! Dialects: the content of a cache in the keys and values of a released line of Calico, for its agents.
//!
//! ```text
//!  SnapCache ─┬──────────────────────────────────────────► feeds of agents that speak as Calico's development branch
//!             └─ Table (felix, v3.31) ─ Mirror ──► feeds of 3.31's agents
//!                made when the first of them comes, gone some time after the last
//! ```
//!
//! [`choice`] says which dialect a client gets. A [`view`] is the whole difference between two dialects as pure functions: from the
//! cache's keys ([`keys`]) and values ([`values`]) to the line's, and what the pipeline carries [aside](crate::model::aside) put in its
//! place. [`tables`] keeps a table for each dialect that somebody speaks; what is the same in both shares its memory.
//!
//! Source of all facts here: the Typhas of the newest patch of each line, on a real etcd and a real API server (docs/protocol.md).
//!
//! Invariants:
//! - a table is a function of the cache's content alone, never of its history: so every replica, before and after a restart, spells
//!   each key alike, and no agent is given both spellings of a policy;
//! - a table has a crumb for each of the cache's, with the same number, moment and status.

pub mod choice;
mod keys;
pub mod tables;
mod values;
mod view;

pub use view::View;
