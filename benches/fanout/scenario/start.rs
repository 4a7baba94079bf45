//! Time from exec to the first agent in sync; with Kubernetes, beside a plain reflector if asked for.

use anyhow::ensure;

use crate::args::Args;
use crate::reflector::{self, Reading};
use crate::relay::Relay;
use crate::report::Report;
use crate::session::Session;
use crate::store::Store;

pub(super) async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    ensure!(args.server.is_none(), "a server that runs already cannot be started: leave out --server");
    if store.cluster().is_some() {
        // The API server's cache has just been filled; its clean-up is not to be measured.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    let mut report = once(args, store, None).await?;
    let Some(cluster) = store.cluster() else { return Ok(report) };
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    // Bytes are counted in runs of their own: the relay costs time.
    let relay = Relay::start(cluster.address())?;
    once(args, store, Some(&relay)).await?;
    report.set("read_mib", mib(relay.bytes()));
    if args.reflector {
        for (name, reading) in [("reflector", Reading::Pages), ("reflector_streams", Reading::Streams)] {
            let run = reflector::run(&cluster.kubeconfig(None), reading).await?;
            let relay = Relay::start(cluster.address())?;
            reflector::run(&cluster.kubeconfig(Some(&relay)), reading).await?;
            for (field, value) in [
                ("objects", run.objects as f64),
                ("seconds", run.seconds),
                ("cpu_secs", run.cpu_secs),
                ("peak_mib", run.peak_mib),
                ("rss_mib", run.rss_mib),
                ("read_mib", mib(relay.bytes())),
            ] {
                report.set(&format!("{name}_{field}"), value);
            }
        }
    }
    Ok(report)
}

async fn once(args: &Args, store: &Store, relay: Option<&Relay>) -> anyhow::Result<Report> {
    let session = Session::start(args, store, relay).await?;
    let probes = session.probes(1).await?;
    let seconds = session.server.started.elapsed().as_secs_f64();
    let server = &session.server;
    let (cpu, peak, rss) = (server.cpu_secs(), server.peak_mib(), server.rss_mib());
    let mut report = session.report("start");
    report.set("clients", 1);
    report.set("keys", probes.seen[0].borrow().keys);
    report.set("seconds", seconds);
    report.set("server_cpu_secs", cpu);
    report.set("server_peak_mib", peak);
    report.set("server_rss_mib", rss);
    Ok(report)
}
