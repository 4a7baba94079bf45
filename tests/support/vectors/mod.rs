//! The vectors of `tests/vectors`: recorded with Calico's own programs, and what ours are held against.
//!
//! Unit tests of the library and the integration tests read them with this one reader.

pub(crate) mod data_model;
pub(crate) mod files;
mod lean;
