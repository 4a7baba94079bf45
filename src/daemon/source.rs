//! Opens the datastore that the configuration names.

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::watch;

use crate::calico::pipelines::Flavour;
use crate::config::{DatastoreConfig, DatastoreType};
use crate::datastore::Datastore;
use crate::datastore::catalog::{Catalog, ValueForm};
use crate::datastore::etcd::{EtcdConfig, EtcdStore};
use crate::datastore::file::{FileConfig, FileStatus, FileStore};
use crate::datastore::kubernetes::KubernetesStore;
use crate::datastore::write::Writable;
use crate::generic::documents::{self, Form};
use crate::generic::pipeline::Texts;
use crate::tasks::TaskRegistry;

/// The datastore, and the settings of its type.
pub(crate) struct Source {
    /// The datastore itself.
    pub(crate) datastore: Arc<dyn Datastore>,
    /// The same datastore, if Bulrush writes to it at start.
    pub(crate) writable: Option<Arc<dyn Writable>>,
    /// Words that are added to the cluster information at start.
    pub(crate) cluster_types: Vec<String>,
    /// Its kinds and conversions.
    pub(crate) flavour: Flavour,
    /// Its place, for people.
    pub(crate) location: String,
    /// The state of a folder's files.
    pub(crate) files: Option<watch::Receiver<FileStatus>>,
    /// The texts of objects of any kind.
    pub(crate) texts: Texts,
    /// The datastore's own tasks. A failure of one ends the process.
    pub(crate) tasks: TaskRegistry,
    /// Reads it again now.
    pub(crate) reload: Option<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Source {
    /// Opens it. A datastore that is away is no error; a configuration that cannot work is.
    ///
    /// `known` is the knowledge about kinds: Calico's, or that of schemas.
    pub(crate) fn open(config: &DatastoreConfig, known: Arc<Catalog>) -> anyhow::Result<Self> {
        match config.datastore_type {
            DatastoreType::Etcdv3 => Self::etcd(config, known),
            DatastoreType::File => Self::folder(config, known),
            DatastoreType::Kubernetes => Self::kubernetes(config),
        }
    }

    fn etcd(config: &DatastoreConfig, mut known: Arc<Catalog>) -> anyhow::Result<Self> {
        let texts = config.etcd.documents.as_ref().map_or(Texts::None, |documents| {
            // The bytes are for the processor to read, whatever they are.
            Arc::make_mut(&mut known).values.insert(documents::kind(&documents.prefix), ValueForm::Raw);
            Texts::Values(documents.prefix.clone(), if documents.raw { Form::Raw } else { Form::Objects })
        });
        let etcd = EtcdConfig {
            ca_file: config.etcd.ca_file.clone(),
            cert_file: config.etcd.cert_file.clone(),
            key_file: config.etcd.key_file.clone(),
            catalog: known,
            ..EtcdConfig::new(config.etcd.endpoints.iter().cloned())
        };
        let store = Arc::new(EtcdStore::connect(etcd).context("set up etcd")?);
        Ok(Self {
            datastore: store.clone(),
            writable: Some(store),
            cluster_types: vec!["typha".to_owned()],
            flavour: Flavour::Etcd,
            location: config.etcd.endpoints.join(","),
            texts,
            files: None,
            tasks: TaskRegistry::new(),
            reload: None,
        })
    }

    fn kubernetes(config: &DatastoreConfig) -> anyhow::Result<Self> {
        let store = Arc::new(KubernetesStore::connect(config.kubernetes.clone()).context("set up the Kubernetes API")?);
        let tasks = TaskRegistry::new();
        store.report_to(&tasks);
        Ok(Self {
            datastore: store.clone(),
            location: store.server().to_owned(),
            writable: Some(store),
            cluster_types: ["typha", "kdd"].map(str::to_owned).to_vec(),
            flavour: Flavour::Kubernetes,
            texts: Texts::None,
            files: None,
            tasks,
            reload: None,
        })
    }

    fn folder(config: &DatastoreConfig, known: Arc<Catalog>) -> anyhow::Result<Self> {
        let path = config.file.path.clone().context("DatastoreType = file needs DatastorePath")?;
        let (location, texts) = (path.display().to_string(), Texts::Files(Arc::from(path.as_path())));
        let crate::config::FileConfig { quiet, serve_incomplete, mass_delete_guard, .. } = config.file;
        let tasks = TaskRegistry::new();
        let folder = FileConfig { quiet, serve_incomplete, mass_delete_guard, ..FileConfig::new(path, known) };
        let store = FileStore::open_supervised(folder, &tasks);
        Ok(Self {
            files: Some(store.status()),
            datastore: Arc::new(store.clone()),
            writable: None,
            cluster_types: Vec::new(),
            flavour: Flavour::Folder,
            texts,
            location,
            tasks,
            reload: Some(Box::new(move || store.reload())),
        })
    }
}
