//! The command line. Each command takes its arguments, its input and a place to print to, and gives an exit status.

mod collect;
pub mod config;
pub mod connect;
pub mod dump;
mod exit;
pub mod explain;
pub mod get;
mod lines;
pub mod local;
pub mod preflight;
mod render;
pub mod screen;
pub mod shell;
pub mod shown;
pub mod status;
pub mod validate;
pub mod watch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

pub use exit::{EXIT_FAILURE, EXIT_USAGE};

use crate::config::table::DEFAULT_FILE;

/// A fan-out sync proxy: one watch on the datastore, thousands of agents kept in sync
///
/// Without a command the daemon runs, as Typha does.
#[derive(Clone, Debug, Parser)]
#[command(name = "bulrush", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// The daemon's configuration file; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// The command, if the daemon is not to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the version
    Version,
    /// Follow a server: print its data, then every change
    Watch(watch::WatchArgs),
    /// Print the data of a server, once
    Dump(dump::DumpArgs),
    /// Print objects of any kind that a syncer has
    Get(get::GetArgs),
    /// Print every option with its value and its source, or check them
    Config(config::ConfigArgs),
    /// Print the state of a running server
    Status(status::StatusArgs),
    /// Look a cluster over before Bulrush takes Typha's place, or compare a running Typha with Bulrush
    Preflight(preflight::PreflightArgs),
    /// Print the script that completes commands and options in a shell
    Completion(shell::CompletionArgs),
    /// Print the manual page, for `man -l -`
    Man,
    /// Check files of objects by their schemas, and show every mistake with its place
    Validate(validate::ValidateArgs),
    /// Print the schema of a kind, or of a field of it
    Explain(explain::ExplainArgs),
}

/// Forms of the output of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// JSON, for programs.
    Json,
}

/// The arguments without the words `component typha`, by which Calico chooses the program within its image. A Deployment of which only
/// the image was replaced still has them, as arguments or after `/usr/bin/calico`, which is in our image as well.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.into_iter().collect();
    if arguments.get(1..3).is_some_and(|words| words[0] == "component" && words[1] == "typha") {
        arguments.drain(1..3);
    }
    arguments
}

#[cfg(test)]
mod tests;
