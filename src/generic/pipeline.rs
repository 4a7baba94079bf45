//! The description of a pipeline of any kinds: one inlet per datastore, in the order of precedence.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::documents::{self, Documents, Form, Wanted};
use super::key;
use super::objects::{Choices, Objects};
use super::subject::Check;
use crate::datastore::catalog::Catalog;
use crate::datastore::labels::Labels;
use crate::datastore::{Datastore, Kind, Pattern, Selection};
use crate::model::SyncerName;
use crate::syncer::kind_watch::Joiner;
use crate::syncer::processor::Processor;
use crate::syncer::spec::{Inlet, PipelineSpec, Publishing};
use crate::validate::filter::{OnInvalid, Rules};

/// A syncer as its section of the configuration describes it.
#[derive(Clone)]
pub struct Request {
    /// Its name.
    pub syncer: SyncerName,
    /// The kinds.
    pub kinds: Vec<Pattern>,
    /// The namespaces; none: all.
    pub namespaces: BTreeSet<String>,
    /// The labels.
    pub labels: Labels,
    /// The part of folders; empty: all.
    pub folder: PathBuf,
    /// Where a value leads that is not valid.
    pub on_invalid: OnInvalid,
    /// The status is content, too.
    pub with_status: bool,
    /// The check of values; `None`: all are good.
    pub check: Option<Check>,
    /// Changes when values have to be checked again.
    pub again: watch::Receiver<()>,
    /// The scopes of kinds.
    pub catalog: Arc<Catalog>,
    /// When changes are published.
    pub publishing: Publishing,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request").field("syncer", &self.syncer).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// A datastore that a syncer reads.
#[derive(Debug)]
pub struct From {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// The datastore.
    pub datastore: Arc<dyn Datastore>,
    /// Its watches.
    pub joiner: Joiner,
    /// The time after which the syncer is in sync without it; `None`: never.
    pub spared_after: Option<Duration>,
    /// Where its objects are texts.
    pub texts: Texts,
}

/// The texts of a datastore's objects.
#[derive(Clone, Debug)]
pub enum Texts {
    /// Values of etcd below a prefix, in this form.
    Values(String, Form),
    /// Files below a folder.
    Files(Arc<Path>),
    /// An API server keeps none.
    None,
}

/// The pipeline of a syncer that reads these datastores, the first of which counts most.
#[must_use]
pub fn spec(request: &Request, from: Vec<From>) -> PipelineSpec {
    let inlets = from.into_iter().zip(0..).map(|(from, rank)| inlet(request, from, rank)).collect();
    PipelineSpec {
        syncer: request.syncer,
        sources: Vec::new(),
        inlets,
        publishing: Some(request.publishing),
        rules: Rules { on_invalid: request.on_invalid, family: key::family },
        counts: None,
    }
}

fn inlet(request: &Request, from: From, rank: u8) -> Inlet {
    let From { name, datastore, joiner, spared_after, texts } = from;
    let choices = Choices {
        with_status: request.with_status,
        keep_last_good: request.on_invalid == OnInvalid::KeepLast,
        check: request.check.clone(),
    };
    let fixed = match &texts {
        Texts::Values(prefix, _) => Some(vec![documents::kind(prefix)]),
        Texts::Files(_) | Texts::None => None,
    };
    let Request { kinds: patterns, namespaces, labels, folder, .. } = request.clone();
    let wanted = Wanted {
        patterns: patterns.clone(),
        namespaces: namespaces.clone(),
        labels: labels.clone(),
        catalog: request.catalog.clone(),
    };
    let processor = move |kind: &Kind| -> Box<dyn Processor> {
        let choices = choices.clone();
        match &texts {
            Texts::Values(prefix, form) => Box::new(Documents::new(prefix, *form, wanted.clone(), rank, choices)),
            Texts::Files(folder) => Box::new(Objects::new(kind, rank, choices, Some(folder.clone()))),
            Texts::None => Box::new(Objects::new(kind, rank, choices, None)),
        }
    };
    let whole = fixed.is_some();
    let select = move |kind: Kind| {
        let all = Selection::from(kind);
        if whole {
            return all;
        }
        all.in_namespaces(namespaces.iter().map(String::as_str)).with_these_labels(labels.clone()).below(&folder)
    };
    Inlet {
        again: request.again.clone(),
        name,
        datastore,
        patterns,
        fixed,
        joiner,
        select: Arc::new(select),
        processor: Arc::new(processor),
        spared_after,
    }
}
