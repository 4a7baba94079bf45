//! A server with idle clients: bytes of a snapshot, of the log and of a connection, and allocations per change and client.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use bulrush::calico::syncers::FELIX;
use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::model::{SyncStatus, SyncerEvent};
use bulrush::outlet::Outlet as _;
use bulrush::snapcache::SnapCache;
use bulrush::syncserver::{Config, Metrics, Server};
use prometheus::Registry;
use tokio::runtime::Runtime;

use super::clients::Clients;
use super::common::Converter;
use super::{Figures, allocations, live};

/// Time until unused memory is dropped: a snapshot after 10 s, a feed's history after 15 s.
const FORGOTTEN: Duration = Duration::from_secs(18);
/// Changes in a message under load.
const TOGETHER: usize = 20;
/// Time without bytes after which nothing is under way.
const QUIET: Duration = Duration::from_millis(300);

pub(super) fn measure(
    runtime: &Runtime,
    endpoints: usize,
    count: usize,
    changes: usize,
    quick: bool,
) -> anyhow::Result<Figures> {
    ensure!(changes <= endpoints, "each change needs its own endpoint: {changes} changes, {endpoints} endpoints");
    let forgotten = if quick { QUIET } else { FORGOTTEN };
    let metrics = SyncerMetrics::unregistered();
    let (mut cache, reader) = SnapCache::new(100, metrics.clone());
    let mut converter = Converter::new();
    for i in 0..endpoints {
        cache.apply(vec![SyncerEvent::Updates(vec![converter.update(i, endpoints, 0)])]);
    }
    cache.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    let config = Config {
        host: "127.0.0.1".to_owned(),
        port: 0,
        // Only changes are to be counted.
        ping_interval: Duration::from_secs(3600),
        pong_timeout: Duration::from_secs(7200),
        seed: 1,
        ..Config::default()
    };
    let all =
        Metrics { server: ServerMetrics::new(&Registry::new()), syncers: BTreeMap::from([(FELIX, metrics.clone())]) };
    let bound = runtime.block_on(Server::bind(config, BTreeMap::from([(FELIX, reader)]), all, None))?;
    let (address, handle) = (bound.local_addr()?, bound.handle());
    let server = runtime.spawn(bound.run(|| {}));
    let mut clients = Clients::new(count);

    // Made beforehand: making changes allocates.
    let mut seq = 0;
    let mut prepared = |seq: &mut usize, together: usize| {
        *seq += 1;
        let first = *seq * 7919;
        let mut change = |n: usize| converter.update((first + n) % endpoints, endpoints, *seq);
        let message = |from: usize| (from..changes.min(from + together)).map(&mut change).collect::<Vec<_>>();
        (0..changes).step_by(together).map(message).collect::<Vec<_>>().into_iter()
    };
    let mut steps = Vec::with_capacity(count);
    for share in [1, count / 2, count] {
        eprintln!("serving: {share} clients");
        clients.connect(address, share)?;
        clients.settle(QUIET)?;
        ensure!(handle.connections() == clients.len(), "every client is served");
        let joined = live();
        clients.settle(forgotten)?;
        let idle = live();
        // Twice: first to warm up, until buffers have reached their final size. Then many changes to a message, as under load.
        let mut send = |together: usize| {
            let messages = prepared(&mut seq, together);
            let (bytes, asked) = (live(), allocations());
            for updates in messages {
                cache.apply(vec![SyncerEvent::Updates(updates)]);
                clients.one_message()?;
            }
            Ok::<_, anyhow::Error>(Sent { asked: allocations() - asked, logged: live() - bytes })
        };
        send(1)?;
        let (alone, together) = (send(1)?, send(TOGETHER)?);
        steps.push(Step { clients: share, joined, idle, alone, together });
        clients.settle(forgotten)?;
    }
    handle.stop();
    runtime.block_on(server)??;
    let [one, half, full] = &steps[..] else { unreachable!("there are three steps") };
    let per = |bytes: i64, of: usize| bytes as f64 / of as f64;
    let fixed = one.alone.asked as f64 / changes as f64;
    let slope = (full.alone.asked as f64 - half.alone.asked as f64) / (changes * (full.clients - half.clients)) as f64;
    Ok(vec![
        ("bytes per KV: snapshot, snappy", per(one.joined - one.idle, endpoints)),
        ("bytes per KV: snapshot, as counted by metric", per(metrics.snapshot_compressed_bytes.get(), endpoints)),
        ("bytes per change in the log, one a message", per(one.alone.logged, changes)),
        ("bytes per change in the log, 20 a message", per(one.together.logged, changes)),
        ("bytes per idle connection", per(full.idle - one.idle, full.clients - one.clients)),
        ("allocations per change, one client", fixed),
        ("allocations per change and further client", slope),
    ])
}

struct Step {
    clients: usize,
    joined: i64,
    idle: i64,
    alone: Sent,
    together: Sent,
}

/// Cost of sending the changes: allocations, and bytes that stayed.
struct Sent {
    asked: usize,
    logged: i64,
}
