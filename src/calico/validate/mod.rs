//! Calico's rules for values that may be distributed.

#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod resource;
pub mod rules;
