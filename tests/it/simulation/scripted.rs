//! Scenes that were found by seeds, as scripts: a cache that the test writes itself, on the simulated network.

use std::collections::BTreeMap;
use std::time::Duration;

use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::model::{SyncStatus, SyncerEvent, Update, UpdateType, Value, no_revision};
use bulrush::snapcache::SnapCache;
use bulrush::syncclient::{Client, Protocol, SyncEvent};
use bulrush::syncer::SyncerType;
use bulrush::syncproto::native::Compression;
use bulrush::syncserver::{Config, Metrics, Server};
use prometheus::Registry;

use super::lines::{Inlet, Plug};
use super::panics;

const FELIX: SyncerType = SyncerType::Felix;

fn put(key: &str) -> SyncerEvent {
    SyncerEvent::Updates(vec![Update {
        key: key.into(),
        value: Some(Value::raw("1")),
        revision: no_revision(),
        v3_resource_version: no_revision(),
        ttl: Duration::ZERO,
        update_type: UpdateType::New,
    }])
}

/// A server whose cache gets an event each 500 ms, the first at once.
async fn serve(script: Vec<SyncerEvent>) -> turmoil::Result {
    let metrics = SyncerMetrics::unregistered(FELIX);
    let (mut cache, reader) = SnapCache::new(10, metrics.clone());
    let metrics = Metrics { server: ServerMetrics::new(&Registry::new()), syncers: BTreeMap::from([(FELIX, metrics)]) };
    let config = Config { seed: 1, snapshot_max_age: Duration::from_secs(60), ..Config::default() };
    let bound =
        Server::with_listener(Inlet::bind(1, None).await?, config, BTreeMap::from([(FELIX, reader)]), metrics, None);
    tokio::spawn(bound.run(|| {}));
    for event in script {
        cache.apply(vec![event]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    std::future::pending().await
}

/// Follows until in sync, is reset at `reset_at`, and follows until in sync again. What it hears after the reset.
async fn follow_twice(protocol: Protocol, reset_at: Duration) -> turmoil::Result<Vec<SyncEvent>> {
    let plug = Plug::default();
    let mut client = Client::builder(["server:5473"]).protocol(protocol).seed(1).start_with(plug.clone())?;
    let mut heard = Vec::new();
    let reset = tokio::time::sleep(reset_at);
    tokio::pin!(reset);
    loop {
        tokio::select! {
            () = &mut reset, if !reset.is_elapsed() => {
                heard.clear();
                plug.cut();
            }
            event = client.next() => {
                heard.push(event.ok_or("the client gave up")?);
                if reset.is_elapsed() && heard.last() == Some(&SyncEvent::Status(SyncStatus::InSync)) {
                    return Ok(heard);
                }
            }
        }
    }
}

#[test]
fn an_in_sync_of_the_past_deletes_nothing_at_a_client_that_comes_back() -> turmoil::Result {
    let native = Protocol::Native { compressions: vec![Compression::Zstd] };
    for protocol in [native, Protocol::Calico { compression: true }, Protocol::Calico { compression: false }] {
        let mut sim = turmoil::Builder::new().rng_seed(1).simulation_duration(Duration::from_secs(60)).build();
        // The first client's snapshot is from before in-sync and would be shared: it lacks /b, which came after in-sync.
        let script = vec![put("/a"), SyncerEvent::Status(SyncStatus::InSync), put("/b")];
        sim.host("server", move || serve(script.clone()));
        sim.client("agent", async move {
            let heard = follow_twice(protocol.clone(), Duration::from_secs(2)).await?;
            let lost = heard.iter().any(|event| match event {
                SyncEvent::Updates(updates) => updates.iter().any(|update| update.value.is_none()),
                _ => false,
            });
            if lost {
                Err(format!("{protocol:?}: a key that was there all the time is deleted: {heard:?}").into())
            } else {
                Ok(())
            }
        });
        panics::run(sim)?;
    }
    Ok(())
}
