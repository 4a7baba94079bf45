//! The schemas of the syncers: read at the start, and again when the operator asks.
//!
//! A schema that does not compile refuses the start. When it is read again, the old ones stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tracing::{error, info};

use crate::config::SyncerConfig;
use crate::datastore::catalog::Catalog;
use crate::generic::Check;
use crate::model::SyncerName;
use crate::validate::schema::{Library, SchemaError};

/// The schemas of all syncers, each its own.
#[derive(Debug, Default)]
pub(super) struct Schemas(BTreeMap<SyncerName, One>);

#[derive(Debug)]
struct One {
    config: SyncerConfig,
    library: Arc<ArcSwap<Library>>,
    /// Told when there is another library.
    renewed: watch::Sender<()>,
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
                    schemas
                        .insert(config.name, One { config: config.clone(), library, renewed: watch::Sender::new(()) });
                }
                Err(errors) => note(&mut mistakes, config.name, &errors),
            }
        }
        anyhow::ensure!(mistakes.is_empty(), "schemas that cannot be used:{mistakes}");
        Ok(Self(schemas))
    }

    /// Reads all of them again. Those that cannot be used leave the old ones of their syncer in place. Blocks.
    pub(super) fn reload(&self) {
        for (name, One { config, library, renewed }) in self.0.iter().filter(|(_, one)| !one.config.schemas.is_empty())
        {
            match Library::load(&config.schemas) {
                Ok(new) => {
                    library.store(Arc::new(new));
                    renewed.send_replace(());
                    info!(syncer = %name, "the schemas were read again, and all values are checked by them");
                }
                Err(errors) => {
                    let mut mistakes = String::new();
                    note(&mut mistakes, *name, &errors);
                    error!(syncer = %name, "schemas that cannot be used, the old ones stay:{mistakes}");
                }
            }
        }
    }

    /// The check of a syncer's values, and a change of it; no check: it has no schemas. The syncer must be one of them.
    pub(super) fn check(&self, syncer: SyncerName) -> (Option<Check>, watch::Receiver<()>) {
        let One { config, library, renewed } = &self.0[&syncer];
        let library = Arc::clone(library);
        let check: Check = Arc::new(move |object, old| library.load().check(object, old));
        ((!config.schemas.is_empty()).then_some(check), renewed.subscribe())
    }

    /// The scopes of kinds: by these schemas, and of Kubernetes' own kinds.
    pub(super) fn catalog(&self) -> Catalog {
        let mut catalog = Catalog::of_kubernetes();
        for library in self.0.values().map(|one| one.library.load()) {
            for kind in library.kinds() {
                if let Some(namespaced) = library.scope(kind.group, kind.kind) {
                    catalog.scopes.insert((kind.group.to_owned().into(), kind.kind.to_owned().into()), namespaced);
                }
            }
        }
        catalog
    }
}

fn note(mistakes: &mut String, syncer: SyncerName, errors: &[SchemaError]) {
    for error in errors {
        // Writing to a text cannot fail.
        let _ = write!(mistakes, "\n  syncer {syncer}: {error}");
    }
}
