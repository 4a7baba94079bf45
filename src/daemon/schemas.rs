//! The schemas of the syncers: read at the start, and again when the operator asks.
//!
//! A schema that does not compile refuses the start. When it is read again, the old ones stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::{error, info};

use crate::config::SyncerConfig;
use crate::datastore::builtin;
use crate::generic::Check;
use crate::generic::documents::Scopes;
use crate::model::SyncerName;
use crate::validate::schema::{Library, SchemaError};

/// The schemas of all syncers, each its own.
#[derive(Debug, Default)]
pub(super) struct Schemas(BTreeMap<SyncerName, One>);

#[derive(Debug)]
struct One {
    config: SyncerConfig,
    library: Arc<ArcSwap<Library>>,
}

impl Schemas {
    /// Reads the schemas of these syncers.
    ///
    /// # Errors
    /// All mistakes in them.
    pub(super) fn load(syncers: &[SyncerConfig]) -> anyhow::Result<Self> {
        let (mut schemas, mut mistakes) = (BTreeMap::new(), String::new());
        for config in syncers {
            match Library::load(&config.schemas) {
                Ok(library) => {
                    let library = Arc::new(ArcSwap::from_pointee(library));
                    schemas.insert(config.name, One { config: config.clone(), library });
                }
                Err(errors) => note(&mut mistakes, config.name, &errors),
            }
        }
        anyhow::ensure!(mistakes.is_empty(), "schemas that cannot be used:{mistakes}");
        Ok(Self(schemas))
    }

    /// Reads all of them again. Those that cannot be used leave the old ones of their syncer in place. Blocks.
    pub(super) fn reload(&self) {
        for (name, One { config, library }) in &self.0 {
            match Library::load(&config.schemas) {
                Ok(new) => {
                    library.store(Arc::new(new));
                    info!(syncer = %name, "the schemas were read again; values are checked by them when they change");
                }
                Err(errors) => {
                    let mut mistakes = String::new();
                    note(&mut mistakes, *name, &errors);
                    error!(syncer = %name, "schemas that cannot be used, the old ones stay:{mistakes}");
                }
            }
        }
    }

    /// The check of a syncer's values; `None`: it has no schemas.
    pub(super) fn check(&self, syncer: SyncerName) -> Option<Check> {
        let One { config, library } = self.0.get(&syncer)?;
        if config.schemas.is_empty() {
            return None;
        }
        let library = Arc::clone(library);
        Some(Arc::new(move |object, old| library.load().check(object, old)))
    }

    /// The scopes of kinds, by the schemas of all syncers and Kubernetes' own kinds.
    pub(super) fn scopes(&self) -> Scopes {
        let libraries: Vec<_> = self.0.values().map(|one| Arc::clone(&one.library)).collect();
        Arc::new(move |group, kind| {
            let told = libraries.iter().find_map(|library| library.load().scope(group, kind));
            told.or_else(|| builtin::find(group, kind).map(|kind| kind.namespaced))
        })
    }

    /// Every kind that the schemas know, with its scope.
    pub(super) fn known_scopes(&self) -> Vec<(String, String, bool)> {
        let of = |one: &One| {
            let library = one.library.load();
            let kinds = library.kinds().filter_map(|kind| {
                let namespaced = library.scope(kind.group, kind.kind)?;
                Some((kind.group.to_owned(), kind.kind.to_owned(), namespaced))
            });
            kinds.collect::<Vec<_>>()
        };
        self.0.values().flat_map(of).collect()
    }
}

fn note(mistakes: &mut String, syncer: SyncerName, errors: &[SchemaError]) {
    for error in errors {
        // Writing to a text cannot fail.
        let _ = write!(mistakes, "\n  syncer {syncer}: {error}");
    }
}
