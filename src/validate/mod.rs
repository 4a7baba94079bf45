//! Validation: an invalid value becomes an absent one, is counted, and is logged once with its reason.
//!
//! Sits between a syncer and its snapshot cache. Rules are pure functions over typed values; nothing here does I/O.

#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod filter;
pub mod node_counter;
pub mod resource;
pub mod rules;

pub(crate) use crate::model::valid::invalid;
pub use crate::model::valid::{Invalid, Validate};
