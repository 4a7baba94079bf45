//! Panics in a server, and how it ends.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::timeout;

use super::harness::*;
use crate::model::{AsOf, SyncStatus, Update};
use crate::outlet::Outlet as _;
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::syncserver::wire::Wire;

/// Panics in one place, and is another format otherwise.
#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn WireFormat>,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// When the key `/bad` is in a snapshot, or in a change.
    Bad,
    /// With every ping.
    Ping,
}

impl Faulty {
    fn check(&self, entries: &[Arc<Update>]) {
        let bad = self.fault == Fault::Bad && entries.iter().any(|update| update.key.to_string() == "/bad");
        assert!(!bad, "cannot encode this");
    }
}

impl WireFormat for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn prefix(&self) -> Bytes {
        self.inner.prefix()
    }

    fn snapshot_begin(&self, sequence: u64, entries: usize) -> Bytes {
        self.inner.snapshot_begin(sequence, entries)
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        self.check(entries);
        self.inner.snapshot_chunk(entries)
    }

    fn snapshot_end(&self, sequence: u64, as_of: Option<&AsOf>) -> Bytes {
        self.inner.snapshot_end(sequence, as_of)
    }

    fn updates(&self, range: SeqRange, updates: &[Arc<Update>]) -> Bytes {
        self.check(updates);
        self.inner.updates(range, updates)
    }

    fn status(&self, sequence: u64, status: SyncStatus) -> Bytes {
        self.inner.status(sequence, status)
    }

    fn ping(&self, now: SystemTime, as_of: Option<&AsOf>) -> Bytes {
        assert!(self.fault != Fault::Ping, "cannot ping");
        self.inner.ping(now, as_of)
    }

    fn goodbye(&self, reason: &str, alternatives: &[String]) -> Option<Bytes> {
        self.inner.goodbye(reason, alternatives)
    }
}

/// A world in which plain clients of Calico's protocol meet a fault.
fn world(fault: Fault) -> World {
    let format: fn(Wire) -> Arc<dyn WireFormat> = match fault {
        Fault::Bad => |wire| faulty(wire, Fault::Bad),
        Fault::Ping => |wire| faulty(wire, Fault::Ping),
    };
    World::with_formats(config(), None, |inlet| inlet, format)
}

fn faulty(wire: Wire, fault: Fault) -> Arc<dyn WireFormat> {
    let inner = wire.format();
    if wire == Wire::GobPlain { Arc::new(Faulty { inner, fault }) } else { inner }
}

async fn in_sync(world: &World, speech: Speech) -> Client {
    let mut client = world.connect(speech).await;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    client
}

/// The message of the task that ended the server.
async fn failure(world: World) -> String {
    let ended = timeout(PATIENCE, world.run).await.expect("the server does not go on as if nothing had happened");
    ended.expect("the server itself does not panic").expect_err("a task failed").to_string()
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_panics_ends_the_server_and_its_clients() {
    let mut world = world(Fault::Bad);
    world.status(SyncStatus::InSync);
    let mut hit = in_sync(&world, Speech::GobPlain).await;
    let mut other = in_sync(&world, Speech::native("none")).await;
    world.put(&[("/bad", "1")]);
    assert_eq!(hit.until_closed().await, None, "Calico's protocol has no goodbye");
    assert_eq!(other.until_closed().await.as_deref(), Some("the server has stopped"));
    assert_eq!(failure(world).await, "task felix-gob-plain-feed panicked: cannot encode this");
}

#[tokio::test(start_paused = true)]
async fn a_producer_of_a_snapshot_that_panics_ends_the_server() {
    let mut world = world(Fault::Bad);
    world.put(&[("/bad", "1")]);
    world.status(SyncStatus::InSync);
    let mut client = world.connect(Speech::GobPlain).await;
    client.until_closed().await;
    assert_eq!(failure(world).await, "task felix-gob-plain-snapshot panicked: cannot encode this");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_panics_ends_alone_and_is_counted() {
    let mut world = world(Fault::Ping);
    world.status(SyncStatus::InSync);
    let mut hit = in_sync(&world, Speech::GobPlain).await;
    let mut other = in_sync(&world, Speech::GobSnappy).await;
    let mut pinged = false;
    while !pinged {
        pinged = matches!(other.next().await, Some(Heard::Ping(_)));
    }
    hit.until_closed().await;
    eventually("it is counted", || world.closed("panicked") == 1).await;
    assert_eq!(world.handle.connections(), 1);
    world.put(&[("/a", "1")]);
    other.until("the others are served", |client| client.map.contains_key("/a")).await;
    assert!(!world.run.is_finished());
}
