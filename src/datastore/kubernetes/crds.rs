//! Notices when the definition of a kind that was missing appears: a watch of the names of all `CustomResourceDefinition`s,
//! begun when the first kind is missing.
//!
//! Where that watch is not permitted (Calico's own role does not have it), missing kinds are simply looked for now and then.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use super::super::Kind;
use super::client::ApiClient;
use super::lock;

/// How often to look for a missing kind of Calico's when definitions cannot be watched: it is probably just being installed.
const POLL_CALICO: Duration = Duration::from_secs(5);
/// How often to look for another missing kind then.
const POLL_OTHERS: Duration = Duration::from_secs(60);
/// How often to look for a missing kind although its definition is watched and did not appear: the kind may be served
/// without one, by an aggregated API server.
const POLL_WATCHED: Duration = Duration::from_secs(300);
/// A definition is there a moment before its kind is served: first and longest pause before looking (again).
const SETTLE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
/// Pause before the definitions are asked for again when that is not permitted.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);

/// The definitions of the cluster, as far as they are known.
#[derive(Debug, Default)]
struct Known {
    /// Whether the watch is in good order.
    watching: bool,
    /// Names, with a number that grows when one changes.
    names: HashMap<String, u64>,
    changes: u64,
}

/// Watches definitions once somebody waits for one.
pub(super) struct Crds {
    client: ApiClient,
    known: watch::Sender<Known>,
    task: OnceLock<AbortOnDropHandle<()>>,
    /// For which state of a definition a kind was looked for, and how often.
    looked: Mutex<HashMap<Kind, (u64, u32)>>,
    /// Missing kinds of which it is not certain yet that their objects are gone.
    unconfirmed: Mutex<HashSet<Kind>>,
}

impl Crds {
    pub(super) fn new(client: ApiClient) -> Self {
        Self {
            client,
            known: watch::Sender::new(Known::default()),
            task: OnceLock::new(),
            looked: Mutex::default(),
            unconfirmed: Mutex::default(),
        }
    }

    /// Whether the cluster certainly has no definition of a missing kind; `names` are those that it can have. If not, the
    /// kind is looked for again as soon as that is certain.
    pub(super) fn confirm_absent(&self, kind: &Kind, names: &[String]) -> bool {
        let is_certain = {
            let known = self.known.borrow();
            known.watching && !names.iter().any(|name| known.names.contains_key(name))
        };
        let mut unconfirmed = lock(&self.unconfirmed);
        if is_certain {
            unconfirmed.remove(kind);
        } else {
            unconfirmed.insert(kind.clone());
        }
        is_certain
    }

    /// Waits until it is worthwhile to look for a kind that was missing; `names` are those its definition can have.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn arrival(&self, kind: &Kind, names: &[String]) {
        self.task.get_or_init(|| {
            let (client, known) = (self.client.clone(), self.known.clone());
            AbortOnDropHandle::new(tokio::spawn(follow(client, known)))
        });
        let mut known = self.known.subscribe();
        loop {
            let (watching, definition) = {
                let known = known.borrow_and_update();
                (known.watching, names.iter().filter_map(|name| known.names.get(name)).max().copied())
            };
            let pause = match definition {
                Some(change) if watching => self.settle_pause(kind, change),
                None if watching && lock(&self.unconfirmed).contains(kind) => SETTLE.0,
                _ if watching => POLL_WATCHED,
                _ if kind.group == "projectcalico.org" => POLL_CALICO,
                _ => POLL_OTHERS,
            };
            let changed = async {
                // Ends only if the sender is gone, and then nothing will ever change.
                if known.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = sleep(pause) => {
                    if let (true, Some(change)) = (watching, definition) {
                        let mut looked = lock(&self.looked);
                        let (for_change, times) = looked.entry(kind.clone()).or_insert((change, 0));
                        *times = if *for_change == change { *times + 1 } else { 1 };
                        *for_change = change;
                    }
                    return;
                }
                () = changed => {}
            }
        }
    }

    /// A kind is there. Should it be missing again (a server that has just begun does not serve all kinds at once), pauses begin
    /// with the shortest one.
    pub(super) fn found(&self, kind: &Kind) {
        lock(&self.looked).remove(kind);
    }

    fn settle_pause(&self, kind: &Kind, change: u64) -> Duration {
        let times = match lock(&self.looked).get(kind) {
            Some((for_change, times)) if *for_change == change => *times,
            _ => 0,
        };
        SETTLE.0.saturating_mul(2_u32.saturating_pow(times)).min(SETTLE.1)
    }
}

/// Keeps `known` up to date until dropped.
async fn follow(client: ApiClient, known: watch::Sender<Known>) {
    let mut told = false;
    loop {
        // Made anew when credentials may have changed.
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.library());
        let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()).default_backoff());
        let mut initial: HashMap<String, u64> = HashMap::new();
        let pause = loop {
            match events.next().await {
                None => break SETTLE.0,
                Some(Ok(Event::Init)) => initial.clear(),
                Some(Ok(Event::InitApply(definition))) => {
                    initial.insert(definition.name_any(), 0);
                }
                Some(Ok(Event::InitDone)) => known.send_modify(|known| {
                    known.changes += 1;
                    let changes = known.changes;
                    known.watching = true;
                    known.names = std::mem::take(&mut initial).into_keys().map(|name| (name, changes)).collect();
                    debug!(definitions = known.names.len(), "watching definitions for kinds that are missing");
                }),
                Some(Ok(Event::Apply(definition))) => known.send_modify(|known| {
                    known.changes += 1;
                    known.names.insert(definition.name_any(), known.changes);
                }),
                Some(Ok(Event::Delete(definition))) => known.send_modify(|known| {
                    known.names.remove(&definition.name_any());
                }),
                Some(Err(error)) => {
                    known.send_if_modified(|known| std::mem::replace(&mut known.watching, false));
                    if is_refused(&error) {
                        if !std::mem::replace(&mut told, true) {
                            info!(
                                %error,
                                "definitions of kinds may not be watched: missing kinds are looked for every few seconds; \
                                 to be told of them, add to the ClusterRole: {{apiGroups: [\"apiextensions.k8s.io\"], \
                                 resources: [\"customresourcedefinitions\"], verbs: [\"list\", \"watch\"]}}"
                            );
                        }
                        break FORBIDDEN_PAUSE;
                    }
                    debug!(%error, "the watch of definitions failed; trying again");
                }
            }
        };
        sleep(pause).await;
    }
}

fn is_refused(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return false;
    };
    matches!(status.code, 401 | 403)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::super::config::KubernetesConfig;
    use super::*;
    use crate::syncer::kinds::TIER;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_a_defined_kind_is_missing_and_begin_anew_once_it_was_found() {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = ApiClient::fixed(kube::Client::new(nobody, "default"), &KubernetesConfig::default());
        let crds = Crds::new(client);
        let follower = AbortOnDropHandle::new(tokio::spawn(pending()));
        assert!(crds.task.set(follower).is_ok());
        let name = "tiers.crd.projectcalico.org".to_owned();
        crds.known.send_modify(|known| {
            known.watching = true;
            known.names.insert(name.clone(), 1);
        });
        let waits = async || {
            let began = Instant::now();
            crds.arrival(&TIER, std::slice::from_ref(&name)).await;
            began.elapsed().as_millis()
        };
        for expected in [250, 500, 1000, 2000] {
            assert_eq!(waits().await, expected);
        }
        crds.found(&TIER);
        assert_eq!(waits().await, 250, "it was there in between");
    }
}
