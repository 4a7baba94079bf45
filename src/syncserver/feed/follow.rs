//! Follows a cache for one feed: publishes its changes, does the housekeeping, and ends when the feed is no longer
//! needed.
//!
//! Changes go out in rounds (see [`crate::outlet::pace`]). A change that comes while the pumps take a round to
//! thousands of clients is published at once, for the clients that are still to be served; the others get it with the
//! next round.
//!
//! Invariants:
//! - the same segment bytes go to every client;
//! - a snapshot shows the feed's head, never the cache's: later changes are in the ring, without gap or overlap;
//! - a status is encoded after the changes it belongs to, in the same segment.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::inspection::Probe;
use super::pinned::Pinned;
use super::pump::Pump;
use super::registry::{Feeds, NoFeed};
use super::rounds::{Publication, Publisher};
use super::shared::{Feed, FeedKey, Lease};
use crate::snapcache::Trail;
use crate::syncproto::format::SeqRange;

/// How often a feed forgets old segments, and checks whether it is still needed.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A feed whose pump takes this long for a pass is out of order. A pass takes some 100 ms at most.
const PUMP_STUCK: Duration = Duration::from_secs(5);

/// Housekeepings that a feed survives without clients: clients that reconnect find it as it was.
const IDLE_ROUNDS: u32 = 30;

/// The feed for a client. Makes and follows it unless it exists.
///
/// # Errors
/// The feed cannot be made.
pub(crate) async fn lease(feeds: &Arc<Feeds>, key: FeedKey) -> Result<Lease, NoFeed> {
    let (lease, trail) = feeds.lease(key).await?;
    let Some(trail) = trail else { return Ok(lease) };
    let (feed, name) = (&*lease, lease.key().to_string());
    for shard in 0..feed.pump().shards() {
        let run = Pump::run(feed.pump().clone(), feed.history().clone(), shard);
        feeds.spawn(format!("{name}-pump-{shard}"), run);
    }
    let run = follow(feed.clone(), trail, Arc::downgrade(feeds), feeds.stopping());
    feeds.spawn(format!("{name}-feed"), run);
    Ok(lease)
}

/// Follows the cache until it ends, the feed is no longer needed, or the token is cancelled.
pub(crate) async fn follow(feed: Arc<Feed>, trail: Trail, feeds: Weak<Feeds>, stop: CancellationToken) {
    let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
    housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut idle_rounds = 0;
    let mut publisher = Publisher::new(feed.clone(), trail);
    let mut probe = Probe::default();
    let mut waited_for = None;
    let metrics = feed.metrics();
    loop {
        // Once for each wait, whatever is done meanwhile.
        let here = publisher.trail.position();
        if waited_for.replace(here.sequence) != Some(here.sequence) {
            let ready = here.next().is_some();
            let counter = if ready { &metrics.breadcrumb_non_block } else { &metrics.breadcrumb_block };
            counter.inc();
        }
        tokio::select! {
            () = stop.cancelled() => break,
            _ = housekeeping.tick() => {
                keep_house(&publisher, &mut probe, Instant::now()).await;
                if let Some(feeds) = feeds.upgrade() {
                    probe.send(feeds.runtimes());
                    feeds.note_lacked(feed.key().syncer);
                }
                idle_rounds = if feed.is_idle() { idle_rounds + 1 } else { 0 };
                if idle_rounds > 0 {
                    feed.history().wants_nothing();
                }
                if idle_rounds > IDLE_ROUNDS && feeds.upgrade().is_none_or(|feeds| feeds.remove_unused(&feed)) {
                    break;
                }
            }
            () = publisher.late.due() => publisher.publish_round(None).await,
            crumb = publisher.trail.next() => {
                let Some(first) = crumb else { break };
                let publication = tokio::select! {
                    () = stop.cancelled() => break,
                    publication = publisher.next_publication() => publication,
                };
                match publication {
                    Publication::Round => publisher.publish_round(Some(first)).await,
                    Publication::Late => publisher.publish_late(first),
                }
            }
        }
    }
    feed.end();
    if let Some(feeds) = feeds.upgrade() {
        feeds.forget(&feed);
        feeds.note_lacked(feed.key().syncer);
    }
    feed.pump().end();
}

