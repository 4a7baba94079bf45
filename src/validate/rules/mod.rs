//! The rules, one file per family of values.

pub mod endpoint;
