//! The description of a pipeline as data: its sources, each with a few kinds and their processor; or datastores whose kinds are found
//! while it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::kind_watch::Joiner;
use super::processor::Processor;
use crate::datastore::{Datastore, Kind, Pattern, Selection};
use crate::model::SyncerName;
use crate::validate::filter::Rules;

/// The source of one watcher cache: kinds whose objects share keys, and their processor.
pub struct Source {
    /// Calico's name of the resulting data, for logs.
    pub name: Arc<str>,
    /// The kinds to watch. Never empty.
    pub kinds: Vec<Kind>,
    /// Converts the objects of all `kinds`.
    pub processor: Box<dyn Processor>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// Tells which objects of a kind are wanted.
pub type Select = Arc<dyn Fn(Kind) -> Selection + Send + Sync>;

/// Makes the processor of a kind.
pub type MakeProcessor = Arc<dyn Fn(&Kind) -> Box<dyn Processor> + Send + Sync>;

/// A datastore whose kinds are found while the syncer runs.
pub struct Inlet {
    /// The datastore's name, for logs and problems.
    pub name: Arc<str>,
    /// The datastore, which is asked for its kinds.
    pub datastore: Arc<dyn Datastore>,
    /// The kinds that are wanted.
    pub patterns: Vec<Pattern>,
    /// The kinds, where they need not be asked for.
    pub fixed: Option<Vec<Kind>>,
    /// The datastore's watches, to join.
    pub joiner: Joiner,
    /// The objects of a kind that are wanted.
    pub select: Select,
    /// Makes the processor of a kind.
    pub processor: MakeProcessor,
    /// The time after which the syncer is in sync without this datastore; `None`: never.
    pub spared_after: Option<Duration>,
    /// Changes when all objects have to go through the pipeline again.
    pub again: watch::Receiver<()>,
}

impl fmt::Debug for Inlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inlet").field("name", &self.name).field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

/// When the changes of a syncer are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publishing {
    /// After this much time without a further change...
    pub quiet: Duration,
    /// ...or this long after the first change at the latest.
    pub max_delay: Duration,
}

/// One syncer's pipeline.
#[derive(Debug)]
pub struct PipelineSpec {
    /// The syncer that it feeds.
    pub syncer: SyncerName,
    /// The sources that feed it.
    pub sources: Vec<Source>,
    /// The datastores that feed it beside them, the one that counts most first.
    pub inlets: Vec<Inlet>,
    /// When changes are published; `None`: at once, in crumbs of bounded size.
    pub publishing: Option<Publishing>,
    /// The treatment of invalid values, and the kinds by which their problems are counted.
    pub rules: Rules,
    /// Prefix of the keys that are counted, for sharing agents out among replicas.
    pub counts: Option<&'static str>,
}
