//! The description of a pipeline as data: its sources, each with a few kinds and their processor.

use std::fmt;
use std::sync::Arc;

use super::processor::Processor;
use crate::datastore::Kind;
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

/// One syncer's pipeline.
#[derive(Debug)]
pub struct PipelineSpec {
    /// The syncer that it feeds.
    pub syncer: SyncerName,
    /// The sources that feed it.
    pub sources: Vec<Source>,
    /// The treatment of invalid values, and the kinds by which their problems are counted.
    pub rules: Rules,
    /// Prefix of the keys that are counted, for sharing agents out among replicas.
    pub counts: Option<&'static str>,
}
