//! Rules for the values that agents' data planes read, one file per family of values.

pub mod endpoint;
pub mod policy;
