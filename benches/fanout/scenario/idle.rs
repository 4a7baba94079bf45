//! Memory of a connection that is up to date and waits.

use crate::args::Args;
use crate::report::Report;
use crate::session::Session;
use crate::store::Store;

pub(super) async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let session = Session::start(args, store, None).await?;
    let _probes = session.probes(1).await?;
    // A first set of agents fills buffers and pools that connections share.
    let warm = session.agents(args.clients / 10 + 1).await?;
    warm.settled().await?;
    tokio::time::sleep(session.settle_time()).await;
    let before = session.server.rss_mib();
    let agents = session.agents(args.clients).await?;
    agents.settled().await?;
    tokio::time::sleep(session.settle_time() * 2).await;
    let after = session.server.rss_mib();
    agents.check()?;
    drop(warm);
    let mut report = session.report("idle");
    report.set("clients_live", agents.open());
    report.set("server_rss_mib", after);
    report.set("server_peak_mib", session.server.peak_mib());
    let each = before.zip(after).map(|(before, after)| (after - before) * 1024.0 / agents.open().max(1) as f64);
    report.set("kib_per_connection", each);
    Ok(report)
}
