//! Follows the kinds that meet patterns: looks which there are, and looks again when that may have changed.
//!
//! Fed by [`discovery`](super::discovery) and the [`definitions`](super::definitions) of kinds, feeds
//! [`Datastore::kinds`](crate::datastore::Datastore::kinds). A definition that comes, changes or goes is a reason to look, some times
//! in a row, because a kind is served a moment after its definition. Other API servers behind this one tell of nothing: for them there is a
//! slow look. Kubernetes' own kinds that are named are looked for once: no later answer would be another one.
//!
//! A server that has just begun does not know some kinds for a moment. So a kind that was told and is missing stays until that is
//! confirmed, as for its watch ([`Presence`]), and patterns that nothing meets are told for the first time after a moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::absence::{ABSENT_AFTER, Absence, Presence};
use super::client::end_of_pause;
use super::definitions::GroupTrail;
use super::discovery::{Look, look};
use super::failure::Failure;
use super::known::Sighting;
use super::served::{Groups, meet};
use super::shared::Shared;
use crate::datastore::backoff::Backoff;
use crate::datastore::builtin;
use crate::datastore::inlet::Error;
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::model::object::Kind;

/// How often to look without a reason: kinds of aggregated API servers have no definition that tells of them.
const SLOW_LOOK: Duration = Duration::from_secs(60);
/// The pauses before the looks that follow a change of a definition: a kind is served a moment after it.
const AFTER_CHANGE: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15)];
/// Looks that changes of definitions cause are at least so far apart, should definitions change all the time.
const CLOSEST: Duration = Duration::from_secs(1);
/// How soon to look again while it is doubtful whether a kind is gone.
const IN_DOUBT: Duration = Duration::from_secs(1);
/// First and longest pause after a look that failed.
const FAILED_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// The same where it is not permitted: somebody has to change a role first.
const FORBIDDEN_PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// The kinds that meet the patterns, and again whenever they are others; an error for every look that failed. Never ends.
pub(super) fn kinds(shared: Arc<Shared>, patterns: Vec<Pattern>) -> impl Stream<Item = Result<KindsNow, Error>> {
    stream::unfold(Follower::new(shared, patterns), |mut follower| async move {
        // Boxed: the client's future is large.
        let item = Box::pin(follower.next()).await;
        Some((item, follower))
    })
}

struct Follower {
    shared: Arc<Shared>,
    patterns: Vec<Pattern>,
    /// The groups that patterns are about.
    wanted: BTreeSet<String>,
    /// The newest answer for each group.
    known: Groups,
    /// The kinds that were told last.
    told: Option<KindsNow>,
    /// Kinds that were told, and that the server does not serve.
    doubts: BTreeMap<Kind, Presence>,
    /// When all groups had been answered for the first time.
    complete_since: Option<Instant>,
    /// The definitions of the groups; `None`: all of them are Kubernetes' own, or not looked at yet.
    trail: Option<GroupTrail>,
    /// The change of definitions that the last look knew of.
    change: u64,
    /// The looks that have followed that change.
    followed_up: usize,
    last_look: Option<Instant>,
    failed: Backoff,
    forbidden: Backoff,
    /// When to look; `None`: there is no reason to.
    due: Option<Instant>,
    /// Items to hand out: at most an error and the kinds of one look.
    items: VecDeque<Result<KindsNow, Error>>,
}

