//! The options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::{Parser, ValueEnum};

/// Most kinds of a run: the limit of a datastore.
const MOST_KINDS: usize = 1_000;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// The start over objects in etcd, beside Calico's own objects in the same etcd.
    Etcd,
    /// From an edit of one file among many to the update at a client.
    Folder,
    /// CPU at rest with many kinds, in a folder and in an API server.
    Idle,
}

#[derive(Clone, Debug, Parser)]
#[command(about = "Measures a daemon that serves objects of any kind")]
pub(crate) struct Args {
    /// Measurements to make, with commas between [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// etcd: objects of some 1 KiB, and as many of Calico's.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) objects: usize,
    /// etcd: starts of each; the results are medians.
    #[arg(long, default_value_t = 3)]
    pub(crate) repeat: usize,
    /// folder: files with one object each.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) files: usize,
    /// folder: edits, one after the other; the result has the median.
    #[arg(long, default_value_t = 10)]
    pub(crate) edits: usize,
    /// idle: kinds, with one object each.
    #[arg(long, default_value_t = 300)]
    pub(crate) kinds: usize,
    /// idle: seconds over which CPU time is taken.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Seconds from in sync until the daemon counts as at rest: its first history is forgotten then.
    #[arg(long, default_value_t = 20)]
    settle: u64,
    /// Start this program instead of the daemon just built.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
    /// Small numbers, only to show that it works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// Fills in the numbers of `--quick`, and makes the checks that clap cannot make.
    pub(crate) fn complete(mut self) -> anyhow::Result<Self> {
        if self.quick {
            (self.objects, self.repeat, self.files, self.edits) = (1_000, 1, 100, 2);
            (self.kinds, self.seconds, self.settle) = (10, 2, 1);
        }
        ensure!(self.objects > 0 && self.repeat > 0, "--objects and --repeat must be at least 1");
        ensure!(self.files > 0 && self.edits > 0, "--files and --edits must be at least 1");
        ensure!(self.seconds > 0, "--seconds must be at least 1");
        ensure!((1..=MOST_KINDS).contains(&self.kinds), "--kinds must be 1 to {MOST_KINDS}");
        Ok(self)
    }

    /// The measurements to make.
    pub(crate) fn scenarios(&self) -> &[Scenario] {
        if self.scenario.is_empty() { Scenario::value_variants() } else { &self.scenario }
    }

    /// Time from in sync until rest.
    pub(crate) fn settle(&self) -> Duration {
        Duration::from_secs(self.settle)
    }
}
