//! The datastores of the configuration, each with the watches of its kinds.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::select_all;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::source::Source;
use crate::calico::bootstrap::{InitOptions, initialise};
use crate::calico::catalog::catalog;
use crate::calico::cluster::Cluster;
use crate::calico::release::Release;
use crate::config::{DatastoreConfig, DatastoreType, GLOBAL};
use crate::datastore::catalog::Catalog;
use crate::datastore::file::FileStatus;
use crate::syncer::kind_watch::{KindHub, KindStatus};
use crate::tasks::{TaskFailure, TaskRegistry};

/// A datastore that is open and not watched yet.
#[derive(Debug)]
pub(super) struct Store {
    /// Its configuration, with its name.
    pub(super) config: DatastoreConfig,
    /// The datastore, and the settings of its type.
    pub(super) source: Source,
    /// The watches of its kinds, to subscribe to.
    pub(super) hub: KindHub,
}

impl Store {
    /// Opens all datastores. `cluster` is told the release of their Calico, `of_any_kind` is the knowledge about kinds of all
    /// datastores but Calico's. A datastore that is away is no error.
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub(super) fn open_all(
        configs: &[DatastoreConfig],
        cluster: &watch::Sender<Option<Release>>,
        of_any_kind: &Arc<Catalog>,
    ) -> anyhow::Result<Vec<Self>> {
        let open = |config: &DatastoreConfig| {
            let is_calicos = config.name == GLOBAL;
            let known = if is_calicos { catalog(None) } else { Arc::clone(of_any_kind) };
            let source = Source::open(config, known).with_context(|| format!("open datastore {}", config.name))?;
            let mut hub = KindHub::new(source.datastore.clone(), rand::random());
            if is_calicos {
                hub = hub.with_policy(Cluster::of(cluster.subscribe()));
            }
            Ok(Self { config: config.clone(), source, hub })
        };
        configs.iter().map(open).collect()
    }

    /// The datastore with this name.
    pub(super) fn named<'a>(stores: &'a mut [Self], name: &str) -> Option<&'a mut Self> {
        stores.iter_mut().find(|store| store.config.name == name)
    }

    /// The view of the datastore for other parts.
    pub(super) fn view(&self) -> StoreView {
        StoreView {
            name: self.config.name.clone(),
            datastore_type: self.config.datastore_type,
            location: self.source.location.clone(),
            kinds: self.hub.statuses(),
            files: self.source.files.clone(),
        }
    }

    /// Starts one supervised task that writes missing objects and then watches the kinds. Returns the datastore.
    pub(super) fn start(self, tasks: &TaskRegistry, stop: &CancellationToken) -> Source {
        let Self { config, source, hub } = self;
        let options = InitOptions { read_only: config.read_only, cluster_types: source.cluster_types.clone() };
        let writable = source.writable.clone().filter(|_| config.name == GLOBAL);
        let cancel = stop.clone();
        let name = if config.name == GLOBAL { "watches".to_owned() } else { format!("watches-{}", config.name) };
        tasks.spawn(name, async move {
            // Components expect certain objects in a fresh datastore. They must exist before agents are told that they are in sync.
            let (may_serve, told) = oneshot::channel();
            let initialising = async {
                match writable {
                    Some(store) => initialise(&*store, &options, may_serve).await,
                    None => drop(may_serve),
                }
            };
            let watching = async {
                // Either the objects exist, or the sender was dropped because there are none to write.
                if cancel.run_until_cancelled(told).await.is_some() {
                    hub.run(cancel.clone()).await;
                }
            };
            tokio::join!(cancel.run_until_cancelled(initialising), watching);
        });
        source
    }
}

/// A datastore as other parts see it.
#[derive(Clone, Debug)]
pub(super) struct StoreView {
    /// Its name in the configuration.
    pub(super) name: String,
    datastore_type: DatastoreType,
    location: String,
    kinds: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
    /// Only for a folder.
    pub(super) files: Option<watch::Receiver<FileStatus>>,
}

/// The types of datastores, for people.
pub(super) fn types(views: &[StoreView]) -> String {
    views.iter().map(|view| view.datastore_type.to_string()).collect::<Vec<_>>().join(", ")
}

/// Endpoints and paths of datastores, for people.
pub(super) fn locations(views: &[StoreView]) -> String {
    views.iter().map(|view| view.location.as_str()).collect::<Vec<_>>().join(", ")
}

/// All kinds that are watched.
pub(super) fn kinds(views: &[StoreView]) -> Vec<KindStatus> {
    let of = |view: &StoreView| -> Vec<KindStatus> {
        view.kinds.borrow().iter().map(|kind| kind.borrow().clone()).collect()
    };
    views.iter().flat_map(of).collect()
}

/// Waits for a task of a datastore to fail. There must be a datastore.
///
/// # Cancel safety
/// Cancel safe: a failure is taken only when the call returns.
pub(super) async fn failure(sources: &[Source]) -> TaskFailure {
    select_all(sources.iter().map(|source| Box::pin(source.tasks.failure()))).await.0
}
