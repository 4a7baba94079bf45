//! The API of a Kubernetes cluster as a datastore.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use super::client::ApiClient;
use super::config::{ConfigError, KubernetesConfig};
use super::shared::Shared;
use super::{kinds, list, watch};
use crate::datastore::filter;
use crate::datastore::inlet::{Datastore, Error, ListPage, WatchBatch};
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::tasks::TaskRegistry;

/// The API of a Kubernetes cluster as a datastore. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct KubernetesStore {
    pub(super) shared: Arc<Shared>,
}

impl KubernetesStore {
    /// Reads the configuration's files and prepares the client. Nothing is sent yet: an API server that is away shows as
    /// [`Error::Retry`] of lists and watches.
    ///
    /// # Errors
    /// The fault of the configuration, its files included.
    pub fn connect(config: KubernetesConfig) -> Result<Self, ConfigError> {
        let client = ApiClient::new(&config)?;
        Ok(Self::over(client, &config))
    }

    /// A datastore over a client that exists already: another transport, a proxy, a test.
    #[must_use]
    pub fn with_client(client: kube::Client, config: &KubernetesConfig) -> Self {
        Self::over(ApiClient::fixed(client, config), config)
    }

    /// A panic of the task that watches definitions of kinds is a failure of `tasks`, for the caller to end the process with. To
    /// be called before the first list.
    pub fn report_to(&self, tasks: &TaskRegistry) {
        self.shared.definitions.report_to(tasks);
    }

    /// The API server's address.
    #[must_use]
    pub fn server(&self) -> &str {
        self.shared.client.server()
    }

    fn over(client: ApiClient, config: &KubernetesConfig) -> Self {
        Self { shared: Arc::new(Shared::new(client, config)) }
    }
}

impl fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesStore").field("server", &self.shared.client.server()).finish_non_exhaustive()
    }
}

impl Datastore for KubernetesStore {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        let (pages, left) = (list::pages(Arc::clone(&self.shared), selection.clone()), left_to_filter(selection));
        pages.map(move |page| Ok(filter::page(&left, page?))).boxed()
    }

    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        let batches = watch::batches(Arc::clone(&self.shared), selection.clone(), from.clone());
        let left = left_to_filter(selection);
        batches.map(move |batch| Ok(filter::batch(&left, batch?))).boxed()
    }

    fn kinds(&self, patterns: &[Pattern]) -> BoxStream<'static, Result<KindsNow, Error>> {
        kinds::kinds(Arc::clone(&self.shared), patterns.to_vec()).boxed()
    }

    fn arrival(&self, selection: &Selection) -> Option<BoxFuture<'static, ()>> {
        let (shared, selection) = (Arc::clone(&self.shared), selection.clone());
        Some(Box::pin(async move { shared.arrival(&selection).await }))
    }
}

/// The part of a selection that the server cannot make: several namespaces. It selects by labels, and its answer counts.
fn left_to_filter(selection: &Selection) -> Selection {
    selection.clone().without_labels()
}
