//! The Kubernetes API as a datastore: native kinds, and Calico's as custom resources.
//!
//! Fed by an API server, feeds the kind watches. [`config`] says where it is and as whom we speak, [`client`] sends requests
//! within bounds, [`groups`] finds the API group that holds Calico's kinds, [`list`] reads a kind as a stream or in pages,
//! [`watch`] follows it, [`lines`] cuts what a watch sends, [`object`] reads the few fields that are needed here, [`crds`]
//! knows which kinds are missing and notices when they appear, [`failure`] turns answers into what to do next, [`init`] is the little that is written,
//! [`lookup`] asks once, for commands that inspect a cluster.
//!
//! Invariants:
//! - a kind costs one list and one watch: the stream that delivered a list goes on as the watch that follows it;
//! - the position of a batch never runs ahead of the events delivered;
//! - an object that cannot be read affects itself only;
//! - a kind is absent only if that is confirmed, its objects are gone only if its definition was there and is gone, and
//!   neither is ever true of a kind that every API server has;
//! - whatever the server asks for (`Retry-After`) is waited for, within a limit, and kinds come back one after another
//!   ([`client::end_of_pause`]).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use tokio::time::{Instant, sleep_until};

use self::client::ApiClient;
use self::crds::{Absence, Crds};
use self::failure::{Failure, Resource};
use self::groups::Groups;
use self::watch::OpenWatch;
use super::{Datastore, Dialect, Error, Kind, ListPage, WatchBatch};
use crate::model::Revision;
use crate::tasks::TaskRegistry;

mod client;
pub mod config;
mod crds;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod failure;
mod groups;
mod init;
mod limit;
mod lines;
mod list;
pub mod lookup;
mod object;
pub mod proxy;
mod watch;

pub use config::{CalicoGroup, ConfigError, KubernetesConfig, Scope};

/// So many failures of the server itself in a row at the same position, and the kind is listed: some three seconds. Calico's
/// figure. What is no answer of the server's does not count: being away or overloaded costs no list.
const MAX_FAILURES_AT: u32 = 5;

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
    /// Positions at which the server failed, and how often in a row.
    failed_at: Mutex<HashMap<Kind, (Revision, u32)>>,
    /// Streams that have delivered a list and go on as its watch.
    continuing: Mutex<HashMap<Kind, OpenWatch>>,
}

impl Shared {
    /// Where a kind is, once the server may be asked about it again.
    async fn locate(&self, kind: &Kind) -> Result<(Resource, Dialect), Failure> {
        if !groups::is_native(kind) {
            self.crds.follow();
        }
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

    /// The error for a kind watch, which also decides when the kind is asked for again, and whether it is absent if the server
    /// says that it does not know it.
    async fn error(
        &self,
        verb: &str,
        kind: &Kind,
        resource: Option<&Resource>,
        failure: Failure,
        at: &Revision,
    ) -> Error {
        if let Failure::Retry { after: Some(after), .. } = &failure {
            lock(&self.not_before).insert(kind.clone(), client::end_of_pause(*after));
        }
        let somewhere = Resource::new(kind, &kind.group, &kind.version);
        let resource = resource.unwrap_or(&somewhere);
        let failure = match failure {
            Failure::NotFound(said) if groups::is_native(kind) => Failure::retry(format!(
                "{said}; every API server knows this kind: check the server's address and its path, and what is in between"
            )),
            Failure::NotFound(said) => match self.crds.judge(kind, &self.groups.crd_names(kind)).await {
                Absence::Certain { gone } => return Error::KindAbsent { kind: resource.name(), gone },
                Absence::Uncertain => Failure::retry(format!(
                    "{said}; asking again before the kind counts as missing: the API server may have just begun, or its \
                     definition cannot be read at the moment"
                )),
            },
            other => {
                self.crds.interrupted(kind);
                other
            }
        };
        failure.into_error(verb, resource, self.client.server(), at)
    }

    /// What the failure of a watch at a position means: if the server itself fails there again and again (it cannot convert an
    /// old version of an object, say), the position is given up.
    fn watch_failed(&self, kind: &Kind, failure: Failure, at: &Revision) -> Failure {
        let (Failure::Failed(reason) | Failure::Refused(reason)) = failure else { return failure };
        let mut failed_at = lock(&self.failed_at);
        let (position, times) = failed_at.entry(kind.clone()).or_insert_with(|| (at.clone(), 0));
        if position != at {
            (*position, *times) = (at.clone(), 0);
        }
        *times += 1;
        if *times < MAX_FAILURES_AT {
            return Failure::Failed(reason);
        }
        failed_at.remove(kind);
        Failure::PositionGone(format!("{reason}; {MAX_FAILURES_AT} times in a row"))
    }

    /// A watch was in order to its end.
    fn watch_ended(&self, kind: &Kind) {
        lock(&self.failed_at).remove(kind);
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

    /// A panic of the task that watches definitions of kinds is a failure of `tasks`, for the caller to end the process with. To
    /// be called before the first list.
    pub fn report_to(&self, tasks: &TaskRegistry) {
        self.shared.crds.report_to(tasks);
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
            failed_at: Mutex::default(),
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
        list::pages(Arc::clone(&self.shared), kind.clone()).boxed()
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
