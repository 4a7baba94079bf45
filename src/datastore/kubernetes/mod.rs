//! The Kubernetes API as a datastore: native kinds, and Calico's as custom resources.
//!
//! Fed by an API server, feeds the kind watches. [`config`] says where it is and as whom we speak, [`client`] sends requests
//! within bounds, [`groups`] finds the API group that holds Calico's kinds, [`list`] reads a kind as a stream or in pages,
//! [`watch`] follows it, [`lines`] cuts what a watch sends, [`object`] reads the few fields that are needed here, [`crds`]
//! notices kinds that appear later, [`failure`] turns answers into what to do next, [`init`] is the little that is written.
//!
//! Invariants:
//! - a kind costs one list and one watch: the stream that delivered a list goes on as the watch that follows it;
//! - the position of a batch never runs ahead of the events delivered;
//! - an object that cannot be read affects itself only;
//! - whatever the server asks for (`Retry-After`) is waited for, within a limit, and kinds come back one after another
//!   ([`client::end_of_pause`]).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};

use tokio::time::{Instant, sleep_until};

use self::client::ApiClient;
use self::crds::Crds;
use self::failure::{Failure, Resource};
use self::groups::Groups;
use self::watch::OpenWatch;
use super::{Datastore, Dialect, Error, Kind, ListPage, WatchBatch};
use crate::model::Revision;

mod client;
pub mod config;
mod crds;
mod failure;
mod groups;
mod init;
mod limit;
mod lines;
mod list;
mod object;
pub mod proxy;
mod watch;

pub use config::{CalicoGroup, ConfigError, KubernetesConfig, Scope};

/// The API of a Kubernetes cluster as a datastore. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct KubernetesStore {
    shared: Arc<Shared>,
}

struct Shared {
    client: ApiClient,
    groups: Groups,
    crds: Crds,
    scope: Option<Scope>,
    /// Objects per page where lists come in pages.
    page_limit: u32,
    /// Kinds that this server does not give as a stream.
    only_pages: Mutex<HashSet<Kind>>,
    /// Kinds about which the server does not want to be asked for a while.
    not_before: Mutex<HashMap<Kind, Instant>>,
    /// Streams that have delivered a list and go on as its watch.
    continuing: Mutex<HashMap<Kind, OpenWatch>>,
}

impl Shared {
    /// Where a kind is, once the server may be asked about it again.
    async fn locate(&self, kind: &Kind) -> Result<(Resource, Dialect), Failure> {
        let until = lock(&self.not_before).remove(kind);
        if let Some(until) = until {
            sleep_until(until).await;
        }
        self.groups.locate(kind, &self.client).await
    }

    /// The path of a kind's objects with a query, within the scope.
    fn url(&self, kind: &Kind, resource: &Resource, query: &[(&str, &str)]) -> String {
        let scope = self.scope.as_ref().filter(|_| kind.namespaced);
        let mut url = resource.path(scope.map(|scope| scope.namespace.as_str()));
        let labels = scope.map(|scope| ("labelSelector", scope.label_selector.as_str()));
        let query = query.iter().copied().chain(labels).filter(|(_, value)| !value.is_empty());
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(query);
        url.push('?');
        url.push_str(&text.finish());
        url
    }

    /// The error for a kind watch, which also decides when the kind is asked for again.
    fn error(&self, verb: &str, kind: &Kind, resource: Option<&Resource>, failure: Failure, at: &Revision) -> Error {
        if let Failure::Retry { after: Some(after), .. } = &failure {
            lock(&self.not_before).insert(kind.clone(), client::end_of_pause(*after));
        }
        let somewhere = Resource::new(kind, &kind.group, &kind.version);
        let error = failure.into_error(verb, resource.unwrap_or(&somewhere), self.client.server(), at);
        match error {
            Error::KindAbsent { kind: name, .. } => {
                Error::KindAbsent { kind: name, gone: self.crds.confirm_absent(kind, &self.groups.crd_names(kind)) }
            }
            other => other,
        }
    }

    /// Keeps a stream for the watch that follows its list.
    fn keep(&self, kind: &Kind, open: OpenWatch) {
        lock(&self.continuing).insert(kind.clone(), open);
    }

    /// The stream that goes on from `from`, where a list left one.
    fn continued(&self, kind: &Kind, from: &Revision) -> Option<OpenWatch> {
        let kept = lock(&self.continuing).remove(kind);
        kept.filter(|open| open.revision() == from)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KubernetesStore {
    /// Reads the configuration's files and prepares the client. Nothing is sent yet: an API server that is away shows as
    /// [`Error::Retry`] of lists and watches.
    ///
    /// # Errors
    /// What is wrong with the configuration, its files included.
    pub fn connect(config: KubernetesConfig) -> Result<Self, ConfigError> {
        let client = ApiClient::new(&config)?;
        Ok(Self::over(client, &config))
    }

    /// A datastore over a client that exists already: another transport, a proxy, a test.
    #[must_use]
    pub fn with_client(client: kube::Client, config: &KubernetesConfig) -> Self {
        Self::over(ApiClient::fixed(client, config), config)
    }

    /// The API server's address.
    #[must_use]
    pub fn server(&self) -> &str {
        self.shared.client.server()
    }

    fn over(client: ApiClient, config: &KubernetesConfig) -> Self {
        let groups = Groups::new(config.calico_group);
        let shared = Shared {
            crds: Crds::new(client.clone()),
            client,
            groups,
            scope: config.scope.clone(),
            page_limit: config.page_limit.max(1),
            only_pages: Mutex::default(),
            not_before: Mutex::default(),
            continuing: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl fmt::Debug for KubernetesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubernetesStore").field("server", &self.shared.client.server()).finish_non_exhaustive()
    }
}

impl Datastore for KubernetesStore {
    fn list(&self, kind: &Kind) -> BoxStream<'static, Result<ListPage, Error>> {
        let (shared, found) = (Arc::clone(&self.shared), kind.clone());
        list::pages(Arc::clone(&self.shared), kind.clone()).inspect_ok(move |_| shared.crds.found(&found)).boxed()
    }

    fn watch(&self, kind: &Kind, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        watch::batches(Arc::clone(&self.shared), kind.clone(), from.clone()).boxed()
    }

    fn arrival(&self, kind: &Kind) -> Option<BoxFuture<'static, ()>> {
        let (shared, kind) = (Arc::clone(&self.shared), kind.clone());
        Some(Box::pin(async move {
            let names = shared.groups.crd_names(&kind);
            shared.crds.arrival(&kind, &names).await;
        }))
    }
}
