//! The command line: what can be asked of the binary. Each command takes its arguments, its input and a place to print to, and
//! gives an exit status.

pub mod config;
pub mod connect;
pub mod dump;
pub mod local;
pub mod preflight;
mod render;
pub mod status;
pub mod watch;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub use crate::config::EXIT_USAGE;
use crate::config::table::DEFAULT_FILE;

/// Something went wrong on the way.
pub const EXIT_FAILURE: u8 = 1;

/// A fan-out sync proxy: one watch on the datastore, thousands of agents kept in sync
///
/// Without a command the daemon runs, as Typha does.
#[derive(Clone, Debug, Parser)]
#[command(name = "bulrush", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// The daemon's configuration file; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// What to do instead of running the daemon.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What can be done instead of running the daemon.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print the version
    Version,
    /// Follow a server: print what it holds, then every change
    Watch(watch::WatchArgs),
    /// Print what a server holds, once
    Dump(dump::DumpArgs),
    /// Print every option with its value and where that comes from, or check them
    Config(config::ConfigArgs),
    /// Print the state of a running server
    Status(status::StatusArgs),
    /// Look a cluster over before Bulrush takes Typha's place, or compare a running Typha with Bulrush
    Preflight(preflight::PreflightArgs),
}

/// The arguments without Calico's way to choose the program within its image (`component typha`): a Deployment whose image alone
/// was replaced still says it, as arguments or after `/usr/bin/calico`, which our image has as well.
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.into_iter().collect();
    if arguments.get(1..3).is_some_and(|words| words[0] == "component" && words[1] == "typha") {
        arguments.drain(1..3);
    }
    arguments
}

/// The terminal's width, if standard output is one.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// The exit status after printing. A reader that has seen enough (`| head`) is no failure.
fn ended(printed: io::Result<()>) -> io::Result<u8> {
    match printed {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
