//! Publications of any size are one crumb. Agents get them in messages of today's sizes, at their own pace.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::model::{Key, SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
use crate::syncserver::Config;

/// Updates of a message, as with Typha's snapshot.
const MESSAGE_UPDATES: usize = 1000;

const VALUE_BYTES: usize = 1 << 10;

/// Bytes that do not compress.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut jitter = crate::syncserver::jitter::Jitter::new(1);
    (0..4 << 20).map(|_| u8::try_from(jitter.below(256)).expect("below 256")).collect()
});

/// A publication: its number, and how many keys it has.
#[derive(Clone, Copy, Debug)]
struct Publication {
    number: u8,
    keys: usize,
}

impl Publication {
    /// Its keys, not in their own order.
    fn key(self, n: usize) -> String {
        format!("/bulrush/v1/core/ConfigMap/default/{:06}", n * 7919 % self.keys)
    }

    /// Every tenth key goes with an odd publication.
    fn value(self, n: usize) -> Option<Bytes> {
        let at = (n + 7 * usize::from(self.number)) * VALUE_BYTES % (NOISE.len() - VALUE_BYTES);
        (self.number.is_multiple_of(2) || !n.is_multiple_of(10)).then(|| NOISE.slice(at..at + VALUE_BYTES))
    }

    fn events(self) -> Vec<SyncerEvent> {
        let update = |n| Update {
            key: Key::from(self.key(n)),
            value: self.value(n).map(Value::raw),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: UpdateType::New,
            origin: None,
        };
        vec![SyncerEvent::Updates((0..self.keys).map(update).collect()), SyncerEvent::Status(SyncStatus::InSync)]
    }

    /// Hears it from its first message to its last, and rests after each.
    async fn hear(self, client: &mut Client, rest: Duration) {
        let mut heard = 0;
        while heard < self.keys {
            match client.next().await.unwrap_or_else(|| panic!("closed after {heard} updates of {self:?}")) {
                Heard::Updates(changes) => {
                    assert!(changes.len() <= MESSAGE_UPDATES, "{}", changes.len());
                    for change in changes {
                        assert_eq!(change.key, self.key(heard), "in the order of the publication");
                        assert_eq!(change.value.as_deref(), self.value(heard).as_deref());
                        heard += 1;
                    }
                    client.map.clear();
                }
                Heard::Status(status) => panic!("{status:?} after {heard} updates of {self:?}"),
                _ => {}
            }
            sleep(rest).await;
        }
    }
}

/// Listens and answers pings until then.
async fn listen(client: &mut Client, until: impl Future<Output = ()>) {
    let mut until = std::pin::pin!(until);
    loop {
        tokio::select! {
            biased;
            () = &mut until => return,
            heard = client.next() => assert!(heard.is_some(), "it is cut"),
        }
    }
}

/// Three agents wait since before the first publication. One of them takes longer than a client may be behind.
#[tokio::test(start_paused = true)]
async fn a_publication_of_any_size_comes_whole_in_order_and_in_small_messages() {
    const FIRST: Publication = Publication { number: 0, keys: 200_000 };
    const NEXT: Publication = Publication { number: 1, keys: 3_000 };
    let config = config();
    let (max_lag_bytes, max_fall_behind) = (config.max_lag_bytes, config.max_fall_behind);
    let mut world = World::of_large_crumbs(config);
    let mut clients = Vec::new();
    for speech in [Speech::native("none"), Speech::GobSnappy, Speech::GobPlain] {
        let mut client = world.connect(speech).await;
        client.until("the stream", |client| client.streaming).await;
        clients.push(client);
    }
    sleep(Duration::from_secs(1)).await;
    world.felix.apply(FIRST.events());
    let metrics = world.felix_metrics.clone();
    let [native, packed, slow] = &mut clients[..] else { panic!("three clients") };
    let done = CancellationToken::new();
    let brisk = async |client: &mut Client| {
        FIRST.hear(client, Duration::ZERO).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        listen(client, done.cancelled()).await;
    };
    let began = Instant::now();
    tokio::join!(brisk(native), brisk(packed), async {
        // At least 200 messages.
        FIRST.hear(slow, 2 * max_fall_behind / 200).await;
        slow.until("in sync", |client| client.status == SyncStatus::InSync).await;
        done.cancel();
    });
    assert!(began.elapsed() > max_fall_behind, "{:?}", began.elapsed());
    assert_eq!(native.sequence, 1, "all of it is one crumb");
    let held = usize::try_from(metrics.feed_bytes.get()).expect("not negative");
    assert!(held <= max_lag_bytes, "{held}");
    world.felix.apply(NEXT.events());
    for client in &mut clients {
        NEXT.hear(client, Duration::ZERO).await;
    }
    world.put(&[("/last", "1")]);
    for client in &mut clients {
        client.until("a small change", |client| client.map.contains_key("/last")).await;
    }
    assert_eq!(metrics.catch_ups.get(), 0, "no client was left behind");
    assert_eq!(metrics.lost_wakeups.get(), 0);
    assert_eq!(metrics.breadcrumb_seq_number.get(), 3);
}

/// A slow agent lacks more than the feed keeps, for longer than a client may be behind.
#[tokio::test(start_paused = true)]
async fn a_slow_agent_between_publications_gets_last_values_and_is_not_cut() {
    const KEYS: usize = 4_000;
    let config =
        Config { max_fall_behind: Duration::from_secs(20), new_client_grace: Duration::from_secs(10), ..config() };
    for speech in Speech::all() {
        let mut world = World::of_large_crumbs(config.clone());
        let mut brisk = world.connect(speech.clone()).await;
        let mut slow = Client::new(world.dial(1024).await, speech.clone());
        slow.hello("felix").await;
        slow.until("the stream", |client| client.streaming).await;
        // Until their grace is over.
        let minute = || sleep(Duration::from_secs(60));
        tokio::join!(listen(&mut brisk, minute()), listen(&mut slow, minute()));
        let publish = async {
            for number in 0..20 {
                let publication = Publication { number, keys: KEYS };
                world.felix.apply(publication.events());
                publication.hear(&mut brisk, Duration::ZERO).await;
                listen(&mut brisk, sleep(Duration::from_secs(3))).await;
            }
            world.put(&[("/last", "1")]);
        };
        let lag = async {
            while !slow.map.contains_key("/last") {
                assert!(slow.next().await.is_some(), "{speech:?}: it is cut");
                sleep(Duration::from_secs(5)).await;
            }
        };
        tokio::join!(publish, lag);
        let last = Publication { number: 19, keys: KEYS };
        let expected: usize = (0..KEYS).filter(|n| last.value(*n).is_some()).count();
        assert_eq!(slow.map.len() - 1, expected, "{speech:?}");
        assert!((0..KEYS).all(|n| slow.map.get(&last.key(n)).map(Vec::as_slice) == last.value(n).as_deref()));
        assert!(slow.updates < 20 * KEYS, "{speech:?}: {} updates", slow.updates);
        assert!(world.felix_metrics.catch_ups.get() > 0, "{speech:?}");
    }
}
