//! What the definitions of kinds (`CustomResourceDefinition`s) tell about kinds that the server does not know: whether they are
//! certainly missing, whether their objects are gone with them, and when it is worthwhile to look for them again.
//!
//! Their names are watched as soon as the first kind is asked for that may have one: whether a kind that is missing was there
//! before is known only to whoever looked before. Where that watch is not permitted (Calico's own role does not have it), a kind
//! is missing once the server has said so for [`ABSENT_AFTER`], nothing is ever gone, and missing kinds are looked for now
//! and then.
//!
//! ```text
//!  404 for a kind ──► definitions watched, none of it           ──► absent; gone if there was a definition before
//!                     definitions watched, there is one         ─┐
//!                     none, but it was served (by an aggregated  ├► absent if 404 for long, else not certain
//!                     API server), definitions not permitted    ─┘
//!                     definitions not known (now)               ──► not certain
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PartialObjectMeta, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info};

use super::super::Kind;
use super::super::backoff::Backoff;
use super::client::{ANSWER_TIMEOUT, ApiClient, end_of_pause};
use super::config::DEFAULT_PAGE_LIMIT;
use super::failure::Failure;
use super::lock;
use crate::tasks::TaskRegistry;
/// For how long the server has to answer that it does not know a kind, if no definition tells: one that has just begun says so
/// of all custom resources for a second or two.
pub(super) const ABSENT_AFTER: Duration = Duration::from_secs(3);
/// How long an answer about a kind waits for the definitions to be known: at start, and after the server was away.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How often to look for a missing kind of Calico's when definitions cannot be watched: it is probably just being installed.
const POLL_CALICO: Duration = Duration::from_secs(5);
/// How often to look for another missing kind then.
const POLL_OTHERS: Duration = Duration::from_secs(60);
/// How often to look for a missing kind although its definition is watched and did not appear: the kind may be served
/// without one, by an aggregated API server.
const POLL_WATCHED: Duration = Duration::from_secs(300);
/// A definition is there a moment before its kind is served: first and longest pause before looking (again).
const SETTLE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));
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

/// How well the definitions can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sight {
    /// Not (now): not asked for yet, or the server is away.
    #[default]
    None,
    /// All of them.
    Full,
    /// We are not permitted to.
    Forbidden,
}

/// The definitions of the cluster, as far as they are known.
#[derive(Debug, Default)]
struct Known {
    sight: Sight,
    /// Names, with a number that grows when one changes.
    names: HashMap<String, u64>,
    /// All names that were ever there. Only installing kinds under ever new names would make it grow.
    ever: HashSet<String>,
    changes: u64,
}

impl Known {
    fn put(&mut self, name: String) {
        self.ever.insert(name.clone());
        self.names.insert(name, self.changes);
    }

    /// The last change of a definition with one of these names.
    fn definition(&self, names: &[String]) -> Option<u64> {
        names.iter().filter_map(|name| self.names.get(name)).max().copied()
    }

    fn was_defined(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.ever.contains(name))
    }
}

/// What is known of a kind that the server says it does not know.
#[derive(Debug)]
struct Missing {
    /// Since when it says so.
    since: Instant,
    /// It counts as absent, until it is found.
    confirmed: bool,
    /// Its objects are gone with it.
    gone: bool,
    /// For which state of its definition it was looked for, and how often.
    looked: (u64, u32),
}

impl Missing {
    fn new() -> Self {
        Self { since: Instant::now(), confirmed: false, gone: false, looked: (0, 0) }
    }
}

/// What it means that the server does not know a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// Perhaps nothing: ask again.
    Uncertain,
    /// It is not there.
    Certain {
        /// It was, and its objects are gone with its definition.
        gone: bool,
    },
}

/// Watches definitions. See the module's text.
pub(super) struct Crds {
    client: ApiClient,
    known: watch::Sender<Known>,
    /// Ends the task that watches, once there is one.
    follower: OnceLock<DropGuard>,
    /// Where that task is supervised.
    tasks: OnceLock<TaskRegistry>,
    /// Kinds that were there once.
    served: Mutex<HashSet<Kind>>,
    missing: Mutex<HashMap<Kind, Missing>>,
}

