//! Scripts of scenes that seeds have found, or that show the effect of a fault: the test itself writes the caches, on the
//! simulated network.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use bulrush::calico::syncers::FELIX;
use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::model::{SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
use bulrush::outlet::Outlet as _;
use bulrush::outlet::peers::Peers;
use bulrush::snapcache::SnapCache;
use bulrush::syncclient::{Client, Error, Protocol, SyncEvent, Timeouts};
use bulrush::syncproto::native::Compression;
use bulrush::syncserver::{Config, Metrics, Pumps, Server};
use prometheus::Registry;

use super::later;
use super::ledger::Name;
use super::library::TIMEOUTS;
use super::lines::{Defect, Inlet, MAX_LARGE_WRITE, PORT, Plug, SERVERS};
use super::panics;
use super::raw::{DEAF, Raw, stay_silent};
use super::roles::Role;

/// Time between two events of a script.
const BEAT: Duration = Duration::from_millis(500);

fn protocols() -> [Protocol; 3] {
    let native = Protocol::Native { compressions: vec![Compression::Zstd] };
    [native, Protocol::Calico { compression: true }, Protocol::Calico { compression: false }]
}

fn value(key: &str, value: impl Into<Vec<u8>>) -> SyncerEvent {
    SyncerEvent::Updates(vec![Update {
        key: key.into(),
        value: Some(Value::raw(value.into())),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: UpdateType::New,
        origin: None,
    }])
}

fn put(key: &str) -> SyncerEvent {
    value(key, "1")
}

const IN_SYNC: SyncerEvent = SyncerEvent::Status(SyncStatus::InSync);

/// The part of a server.
#[derive(Clone, Debug, Default)]
struct Part {
    /// The events for its cache, one event for each [`BEAT`], the first at once.
    script: Vec<SyncerEvent>,
    /// Time at which it drains and is gone.
    drains_at: Option<Duration>,
    /// The servers that it sends its clients to.
    peers: &'static [Name],
    defect: Option<Defect>,
}

async fn serve(part: Part) -> turmoil::Result {
    let metrics = SyncerMetrics::unregistered();
    let (mut cache, reader) = SnapCache::new(10, metrics.clone());
    let metrics = Metrics { server: ServerMetrics::new(&Registry::new()), syncers: BTreeMap::from([(FELIX, metrics)]) };
    let config = Config {
        seed: 1,
        snapshot_max_age: Duration::from_secs(60),
        ping_interval: Duration::from_millis(300),
        pong_timeout: Duration::from_millis(2500),
        write_timeout: Duration::from_millis(2500),
        shutdown_timeout: Duration::from_secs(1),
        // Two pumps with one agent each, as for hundreds of agents elsewhere.
        pumps: Some(Pumps { count: 2, row: 1 }),
        ..Config::default()
    };
    let inlet = Inlet::bind(1, MAX_LARGE_WRITE, part.defect).await?;
    let bound = Server::with_listener(inlet, config, BTreeMap::from([(FELIX, reader)]), metrics, None);
    let handle = bound.handle();
    let address = |server: &Name| vec![SocketAddr::new(turmoil::lookup(*server), PORT)];
    handle.set_peers(Peers::new(part.peers.iter().map(address), &[]));
    tokio::spawn(bound.run(|| {}));
    if let Some(at) = part.drains_at {
        tokio::spawn(async move {
            later(at).await;
            handle.drain();
        });
    }
    for event in part.script {
        cache.apply(vec![event]);
        later(BEAT).await;
    }
    std::future::pending().await
}

/// A simulation with these servers.
fn stage(parts: Vec<Part>) -> turmoil::Sim<'static> {
    let mut sim = turmoil::Builder::new().rng_seed(1).simulation_duration(Duration::from_secs(60)).build();
    for (name, part) in SERVERS.into_iter().zip(parts) {
        sim.host(name, move || serve(part.clone()));
    }
    sim
}

fn client(servers: &[Name], protocol: Protocol, timeouts: Timeouts, plug: &Plug) -> Result<Client, Error> {
    let addresses = servers.iter().map(|server| format!("{server}:{PORT}"));
    Client::builder(addresses).protocol(protocol).timeouts(timeouts).seed(1).start_with(plug.clone())
}

/// Collects events until `what` holds for one, which is the last in the result.
async fn until(client: &mut Client, what: impl Fn(&SyncEvent) -> bool) -> turmoil::Result<Vec<SyncEvent>> {
    let mut heard = Vec::new();
    loop {
        heard.push(client.next().await.ok_or("the client gave up")?);
        if heard.last().is_some_and(&what) {
            return Ok(heard);
        }
    }
}

fn in_sync(event: &SyncEvent) -> bool {
    *event == SyncEvent::Status(SyncStatus::InSync)
}

fn lost(event: &SyncEvent) -> bool {
    matches!(event, SyncEvent::Disconnected { .. })
}

