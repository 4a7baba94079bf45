//! Validation: every value is checked before it is distributed. Its faults are counted, and logged once.
//!
//! Sits between a syncer and its snapshot cache. The rules are the values' own ([`Validate`]). Nothing here does I/O, but a value that is not valid may look
//! into its file for the place of a field.

pub mod filter;
pub mod key_counter;
pub mod schema;

pub use crate::model::finding::{Finding, Findings, Severity, Validate};
