//! The client library.

pub mod rotation;
pub mod tracker;