/// The keys of all updates, deleted keys with a minus.
fn keys(heard: &[SyncEvent]) -> Vec<String> {
    let of = |update: &Update| format!("{}{}", if update.value.is_none() { "-" } else { "" }, update.key);
    let updates = heard.iter().filter_map(|event| match event {
        SyncEvent::Updates(updates) => Some(updates),
        _ => None,
    });
    updates.flatten().map(of).collect()
}

/// Follows until in sync, is reset at `reset_at`, and follows until in sync again. Returns the events after the reset.
async fn follow_twice(protocol: Protocol, reset_at: Duration) -> turmoil::Result<Vec<SyncEvent>> {
    let plug = Plug::default();
    let mut client = client(&SERVERS[..1], protocol, Timeouts::default(), &plug)?;
    let mut heard = Vec::new();
    let mut reset = pin!(later(reset_at));
    let mut is_reset = false;
    loop {
        tokio::select! {
            () = &mut reset, if !is_reset => {
                is_reset = true;
                heard.clear();
                plug.cut();
            }
            event = client.next() => {
                heard.push(event.ok_or("the client gave up")?);
                if is_reset && heard.last().is_some_and(in_sync) {
                    return Ok(heard);
                }
            }
        }
    }
}

#[test]
fn an_old_in_sync_deletes_nothing_at_a_client_that_comes_back() -> turmoil::Result {
    for protocol in protocols() {
        // The first client's snapshot, which would be shared, is from before in-sync: it lacks /b, which came after in-sync.
        let mut sim = stage(vec![Part { script: vec![put("/a"), IN_SYNC, put("/b")], ..Part::default() }]);
        sim.client("agent", async move {
            let heard = follow_twice(protocol.clone(), Duration::from_secs(2)).await?;
            if keys(&heard).iter().any(|key| key.starts_with('-')) {
                Err(format!("{protocol:?}: a key that was there all the time is deleted: {heard:?}").into())
            } else {
                Ok(())
            }
        });
        panics::run(sim)?;
    }
    Ok(())
}

/// An agent that moves to a server that is behind gets that server's older state: a key that the server does not know yet is deleted
/// at its in-sync, and comes back later. Neither protocol can tell that one server is behind another.
#[test]
fn a_server_that_is_behind_deletes_keys_that_it_does_not_know_yet_and_sends_them_again() -> turmoil::Result {
    for protocol in protocols() {
        let ahead = Part {
            script: vec![put("/a"), put("/b"), IN_SYNC],
            drains_at: Some(Duration::from_secs(2)),
            peers: &SERVERS[1..],
            ..Part::default()
        };
        let behind =
            vec![put("/a"), IN_SYNC, put("/c"), put("/c"), put("/c"), put("/c"), put("/c"), put("/c"), put("/b")];
        let mut sim = stage(vec![ahead, Part { script: behind, ..Part::default() }]);
        sim.client("agent", async move {
            let mut client = client(&SERVERS, protocol.clone(), Timeouts::default(), &Plug::default())?;
            let first = until(&mut client, in_sync).await?;
            assert_eq!(keys(&first), ["/a", "/b"]);
            until(&mut client, lost).await?;
            let second = until(&mut client, in_sync).await?;
            assert_eq!(keys(&second), ["/c", "-/b"], "{protocol:?}");
            let third = until(&mut client, |event| matches!(event, SyncEvent::Updates(_))).await?;
            assert_eq!(keys(&third), ["/b"], "{protocol:?}");
            Ok(())
        });
        panics::run(sim)?;
    }
    Ok(())
}

#[test]
fn a_goodbye_leads_to_the_other_server_at_once() -> turmoil::Result {
    let script = vec![put("/a"), IN_SYNC];
    let leaving = Part {
        script: script.clone(),
        drains_at: Some(Duration::from_secs(2)),
        peers: &SERVERS[1..],
        ..Part::default()
    };
    let mut sim = stage(vec![leaving, Part { script, ..Part::default() }]);
    sim.client("agent", async {
        let plug = Plug::default();
        // The client knows only the first server.
        let mut client = client(&SERVERS[..1], protocols()[0].clone(), Timeouts::default(), &plug)?;
        until(&mut client, in_sync).await?;
        let heard = until(&mut client, lost).await?;
        let left_at = turmoil::sim_elapsed().unwrap_or_default();
        let Some(SyncEvent::Disconnected { reason: Error::Goodbye { .. }, .. }) = heard.last() else {
            return Err(format!("no goodbye: {heard:?}").into());
        };
        until(&mut client, in_sync).await?;
        let dial = plug.dial_number(1).ok_or("it has not connected again")?;
        assert_eq!(dial.server, SERVERS[1]);
        assert!(dial.at.saturating_sub(left_at) < Duration::from_millis(200), "{dial:?} after {left_at:?}");
        Ok(())
    });
    panics::run(sim)
}

