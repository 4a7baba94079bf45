//! Publication: which of several datastores' values count, and when agents get the changes.
//!
//! Between validation and the snapshot cache, for syncers of any kind. [`candidates`] knows all values of each key, [`strategy`] when to publish, and
//! [`stage`] does it. A publication is one crumb, whatever its size.

pub mod candidates;
pub mod stage;
pub mod strategy;

pub use self::candidates::{Conflict, Conflicts};
