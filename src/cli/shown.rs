//! The common arguments of `watch` and `dump` besides the server: the keys that they show, and the form.

use clap::{Args, ValueEnum};

/// Arguments of the commands that show keys and values.
#[derive(Args, Clone, Debug)]
pub struct ShownArgs {
    /// Only keys that start with this; may be given several times
    #[arg(short, long, value_name = "KEY PREFIX")]
    pub prefix: Vec<String>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// Forms of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Rows, for people.
    Table,
    /// JSON lines, for programs.
    Json,
    /// YAML documents.
    Yaml,
}