#[test]
fn an_agent_that_does_not_read_is_cut_and_disturbs_no_other() -> turmoil::Result {
    let raws = [Raw::Native(Compression::Snappy), Raw::Gob(true), Raw::Gob(false)];
    for (protocol, large) in raws.into_iter().flat_map(|raw| [(raw, false), (raw, true)]) {
        // More than the network holds for an agent, or only a few pings.
        let first = if large { value("/a", vec![b'a'; 8 << 20]) } else { put("/a") };
        let mut script = vec![first, IN_SYNC];
        script.extend((0..40).map(|i| put(&format!("/{i}"))));
        let mut sim = stage(vec![Part { script, ..Part::default() }]);
        sim.client("deaf", async move {
            let role = Role::of("deaf", FELIX);
            let (mut line, _) = Plug::default().dial(SERVERS[0]).await?;
            stay_silent(&role, protocol, &mut line).await?;
            // Only the other agent is connected.
            let connections = turmoil::established_tcp_stream_count_on(SERVERS[0]);
            if connections == 1 {
                Ok(())
            } else {
                Err(format!("{protocol:?}, large {large}: {connections} connections after {DEAF:?}").into())
            }
        });
        sim.client("agent", async {
            let mut client = client(&SERVERS[..1], protocols()[0].clone(), Timeouts::default(), &Plug::default())?;
            until(&mut client, in_sync).await?;
            for i in 0..20 {
                // Each event comes within its beat.
                let next = until(&mut client, |event| matches!(event, SyncEvent::Updates(_)));
                let heard = tokio::time::timeout(2 * BEAT, next).await?;
                assert_eq!(keys(&heard?).len(), 1, "{i}");
            }
            Ok(())
        });
        panics::run(sim)?;
    }
    Ok(())
}

#[test]
fn an_agent_that_is_cut_off_in_one_direction_comes_back() -> turmoil::Result {
    for (from, to) in [("server", "agent"), ("agent", "server")] {
        for protocol in protocols() {
            let mut sim = stage(vec![Part { script: vec![put("/a"), IN_SYNC], ..Part::default() }]);
            sim.client("agent", async move {
                let plug = Plug::default();
                let mut client = client(&SERVERS[..1], protocol.clone(), TIMEOUTS, &plug)?;
                until(&mut client, in_sync).await?;
                turmoil::partition_oneway(from, to);
                let cut_off = turmoil::sim_elapsed().unwrap_or_default();
                until(&mut client, lost).await?;
                // Noticed by the library's read time-out, or by the server's time-out for pongs.
                let noticed = turmoil::sim_elapsed().unwrap_or_default().saturating_sub(cut_off);
                assert!(noticed < Duration::from_secs(4), "{protocol:?}: {noticed:?}");
                turmoil::repair_oneway(from, to);
                until(&mut client, in_sync).await?;
                Ok(())
            });
            panics::run(sim)?;
        }
    }
    Ok(())
}

#[test]
fn values_larger_than_a_snapshot_piece_and_a_pumps_pass_arrive_whole() -> turmoil::Result {
    for size in [70 << 10, 300 << 10, 1 << 20] {
        // Two large values: one before agents come, one while they rest.
        let large =
            |key: &str| value(key, (0..size).map(|i: usize| i.wrapping_mul(i).to_le_bytes()[1]).collect::<Vec<u8>>());
        let mut script = vec![large("/a"), IN_SYNC];
        script.extend((0..4).map(|_| put("/b")));
        script.push(large("/c"));
        let mut sim = stage(vec![Part { script, ..Part::default() }]);
        for (name, protocol) in ["zstd", "snappy", "plain"].into_iter().zip(protocols()) {
            sim.client(name, async move {
                let mut client = client(&SERVERS[..1], protocol, Timeouts::default(), &Plug::default())?;
                let is_last = |event: &SyncEvent| match event {
                    SyncEvent::Updates(updates) => updates.iter().any(|update| &*update.key == "/c"),
                    _ => false,
                };
                let heard = until(&mut client, is_last).await?;
                assert_eq!(keys(&heard), ["/a", "/b", "/c"]);
                let updates = heard.iter().filter_map(|event| match event {
                    SyncEvent::Updates(updates) => Some(updates),
                    _ => None,
                });
                let sizes: Vec<usize> =
                    updates.flatten().filter_map(|update| Some(update.value.as_ref()?.bytes.len())).collect();
                assert_eq!(sizes, [size, 1, size]);
                Ok(())
            });
        }
        panics::run(sim)?;
    }
    Ok(())
}

#[test]
fn a_pump_that_panics_is_found_with_several_pumps() {
    let script = vec![put("/a"), IN_SYNC, put("/b"), put("/c"), put("/d"), put("/e")];
    let mut sim = stage(vec![Part { script, defect: Some(Defect::Pump), ..Part::default() }]);
    for name in ["one", "two"] {
        sim.client(name, async {
            let mut client = client(&SERVERS[..1], protocols()[0].clone(), Timeouts::default(), &Plug::default())?;
            until(&mut client, |_| false).await?;
            Ok(())
        });
    }
    let words = panics::run(sim).expect_err("pumps panic").to_string();
    assert!(words.contains("a defect of pumps"), "{words}");
}
