//! The knowledge that lists, watches and writes of one API server share: the places of kinds, the memory of each selection, the
//! meaning of failures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, sleep_until};

use super::absence::{Absence, POLL_WATCHED};
use super::client::{self, ApiClient};
use super::config::KubernetesConfig;
use super::definitions::Definitions;
use super::failure::{Failure, Resource};
use super::groups::{self, Groups};
use super::kind_state::KindState;
use crate::datastore::inlet::Error;
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::model::object::Dialect;

/// One API server, as it is used.
pub(super) struct Shared {
    pub(super) client: ApiClient,
    pub(super) groups: Groups,
    pub(super) definitions: Definitions,
    /// Objects per page where lists come in pages.
    pub(super) page_limit: u32,
    kinds: Mutex<HashMap<Selection, KindState>>,
}

impl Shared {
    /// Nothing is known of any kind, and nothing is sent.
    pub(super) fn new(client: ApiClient, config: &KubernetesConfig) -> Self {
        Self {
            definitions: Definitions::new(client.clone()),
            client,
            groups: Groups::new(Arc::clone(&config.catalog)),
            page_limit: config.page_limit.max(1),
            kinds: Mutex::default(),
        }
    }

    /// Reads or changes the memory of a selection.
    pub(super) fn with<T>(&self, selection: &Selection, act: impl FnOnce(&mut KindState) -> T) -> T {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        act(kinds.entry(selection.clone()).or_default())
    }

    /// Where a kind is, once the server may be asked about it again.
    pub(super) async fn locate(&self, selection: &Selection) -> Result<(Resource, Dialect), Failure> {
        if !groups::is_native(selection.kind()) {
            self.definitions.follow();
        }
        let until = self.with(selection, |state| state.not_before.take());
        if let Some(until) = until {
            sleep_until(until).await;
        }
        self.groups.locate(selection.kind(), &self.client).await
    }

    /// The server has the kind.
    pub(super) fn found(&self, selection: &Selection) {
        self.with(selection, |state| state.presence.found());
    }

    /// The meaning of the server's answer, given now, that it does not know the kind.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    async fn judge(&self, selection: &Selection) -> Absence {
        // Taken before waiting for the definitions: waiting makes no answer one that lasts.
        let lasts = self.with(selection, |state| state.presence.doubted(Instant::now()));
        let definition = self.definitions.look_up(&self.groups.crd_names(selection.kind())).await;
        self.with(selection, |state| state.presence.judge(definition, lasts))
    }

    /// Waits until it is worthwhile to look for a kind that is absent.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn arrival(&self, selection: &Selection) {
        let (names, is_expected) = (self.groups.crd_names(selection.kind()), self.groups.is_expected(selection.kind()));
        let mut trail = self.definitions.trail(&names);
        let mut until = Instant::now() + POLL_WATCHED;
        loop {
            let definition = trail.now();
            let pause = self.with(selection, |state| state.presence.pause(definition, is_expected));
            // Only ever earlier: definitions of others may change all the time.
            until = until.min(Instant::now() + pause);
            tokio::select! {
                () = sleep_until(until) => return self.with(selection, |state| state.presence.looked(definition)),
                () = trail.changed() => {}
            }
        }
    }

    /// The error for a kind watch, which also decides when the kind is asked for again, and whether it is absent if the server
    /// says that it does not know it.
    pub(super) async fn error(
        &self,
        verb: &str,
        selection: &Selection,
        resource: Option<&Resource>,
        failure: Failure,
        at: &Revision,
    ) -> Error {
        if let Failure::Retry { after: Some(after), .. } = &failure {
            self.with(selection, |state| state.not_before = Some(client::end_of_pause(*after)));
        }
        let kind = selection.kind();
        let somewhere = Resource::new(kind, &kind.group, &kind.version);
        let resource = resource.unwrap_or(&somewhere);
        let failure = match failure {
            Failure::NotFound(said) if groups::is_native(selection.kind()) => Failure::retry(format!(
                "{said}; every API server knows this kind: check the server's address and its path, and what is in between"
            )),
            Failure::NotFound(said) => match self.judge(selection).await {
                Absence::Certain { gone } => return Error::KindAbsent { kind: resource.name(), gone },
                Absence::Uncertain => Failure::retry(format!(
                    "{said}; asking again before the kind counts as missing: the API server may have just begun, or its \
                     definition cannot be read at the moment"
                )),
            },
            other => {
                self.with(selection, |state| state.presence.interrupted());
                other
            }
        };
        failure.into_error(verb, resource, self.client.server(), at)
    }

    /// The meaning of a watch's failure at a position.
    pub(super) fn watch_failed(&self, selection: &Selection, failure: Failure, at: &Revision) -> Failure {
        self.with(selection, |state| state.watch_failed(failure, at))
    }
}

#[cfg(test)]
mod tests;
