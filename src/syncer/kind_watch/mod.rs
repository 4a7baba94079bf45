//! One list-and-watch per selection of a kind and process, shared by every syncer that uses it; mostly that of a whole kind.
//!
//! Fed by a [`Datastore`](crate::datastore::Datastore); feeds watcher caches with [`KindEvent`]s. [`machine`] decides what to do next and in which phase
//! the kind is, without I/O and clock; [`driver`] does it and publishes the phase; [`hub`] owns one driver per selection; a [`policy`] that is handed in says which kinds are missed.
//!
//! Invariants:
//! - every subscriber gets the same events in the same order, beginning with a whole list;
//! - a watch that merely ends is reopened where it was; a list is made again only when the position is gone, when the
//!   datastore was away for [`machine::LOST_AFTER`], or when a subscriber joins later;
//! - nothing is ever reported as deleted because a datastore, a kind or a connection is away: deletes that happened
//!   unseen are found by the caches, by comparison with the next whole list;
//! - a subscriber that is slow slows the reading from the datastore; nothing is buffered beyond its bounded channel;
//! - while no subscriber can make use of changes yet ([`Demand`](crate::demand::Demand)), they are gathered, and handed on together.

mod driver;
mod event;
mod hub;
mod machine;
mod policy;
mod status;

pub use self::event::{KindEvent, Subscriber};
pub use self::hub::{Joiner, KindHub};
pub use self::machine::LOST_AFTER;
pub use self::policy::{Judgement, KindPolicy, LOOK_SELDOM, Plain};
pub use self::status::{KindStatus, Phase};

#[cfg(test)]
mod tests;