impl Follower {
    fn new(shared: Arc<Shared>, patterns: Vec<Pattern>) -> Self {
        let backoff = |(first, longest)| Backoff::new(first, longest, rand::random());
        Self {
            wanted: patterns.iter().map(|pattern| pattern.group.clone()).collect(),
            shared,
            patterns,
            known: Groups::new(),
            told: None,
            doubts: BTreeMap::new(),
            complete_since: None,
            trail: None,
            change: 0,
            followed_up: AFTER_CHANGE.len(),
            last_look: None,
            failed: backoff(FAILED_PAUSES),
            forbidden: backoff(FORBIDDEN_PAUSES),
            due: Some(Instant::now()),
            items: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Result<KindsNow, Error> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return item;
            }
            self.wait().await;
            let is_first = self.trail.is_none();
            self.begin().await;
            // Asked before the look: a change during it is a reason for another one.
            if self.note_change() && !is_first {
                self.followed_up = 0;
            }
            let wanted = self.wanted.iter().filter(|group| self.is_open(group)).cloned().collect();
            let look = look(&self.shared.client, &wanted).await;
            self.looked(look, Instant::now());
        }
    }

    /// Waits until there is a reason to look.
    async fn wait(&mut self) {
        loop {
            if self.note_change() {
                let now = Instant::now();
                let closest = self.last_look.map_or(now, |last| last + CLOSEST);
                let soon = closest.max(now + AFTER_CHANGE[0]);
                self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
                self.followed_up = 1;
            }
            let due = async {
                match self.due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                match &mut self.trail {
                    Some(trail) => trail.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => return,
                () = changed => {}
            }
        }
    }

    /// Before the first look: follows the definitions of groups that are not Kubernetes' own, and waits for them for a moment.
    async fn begin(&mut self) {
        let others: BTreeSet<String> =
            self.wanted.iter().filter(|group| !builtin::is_own_group(group)).cloned().collect();
        if self.trail.is_none() && !others.is_empty() {
            self.shared.definitions.look_up(&[]).await;
            self.trail = Some(self.shared.definitions.trail_of_groups(others));
        }
    }

    /// Whether definitions have changed since this was asked last.
    fn note_change(&mut self) -> bool {
        let Some(trail) = &mut self.trail else { return false };
        let change = trail.now();
        std::mem::replace(&mut self.change, change) != change
    }

    /// Whether a group has to be looked at: always, but for Kubernetes' own kinds that are named.
    fn is_open(&self, group: &str) -> bool {
        let is_named_only = || self.patterns.iter().all(|pattern| pattern.group != group || pattern.kind.is_some());
        !(self.known.contains_key(group) && builtin::is_own_group(group) && is_named_only())
    }

    /// Takes over what came of a look, and decides when to look again.
    fn looked(&mut self, look: Look, now: Instant) {
        self.last_look = Some(now);
        let answered: BTreeSet<String> = look.groups.keys().cloned().collect();
        self.known.extend(look.groups);
        let mut pause = None;
        if self.wanted.iter().all(|group| self.known.contains_key(group)) {
            let since = *self.complete_since.get_or_insert(now);
            let kinds = self.confirmed(meet(&self.patterns, &self.known), &answered, now);
            if self.told.is_none() && now < since + ABSENT_AFTER && self.may_be_late(&kinds) {
                pause = Some(IN_DOUBT);
            } else if self.told.as_ref() != Some(&kinds) {
                debug!(kinds = kinds.kinds.len(), unknown = kinds.unknown.len(), "the kinds that are asked for");
                self.told = Some(kinds.clone());
                self.items.push_back(Ok(kinds));
            }
        }
        if !self.doubts.is_empty() {
            pause = Some(IN_DOUBT);
        }
        if let Some(follow_up) = AFTER_CHANGE.get(self.followed_up) {
            self.followed_up += 1;
            pause = Some(pause.map_or(*follow_up, |pause| pause.min(*follow_up)));
        }
        let is_followed = self.wanted.iter().any(|group| self.is_open(group));
        self.due = pause.or(is_followed.then_some(SLOW_LOOK)).map(|pause| now + pause);
        if let Some((path, failure)) = look.failed.into_iter().next() {
            self.fail(&path, failure, now);
        } else {
            self.failed.reset();
            self.forbidden.reset();
        }
    }

    fn fail(&mut self, path: &str, failure: Failure, now: Instant) {
        self.due = Some(match &failure {
            Failure::Retry { after: Some(after), .. } => end_of_pause(*after),
            Failure::Forbidden(_) | Failure::Unauthorized(_) => now + self.forbidden.next_delay(),
            _ => now + self.failed.next_delay(),
        });
        let doing = format!("ask the API server at {} for its kinds ({path})", self.shared.client.server());
        self.items.push_front(Err(failure.into_discovery_error(doing)));
    }

    /// Whether one of the missing kinds may be there in a moment: a server that has just begun does not know it yet.
    fn may_be_late(&self, kinds: &KindsNow) -> bool {
        let groups = kinds.unknown.iter().map(|unknown| &*unknown.pattern.group);
        groups
            .filter(|group| !builtin::is_own_group(group))
            .any(|group| self.shared.definitions.defines(group) != Some(false))
    }

    /// The kinds that the server serves, with those that were told and are not confirmed to be gone. A kind of which there is
    /// another version now is not missing.
    fn confirmed(&mut self, mut kinds: KindsNow, answered: &BTreeSet<String>, now: Instant) -> KindsNow {
        let told = self.told.iter().flat_map(|told| &told.kinds);
        let has = |kind: &Kind| kinds.kinds.iter().any(|now| now.group == kind.group && now.name == kind.name);
        let missing: BTreeSet<Kind> = told.filter(|kind| !has(kind)).cloned().collect();
        self.doubts.retain(|kind, _| missing.contains(kind));
        for kind in missing {
            let presence = self.doubts.entry(kind.clone()).or_insert(Presence::Served);
            if answered.contains(&*kind.group) {
                let lasts = presence.doubted(now);
                let definition = if builtin::is_own_group(&kind.group) {
                    Sighting::Hidden
                } else {
                    self.shared.definitions.sighting(&[format!("{}.{}", kind.plural, kind.group)])
                };
                if let Absence::Certain { .. } = presence.judge(definition, lasts) {
                    self.doubts.remove(&kind);
                    continue;
                }
            } else {
                presence.interrupted();
            }
            kinds.unknown.retain(|unknown| !unknown.pattern.matches(&kind.group, &kind.version, &kind.name));
            kinds.kinds.push(kind);
        }
        kinds.kinds.sort_unstable();
        kinds
    }
}
