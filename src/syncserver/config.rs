//! The server's settings, as values. The struct is [`crate::config`]'s, where each field is filled beside the text of its option.

pub use crate::config::{Pumps, RANDOM_SEED, ServerConfig as Config};

/// Port of Calico's Typha.
pub const DEFAULT_PORT: u16 = 5473;
