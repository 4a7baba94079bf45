//! The vectors of `tests/vectors`: recorded with Calico's own programs, and compared with ours.
//!
//! The library's unit tests and the integration tests share this reader.

pub(crate) mod data_model;
pub(crate) mod files;
mod lean;