impl Crds {
    pub(super) fn new(client: ApiClient) -> Self {
        Self {
            client,
            known: watch::Sender::new(Known::default()),
            follower: OnceLock::new(),
            tasks: OnceLock::new(),
            served: Mutex::default(),
            missing: Mutex::default(),
        }
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

    /// The server says now that it does not know the kind; `names` are those its definition can have.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn judge(&self, kind: &Kind, names: &[String]) -> Absence {
        // What the definitions are is waited for, but that does not make one answer one that lasts.
        let lasts =
            lock(&self.missing).entry(kind.clone()).or_insert_with(Missing::new).since.elapsed() >= ABSENT_AFTER;
        self.follow();
        let mut known = self.known.subscribe();
        // Still not known then: that is looked at below, as the end of the sender is, which lives as long as we do.
        let _ = timeout(KNOWN_WITHIN, known.wait_for(|known| known.sight != Sight::None)).await;
        let was_served = lock(&self.served).contains(kind);
        let (is_certain, gone) = {
            let known = known.borrow();
            match known.sight {
                Sight::Full if known.definition(names).is_some() => (lasts, false),
                Sight::Full if known.was_defined(names) => (true, true),
                Sight::Full => (lasts || !was_served, false),
                Sight::Forbidden => (lasts, false),
                Sight::None => (false, false),
            }
        };
        let mut missing = lock(&self.missing);
        let missing = missing.entry(kind.clone()).or_insert_with(Missing::new);
        missing.confirmed |= is_certain;
        missing.gone = gone;
        if missing.confirmed { Absence::Certain { gone } } else { Absence::Uncertain }
    }

    /// Waits until it is worthwhile to look for a kind that was missing; `names` are those its definition can have.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn arrival(&self, kind: &Kind, names: &[String]) {
        self.follow();
        let mut known = self.known.subscribe();
        let began = Instant::now();
        let mut until = began + POLL_WATCHED;
        loop {
            let (is_watched, definition, was_defined) = {
                let known = known.borrow_and_update();
                (known.sight == Sight::Full, known.definition(names), known.was_defined(names))
            };
            let pause = match definition {
                Some(change) if is_watched => self.settle_pause(kind, change),
                // Its definition is gone, and what it means for its objects has not been told yet.
                None if is_watched && was_defined && !self.is_gone(kind) => SETTLE.0,
                _ if is_watched => POLL_WATCHED,
                _ if kind.group == "projectcalico.org" => POLL_CALICO,
                _ => POLL_OTHERS,
            };
            // Only ever earlier: definitions of others may change all the time.
            until = until.min(Instant::now() + pause);
            let changed = async {
                // Ends only if the sender is gone, and then nothing will ever change.
                if known.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = sleep_until(until) => {
                    if let (true, Some(change)) = (is_watched, definition) {
                        let mut missing = lock(&self.missing);
                        let (for_change, times) = &mut missing.entry(kind.clone()).or_insert_with(Missing::new).looked;
                        *times = if *for_change == change { times.saturating_add(1) } else { 1 };
                        *for_change = change;
                    }
                    return;
                }
                () = changed => {}
            }
        }
    }

    /// A kind is there. Should it be missing again, everything begins anew.
    pub(super) fn found(&self, kind: &Kind) {
        lock(&self.missing).remove(kind);
        let mut served = lock(&self.served);
        if !served.contains(kind) {
            served.insert(kind.clone());
        }
    }

    /// The server answered something else about a kind, or nothing: what it said before does not last.
    pub(super) fn interrupted(&self, kind: &Kind) {
        let mut missing = lock(&self.missing);
        if missing.get(kind).is_some_and(|missing| !missing.confirmed) {
            missing.remove(kind);
        }
    }

    fn is_gone(&self, kind: &Kind) -> bool {
        lock(&self.missing).get(kind).is_some_and(|missing| missing.gone)
    }

    fn settle_pause(&self, kind: &Kind, change: u64) -> Duration {
        let times = match lock(&self.missing).get(kind).map(|missing| missing.looked) {
            Some((for_change, times)) if for_change == change => times,
            _ => 0,
        };
        SETTLE.0.saturating_mul(2_u32.saturating_pow(times)).min(SETTLE.1)
    }
}