async fn keep_house(publisher: &Publisher, probe: &mut Probe, now: Instant) {
    let Publisher { feed, trail, .. } = publisher;
    let (here, before, history) = (trail.position(), feed.head(), feed.history());
    if here.sequence > before.sequence {
        // No change passed the filter. The clients' marks move on all the same: an old mark pins everything that has
        // changed since.
        let range = SeqRange { after: before.sequence, upto: here.sequence };
        let bytes = if feed.key().wire.is_numbered() { feed.format().updates(range, &[]) } else { Bytes::new() };
        history.push(bytes, 0, here.at, here);
        publisher.announce().await;
    }
    let mut pinned = Pinned::new(history.first());
    let found = feed.pump().inspect(&feed.head(), feed.lacked(), probe.is_late(), now, &mut pinned);
    feed.pump().end_oldest(&pinned.excess());
    if found.woken > 0 {
        feed.metrics().lost_wakeups.inc_by(found.woken);
        tracing::warn!(
            feed = %feed.key(),
            clients = found.woken,
            "clients lagged without a reason and were woken: please report this bug of Bulrush"
        );
    }
    history.forget_before(now);
    feed.kept_house(now, found.most_lacked, found.stuck_for < PUMP_STUCK);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::release::Release;
    use crate::calico::syncers::FELIX;
    use crate::model::SyncerEvent;
    use crate::outlet::filter::Filter;
    use crate::syncserver::feed::registry::MAX_FILTERED_FEEDS;
    use crate::syncserver::tests::harness::{eventually, feeds, lone_feed_with_pace, paced_feeds, update};
    use crate::syncserver::wire::Wire;

    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_once_however_long_it_is() {
        let (mut cache, lease) = lone_feed_with_pace(Duration::ZERO);
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        let waits = || lease.metrics().breadcrumb_block.get();
        assert_eq!(waits(), 1);
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"1"))])]);
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        assert_eq!(waits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_is_in_order_until_a_pump_does_not_come_back() {
        let (_cache, lease) = lone_feed_with_pace(Duration::ZERO);
        let stuck_for = |lease: &Lease| lease.stuck_for(Instant::now());
        tokio::time::sleep(60 * HOUSEKEEPING).await;
        assert!(stuck_for(&lease) <= HOUSEKEEPING, "{:?}", stuck_for(&lease));
        lease.pump().get_stuck();
        tokio::time::sleep(PUMP_STUCK + 20 * HOUSEKEEPING).await;
        assert!(stuck_for(&lease) >= 19 * HOUSEKEEPING, "{:?}", stuck_for(&lease));
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_with_clients_says_when_it_can_use_more() {
        const PACE: Duration = Duration::from_millis(20);
        let (mut cache, lease) = lone_feed_with_pace(PACE);
        let mut change = |value: &[u8]| cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(value))])]);
        let demand = lease.reader().demand().clone();
        assert_eq!(demand.next(), None, "nothing has been served: anything is of use");
        let start = Instant::now();
        change(b"1");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(demand.next(), Some(start + PACE));
        change(b"2");
        tokio::time::sleep(PACE).await;
        assert_eq!(demand.next(), Some(start + 2 * PACE));
        drop(lease);
        tokio::time::sleep(2 * HOUSEKEEPING).await;
        assert_eq!(demand.next(), None, "no client is served");
    }

    #[tokio::test(start_paused = true)]
    async fn all_feeds_with_a_filter_keep_no_more_history_than_one_without() {
        const HISTORY: usize = 1 << 20;
        let (mut cache, feeds) = feeds(HISTORY);
        let key = |prefix: &str| FeedKey {
            syncer: FELIX,
            dialect: Release::Master,
            wire: Wire::GobPlain,
            filter: Filter::new(vec![prefix.to_owned()]),
        };
        // All of them admit the keys below.
        let prefix = |n: usize| format!("/{}", "0".repeat(n));
        let mut leases = Vec::new();
        for n in 0..MAX_FILTERED_FEEDS {
            leases.push(lease(&feeds, key(&prefix(n))).await.expect("there is room"));
        }
        assert_eq!(lease(&feeds, key("/one-more")).await.err(), Some(NoFeed::TooManyFilters));
        let name = "0".repeat(MAX_FILTERED_FEEDS);
        for n in 0..100 {
            let value = vec![b'x'; 1000];
            cache.apply(vec![SyncerEvent::Updates(vec![update(&format!("/{name}{n}"), Some(&value))])]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let held = || feeds.histories();
        eventually("all have some", || held().iter().all(|held| *held > HISTORY / MAX_FILTERED_FEEDS / 2)).await;
        let all: usize = held().iter().sum();
        assert!(all <= HISTORY, "{all} bytes");
    }

    /// Each change makes a round of every feed, so the number of clients counts, not their protocols.
    #[tokio::test(start_paused = true)]
    async fn rounds_are_as_far_apart_as_the_clients_of_all_feeds_of_a_syncer_demand() {
        const PER_CLIENT: Duration = Duration::from_millis(20);
        let (mut cache, feeds) = paced_feeds(PER_CLIENT);
        let key = |wire| FeedKey { syncer: FELIX, dialect: Release::Master, wire, filter: Filter::default() };
        let mut leases = Vec::new();
        for wire in [Wire::GobPlain, Wire::GobPlain, Wire::GobSnappy, Wire::GobSnappy, Wire::GobSnappy] {
            leases.push(lease(&feeds, key(wire)).await.expect("there is room"));
        }
        let demand = leases[0].reader().demand().clone();
        let start = Instant::now();
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"1"))])]);
        tokio::time::sleep(PER_CLIENT / 2).await;
        assert_eq!(demand.next(), Some(start + 5 * PER_CLIENT));
        leases.truncate(1);
        cache.apply(vec![SyncerEvent::Updates(vec![update("/k", Some(b"2"))])]);
        tokio::time::sleep(PER_CLIENT).await;
        assert_eq!(demand.next(), Some(start + 2 * PER_CLIENT), "those that left count no longer");
    }
}
