//! Rules for the values that agents' data planes read.

pub mod policy;