/// The names of definitions, and nothing else of them: they are large.
type Definitions = Api<PartialObjectMeta<CustomResourceDefinition>>;

/// Keeps `known` up to date until dropped. After a failure the watch goes on where it was, if it can.
async fn follow(client: ApiClient, known: watch::Sender<Known>) {
    let pauses = |(first, longest)| Backoff::new(first, longest, rand::random());
    let (mut failed, mut forbidden) = (pauses(FAILED_PAUSES), pauses(FORBIDDEN_PAUSES));
    let mut position: Option<String> = None;
    let mut told = false;
    loop {
        // Made anew: credentials may have changed.
        let api = Definitions::all(client.library());
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
            // What the server says about the position: a list is needed.
            _ => {
                position = None;
                failed.next_delay()
            }
        };
        sleep(pause).await;
    }
}

/// Reads all definitions unless there is a position, and then what changes from there, until the watch ends.
async fn in_step(
    api: &Definitions,
    known: &watch::Sender<Known>,
    position: &mut Option<String>,
) -> Result<(), Failure> {
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
                known.send_modify(|known| {
                    known.changes += 1;
                    known.put(definition.name_any());
                });
                definition.metadata.resource_version.unwrap_or_default()
            }
            WatchEvent::Deleted(definition) => {
                known.send_modify(|known| {
                    known.names.remove(&definition.name_any());
                });
                definition.metadata.resource_version.unwrap_or_default()
            }
            WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(Failure::of_event(&status)),
        };
    }
    Ok(())
}

