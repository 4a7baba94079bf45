//! The definitions of kinds (`CustomResourceDefinition`s) of the cluster: their names, watched.
//!
//! They are watched as soon as the first kind is asked for that may have one: whether a kind that is missing was there before
//! shows only to those that looked before.

use std::collections::{BTreeSet, HashSet};
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info};

use super::client::{ANSWER_TIMEOUT, ApiClient, end_of_pause};
use super::config::DEFAULT_PAGE_LIMIT;
use super::failure::Failure;
use super::known::{Known, Sight, Sighting};
use crate::datastore::backoff::Backoff;
use crate::tasks::TaskRegistry;

/// How long an answer about a kind waits for the definitions to be known: at start, and after the server was away.
pub(super) const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// First and longest pause before the definitions are asked for again after a failure: while they are not known, no kind is
/// found to be missing.
const FAILED_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// The same when that is not permitted: somebody has to change a role first, or the server has just begun.
const FORBIDDEN_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How long the server is asked to keep the watch open, in seconds, and how much later it counts as cut.
const OPEN_SECONDS: u32 = 290;
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this is opened again after a pause.
const WATCH_TOO_SHORT: Duration = Duration::from_secs(1);

/// The definitions, watched. See the module's text.
pub(super) struct Definitions {
    client: ApiClient,
    known: watch::Sender<Known>,
    /// Ends the task that watches, once there is one.
    follower: OnceLock<DropGuard>,
    /// Where that task is supervised.
    tasks: OnceLock<TaskRegistry>,
}

impl Definitions {
    /// Nothing is asked for yet.
    pub(super) fn new(client: ApiClient) -> Self {
        let known = watch::Sender::new(Known::default());
        Self { client, known, follower: OnceLock::new(), tasks: OnceLock::new() }
    }

    /// A panic of the task that watches is a failure of `tasks`. For the time before that begins.
    pub(super) fn report_to(&self, tasks: &TaskRegistry) {
        let _only_once = self.tasks.set(tasks.clone());
    }

    /// Begins to watch definitions, once.
    pub(super) fn follow(&self) {
        self.follower.get_or_init(|| {
            let (client, known) = (self.client.clone(), self.known.clone());
            let stop = CancellationToken::new();
            let gone = stop.clone();
            let watching = async move {
                let _ended = gone.run_until_cancelled(follow(client, known)).await;
            };
            let tasks = self.tasks.get_or_init(TaskRegistry::new);
            tasks.spawn_passing(&Handle::current(), "definitions-of-kinds", watching);
            stop.drop_guard()
        });
    }

    /// The definition with one of these names as it is seen once definitions are known; waits for that, but not for ever.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn look_up(&self, names: &[String]) -> Sighting {
        self.follow();
        let mut known = self.known.subscribe();
        // Not known in time is one of the answers; the sender lives as long as we do.
        let _in_time = timeout(KNOWN_WITHIN, known.wait_for(|known| known.sight != Sight::None)).await.is_ok();
        known.borrow().sighting(names)
    }

    /// Follows the definitions of these groups.
    pub(super) fn trail_of_groups(&self, groups: BTreeSet<String>) -> GroupTrail {
        self.follow();
        GroupTrail { known: self.known.subscribe(), groups }
    }

    /// The definition with one of these names as it is seen now.
    pub(super) fn sighting(&self, names: &[String]) -> Sighting {
        self.known.borrow().sighting(names)
    }

    /// Whether any kind of the group is defined, as far as definitions are seen now.
    pub(super) fn defines(&self, group: &str) -> Option<bool> {
        self.known.borrow().defines(group)
    }

    /// Follows the definition with one of these names.
    pub(super) fn trail<'a>(&self, names: &'a [String]) -> Trail<'a> {
        self.follow();
        Trail { known: self.known.subscribe(), names }
    }
}

/// The definitions of some groups, followed.
pub(super) struct GroupTrail {
    known: watch::Receiver<Known>,
    groups: BTreeSet<String>,
}

impl GroupTrail {
    /// A number that is another one after each change of a definition of the groups.
    pub(super) fn now(&mut self) -> u64 {
        self.known.borrow_and_update().change_of(&self.groups)
    }

    /// Waits until any definition has changed since [`Self::now`].
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn changed(&mut self) {
        changed(&mut self.known).await;
    }
}

/// The definition of one kind, followed.
pub(super) struct Trail<'a> {
    known: watch::Receiver<Known>,
    names: &'a [String],
}

impl Trail<'_> {
    /// The definition as it is seen now.
    pub(super) fn now(&mut self) -> Sighting {
        self.known.borrow_and_update().sighting(self.names)
    }

    /// Waits until any definition has changed since [`Self::now`].
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn changed(&mut self) {
        changed(&mut self.known).await;
    }
}

async fn changed(known: &mut watch::Receiver<Known>) {
    if known.changed().await.is_err() {
        // The sender is gone, and nothing will ever change.
        std::future::pending::<()>().await;
    }
}

/// The names of definitions, and nothing else of them: they are large.
type Names = Api<PartialObjectMeta<CustomResourceDefinition>>;

