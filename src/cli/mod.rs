//! The subcommands. Each takes its arguments, its input and a place to print to, and gives an exit status.

pub mod config;
pub mod status;