/// Reads all definitions. Returns their revision.
async fn list(api: &Definitions, known: &watch::Sender<Known>) -> Result<String, Failure> {
    let mut names = HashSet::new();
    let mut params = ListParams::default().limit(DEFAULT_PAGE_LIMIT);
    loop {
        let page = in_time(api.list_metadata(&params)).await?;
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
            params = params.continue_token(&token);
            continue;
        }
        known.send_modify(|known| {
            known.changes += 1;
            known.sight = Sight::Full;
            known.names.clear();
            for name in names {
                known.put(name);
            }
            debug!(definitions = known.names.len(), "definitions of kinds are known");
        });
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
mod tests {
    use std::future::pending;

    use super::super::config::KubernetesConfig;
    use super::*;
    use crate::model::kinds::TIER;

    const NAME: &str = "tiers.crd.projectcalico.org";

    /// Definitions that change only as a test says.
    fn crds() -> (Crds, Vec<String>) {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
            pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = ApiClient::fixed(kube::Client::new(nobody, "default"), &KubernetesConfig::default());
        let crds = Crds::new(client);
        assert!(crds.follower.set(CancellationToken::new().drop_guard()).is_ok());
        (crds, vec![NAME.to_owned()])
    }

    fn set(crds: &Crds, sight: Sight, defined: bool) {
        crds.known.send_modify(|known| {
            known.sight = sight;
            known.changes += 1;
            known.names.clear();
            if defined {
                known.put(NAME.to_owned());
            }
        });
    }

    async fn waits(crds: &Crds, names: &[String]) -> u128 {
        let began = Instant::now();
        crds.arrival(&TIER, names).await;
        began.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_a_defined_kind_is_missing_and_begin_anew_once_it_was_found() {
        let (crds, names) = crds();
        set(&crds, Sight::Full, true);
        for expected in [250, 500, 1000, 2000] {
            assert_eq!(waits(&crds, &names).await, expected);
        }
        crds.found(&TIER);
        assert_eq!(waits(&crds, &names).await, 250, "it was there in between");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_of_other_definitions_put_nothing_off() {
        let (crds, names) = crds();
        for (sight, expected) in
            [(Sight::None, POLL_CALICO), (Sight::Forbidden, POLL_CALICO), (Sight::Full, POLL_WATCHED)]
        {
            set(&crds, sight, false);
            let others = async {
                loop {
                    sleep(Duration::from_secs(3)).await;
                    crds.known.send_modify(|known| known.put("others.example.org".to_owned()));
                }
            };
            let waited = tokio::select! {
                waited = waits(&crds, &names) => waited,
                () = others => unreachable!("goes on for ever"),
            };
            assert_eq!(waited, expected.as_millis(), "{sight:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_definition_a_kind_is_missing_and_its_objects_are_gone_only_if_it_had_one() {
        let (crds, names) = crds();
        set(&crds, Sight::Full, false);
        assert_eq!(crds.judge(&TIER, &names).await, Absence::Certain { gone: false });
        set(&crds, Sight::Full, true);
        crds.found(&TIER);
        set(&crds, Sight::Full, false);
        assert_eq!(crds.judge(&TIER, &names).await, Absence::Certain { gone: true });
        assert_eq!(waits(&crds, &names).await, POLL_WATCHED.as_millis(), "that was told");
    }

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
        let crds = Crds::new(ApiClient::fixed(kube::Client::new(busy, "default"), &KubernetesConfig::default()));
        crds.follow();
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
        let (crds, tasks) = (Crds::new(client), TaskRegistry::new());
        crds.report_to(&tasks);
        crds.follow();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(tasks.dump()[0].name, "definitions-of-kinds");
        drop(crds);
        tasks.all_ended().await;
        assert!(tasks.dump().is_empty(), "{:?}", tasks.dump());
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_served_without_a_definition_is_missing_when_that_lasts() {
        let (crds, names) = crds();
        set(&crds, Sight::Full, false);
        crds.found(&TIER);
        assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain);
        sleep(ABSENT_AFTER).await;
        assert_eq!(crds.judge(&TIER, &names).await, Absence::Certain { gone: false });
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_defined_or_whose_definition_may_not_be_seen_is_missing_when_that_lasts() {
        for (sight, defined) in [(Sight::Full, true), (Sight::Forbidden, false)] {
            let (crds, names) = crds();
            set(&crds, sight, defined);
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain);
            sleep(ABSENT_AFTER / 2).await;
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain);
            crds.interrupted(&TIER);
            sleep(ABSENT_AFTER / 2).await;
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain, "there was another answer in between");
            sleep(ABSENT_AFTER).await;
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Certain { gone: false });
            crds.interrupted(&TIER);
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Certain { gone: false }, "until it is found");
            crds.found(&TIER);
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_definitions_are_not_known_nothing_is_certain() {
        let (crds, names) = crds();
        let began = Instant::now();
        for _ in 0..3 {
            assert_eq!(crds.judge(&TIER, &names).await, Absence::Uncertain);
        }
        assert_eq!(began.elapsed(), 3 * KNOWN_WITHIN);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_definitions_makes_no_answer_one_that_lasts() {
        let ((crds, names), tier) = (crds(), TIER);
        let seen = async {
            sleep(ABSENT_AFTER + Duration::from_secs(1)).await;
            set(&crds, Sight::Forbidden, false);
        };
        let (absence, ()) = tokio::join!(crds.judge(&tier, &names), seen);
        assert_eq!(absence, Absence::Uncertain);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_was_not_served_is_looked_for_once_its_definition_goes() {
        let (crds, names) = crds();
        set(&crds, Sight::Full, true);
        for _ in 0..2 {
            crds.judge(&TIER, &names).await;
            sleep(ABSENT_AFTER).await;
        }
        set(&crds, Sight::Full, false);
        assert_eq!(waits(&crds, &names).await, SETTLE.0.as_millis());
    }
}