/// Keeps `known` up to date until dropped. After a failure the watch goes on where it was, if it can.
async fn follow(client: ApiClient, known: watch::Sender<Known>) {
    let pauses = |(first, longest)| Backoff::new(first, longest, rand::random());
    let (mut failed, mut forbidden) = (pauses(FAILED_PAUSES), pauses(FORBIDDEN_PAUSES));
    let mut position: Option<String> = None;
    let mut told = false;
    loop {
        // Made anew: credentials may have changed.
        let api = Names::all(client.library());
        let began = Instant::now();
        let end = in_step(&api, &known, &mut position).await;
        let was_good = known.borrow().sight == Sight::Full && began.elapsed() >= WATCH_TOO_SHORT;
        if was_good {
            failed.reset();
            forbidden.reset();
        }
        let Err(failure) = end else {
            if !was_good {
                sleep(failed.next_delay()).await;
            }
            continue;
        };
        let sight = if matches!(failure, Failure::Forbidden(_)) { Sight::Forbidden } else { Sight::None };
        see(&known, sight);
        debug!(?failure, "definitions of kinds cannot be watched; trying again");
        let pause = match failure {
            Failure::Forbidden(reason) | Failure::Unauthorized(reason) => {
                if !std::mem::replace(&mut told, true) {
                    info!(
                        reason,
                        "definitions of kinds may not be watched: a kind counts as missing once it is for some seconds, and \
                         is looked for now and then; to be told of them, add to the ClusterRole: \
                         {{apiGroups: [\"apiextensions.k8s.io\"], resources: [\"customresourcedefinitions\"], \
                         verbs: [\"list\", \"watch\"]}}"
                    );
                }
                forbidden.next_delay()
            }
            Failure::Retry { after: Some(after), .. } => end_of_pause(after).saturating_duration_since(Instant::now()),
            Failure::Retry { after: None, .. } => failed.next_delay(),
            // The server speaks of the position: a list is needed.
            _ => {
                position = None;
                failed.next_delay()
            }
        };
        sleep(pause).await;
    }
}

/// Reads all definitions unless there is a position, and then what changes from there, until the watch ends.
async fn in_step(api: &Names, known: &watch::Sender<Known>, position: &mut Option<String>) -> Result<(), Failure> {
    let from = match position {
        Some(from) => from,
        None => position.insert(list(api, known).await?),
    };
    let params = WatchParams::default().timeout(OPEN_SECONDS);
    let mut events = Box::pin(in_time(api.watch_metadata(&params, from)).await?);
    see(known, Sight::Full);
    let patience = Duration::from_secs(u64::from(OPEN_SECONDS)) + ENDS_WITHIN;
    // Silence is an end as any other: whether the server is there shows when the watch is opened again.
    while let Ok(Some(event)) = timeout(patience, events.next()).await {
        *from = match event.map_err(|error| failure_of(&error))? {
            WatchEvent::Added(definition) | WatchEvent::Modified(definition) => {
                known.send_modify(|known| known.put(definition.name_any()));
                definition.metadata.resource_version.unwrap_or_default()
            }
            WatchEvent::Deleted(definition) => {
                known.send_modify(|known| known.remove(&definition.name_any()));
                definition.metadata.resource_version.unwrap_or_default()
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(Failure::of_event(&status)),
        };
    }
    Ok(())
}

/// Reads all definitions. Returns their revision.
async fn list(api: &Names, known: &watch::Sender<Known>) -> Result<String, Failure> {
    let mut names = HashSet::new();
    let mut params = ListParams::default().limit(DEFAULT_PAGE_LIMIT);
    loop {
        let page = in_time(api.list_metadata(&params)).await?;
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
            params = params.continue_token(&token);
            continue;
        }
        debug!(definitions = names.len(), "definitions of kinds are known");
        known.send_modify(|known| known.replace(names));
        return Ok(page.metadata.resource_version.unwrap_or_default());
    }
}

/// An answer, if it comes in time: the library would wait for ever.
async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Failure> {
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| failure_of(&error)),
        Err(_) => Err(Failure::retry(format!("no answer within {ANSWER_TIMEOUT:?}"))),
    }
}

fn failure_of(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => Failure::of_event(status),
        error => Failure::of_client(error),
    }
}

fn see(known: &watch::Sender<Known>, sight: Sight) {
    known.send_if_modified(|known| std::mem::replace(&mut known.sight, sight) != sight);
}

#[cfg(test)]
impl Definitions {
    /// From now on only a test says what is known.
    pub(super) fn follow_nothing(&self) {
        assert!(self.follower.set(CancellationToken::new().drop_guard()).is_ok(), "nothing is followed yet");
    }

    /// Definitions are seen so well, and these there are.
    pub(super) fn set(&self, sight: Sight, names: &[&str]) {
        self.known.send_modify(|known| {
            known.replace(names.iter().map(|name| (*name).to_owned()));
            known.sight = sight;
        });
    }

    /// One more.
    pub(super) fn add(&self, name: &str) {
        self.known.send_modify(|known| known.put(name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::super::config::KubernetesConfig;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_server_asks_for_is_kept_within_a_limit() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let busy = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"busy","reason":"TooManyRequests","code":429,
                "details":{"retryAfterSeconds":1000000}}"#;
            let answer =
                http::Response::builder().status(429).body(kube::client::Body::from(status.as_bytes().to_vec()));
            std::future::ready(answer)
        });
        let definitions =
            Definitions::new(ApiClient::fixed(kube::Client::new(busy, "default"), &KubernetesConfig::default()));
        definitions.follow();
        sleep(Duration::from_secs(600)).await;
        let asked = asked.load(Ordering::SeqCst);
        assert!((8..=11).contains(&asked), "once a minute: {asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_watch_is_supervised_and_ends_in_peace_with_the_datastore() {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = ApiClient::fixed(kube::Client::new(nobody, "default"), &KubernetesConfig::default());
        let (definitions, tasks) = (Definitions::new(client), TaskRegistry::new());
        definitions.report_to(&tasks);
        definitions.follow();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(tasks.dump()[0].name, "definitions-of-kinds");
        drop(definitions);
        tasks.all_ended().await;
        assert!(tasks.dump().is_empty(), "{:?}", tasks.dump());
    }
}
