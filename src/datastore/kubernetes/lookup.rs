//! Single answers of the API server as they are, for commands that inspect a cluster: nothing is watched, kept or tried again.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::timeout;

use super::client::ApiClient;
use super::config::{ConfigError, KubernetesConfig};
use super::failure::{Failure, Resource};
use super::groups::{Groups, is_native};
use crate::datastore::catalog::Catalog;
use crate::model::object::Kind;

/// How long one answer may take. Somebody waits at a terminal, and an API server that needs longer is an answer too.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// Requests per second: all of them are over within some seconds, and come once.
const QPS: f32 = 50.0;
/// Requests that may come at once.
const BURST: u32 = 100;

/// An API server that can be asked. Cheap to clone.
#[derive(Clone)]
pub struct Lookup {
    client: ApiClient,
    catalog: Arc<Catalog>,
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup").field("server", &self.server()).finish_non_exhaustive()
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This.
    Found(Value),
    /// The API server does not know what was asked for.
    Missing(String),
    /// The API server knows us, and we may not ask for it.
    Forbidden(String),
    /// Anything else, in words: no connection, no credentials, an answer that cannot be read.
    Failed(String),
}

impl Answer {
    /// The answer, if there is one.
    #[must_use]
    pub fn found(self) -> Option<Value> {
        match self {
            Self::Found(value) => Some(value),
            Self::Missing(_) | Self::Forbidden(_) | Self::Failed(_) => None,
        }
    }

    /// Why there is no answer; empty if there is one.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Found(_) => "",
            Self::Missing(reason) | Self::Forbidden(reason) | Self::Failed(reason) => reason,
        }
    }
}

/// A kind's place in the API of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// API group; empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Lower-case plural.
    pub plural: String,
    /// Path of all its objects.
    pub path: String,
    /// Whether every API server has it.
    pub native: bool,
}

impl Place {
    fn of(resource: Resource, native: bool) -> Self {
        let path = resource.path(None);
        Self { group: resource.group, version: resource.version, plural: resource.plural, path, native }
    }

    /// `pods`, `ippools.crd.projectcalico.org`.
    #[must_use]
    pub fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }
}

impl Lookup {
    /// Reads the configuration's files. Nothing is sent yet.
    ///
    /// # Errors
    /// The fault of the configuration, its files included.
    pub fn connect(config: &KubernetesConfig) -> Result<Self, ConfigError> {
        let config = KubernetesConfig { qps: QPS, burst: BURST, ..config.clone() };
        Ok(Self { client: ApiClient::new(&config)?, catalog: config.catalog })
    }

    /// The API server's address.
    #[must_use]
    pub fn server(&self) -> &str {
        self.client.server()
    }

    /// Reads something.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn get(&self, path_and_query: &str) -> Answer {
        answer(timeout(ANSWER_LIMIT, self.client.get(path_and_query)).await)
    }

    /// Has the API server answer a question that is put as an object, for example a `SelfSubjectAccessReview`.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the server stores nothing for such questions.
    pub async fn ask(&self, path: &str, question: &Value) -> Answer {
        let sent = self.client.write(Method::POST, path, question.to_string().into_bytes());
        answer(timeout(ANSWER_LIMIT, sent).await)
    }

    /// Finds out where kinds are in this server's API. The result says nothing about whether they are served.
    ///
    /// # Errors
    /// Why the list of API groups cannot be had.
    pub async fn places(&self, kinds: &[Kind]) -> Result<Vec<Place>, String> {
        let groups = Groups::new(Arc::clone(&self.catalog));
        let mut places = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let located = timeout(ANSWER_LIMIT, groups.locate(kind, &self.client)).await;
            let (resource, _) =
                located.map_err(|_| no_answer())?.map_err(|failure| answer(Ok(Err(failure))).reason().to_owned())?;
            places.push(Place::of(resource, is_native(kind)));
        }
        Ok(places)
    }
}

fn no_answer() -> String {
    format!("no answer within {ANSWER_LIMIT:?}")
}

fn answer(outcome: Result<Result<bytes::Bytes, Failure>, tokio::time::error::Elapsed>) -> Answer {
    match outcome {
        Ok(Ok(body)) => match serde_json::from_slice(&body) {
            Ok(value) => Answer::Found(value),
            Err(error) => Answer::Failed(format!("the answer cannot be read: {error}")),
        },
        Ok(Err(Failure::NotFound(reason))) => Answer::Missing(reason),
        Ok(Err(Failure::Forbidden(reason))) => Answer::Forbidden(reason),
        Ok(Err(
            Failure::Retry { reason, .. }
            | Failure::Failed(reason)
            | Failure::Unauthorized(reason)
            | Failure::Conflict(reason)
            | Failure::PositionGone(reason)
            | Failure::Refused(reason)
            | Failure::TooLarge(reason),
        )) => Answer::Failed(reason),
        Err(_) => Answer::Failed(no_answer()),
    }
}
