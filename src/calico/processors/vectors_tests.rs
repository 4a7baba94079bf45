//! Compares processors with the data-model vectors: objects in, key-value pairs out, byte for byte.
//!
//! A test names its sources (kinds and their processor) and their keys. The integration tests compare whole pipelines
//! with the same vectors.

use super::Context;
use crate::datastore::Kind;
use crate::datastore::memory::MemoryStore;
use crate::model::SyncerName;
use crate::syncer::processor::Processor;
use crate::syncer::spec::Source;
use crate::vectors::data_model::{Case, run_all};

/// Some kinds and the processor that converts them. Kinds of Kubernetes and of etcd may stand side by side.
pub(crate) fn source(kinds: impl Into<Vec<Kind>>, processor: Box<dyn Processor>) -> Source {
    Source { name: "vectors".into(), kinds: kinds.into(), processor }
}

/// Runs all cases of a syncer that feed one of the sources' kinds: every pair whose key satisfies `owns` must come out
/// as the case says, after the list and after each event.
///
/// # Panics
/// With the differences of all cases, or when fewer than `least` of the repository's cases ran.
pub(crate) fn run(syncer: &str, sources: fn(&Context) -> Vec<Source>, owns: fn(&str) -> bool, least: usize) {
    let syncer = SyncerName::intern(syncer).expect("a syncer");
    let sources = |case: &Case| if case.syncer == syncer { sources(&case.context) } else { Vec::new() };
    let ran = run_all(sources, Some(owns), |_| MemoryStore::new());
    assert!(ran >= least, "only {ran} cases of {syncer} ran, and there are {least} in tests/vectors/data-model");
}
