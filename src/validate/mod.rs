//! Validation: every value is checked before it is distributed. Its faults are counted, and logged once.
//!
//! Sits between a syncer and its snapshot cache. The rules are the values' own ([`Validate`]); nothing here does I/O.

pub mod filter;
pub mod key_counter;
pub mod schema;

pub use crate::model::finding::{Finding, Findings, Severity, Validate};
