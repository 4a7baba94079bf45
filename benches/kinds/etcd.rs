//! The start over etcd: documents of any kind, beside as many of Calico's network sets in the same etcd.

use anyhow::Context as _;
use etcd_client::{Client, Txn, TxnOp};
use tokio::time::sleep;

use crate::args::Args;
use crate::content;
use crate::progress::Step;
use crate::real_etcd::Etcd;
use crate::report::{Row, median};
use crate::server::Server;

/// Puts per transaction: etcd's default limit is 128.
const TXN_OPS: usize = 100;
const MIB: f64 = 1024.0 * 1024.0;

/// One of the two ways, and what its starts have shown.
struct Way {
    name: String,
    syncer: &'static str,
    global: String,
    sections: String,
    /// Bytes of the values in etcd.
    content: usize,
    seconds: Vec<f64>,
    cpu_secs: Vec<f64>,
    rss_mib: Vec<f64>,
    peak_mib: Vec<f64>,
}

impl Way {
    /// Writes `objects` objects, and names the configuration that reads them.
    async fn fill(
        client: &mut Client,
        objects: usize,
        what: &str,
        object: fn(usize) -> (String, String),
        syncer: &'static str,
        (global, sections): (String, String),
    ) -> anyhow::Result<Self> {
        let mut step = Step::begin(format!("filling etcd with {objects} {what}"));
        let mut content = 0;
        for first in (0..objects).step_by(TXN_OPS) {
            let puts = (first..objects.min(first + TXN_OPS)).map(|i| {
                let (key, value) = object(i);
                content += value.len();
                TxnOp::put(key, value, None)
            });
            let puts: Vec<TxnOp> = puts.collect();
            client.txn(Txn::new().and_then(puts)).await.context("fill etcd")?;
            step.at(first, objects);
        }
        step.done();
        let name = format!("etcd: {objects} {what}");
        let (seconds, cpu_secs, rss_mib, peak_mib) = Default::default();
        Ok(Self { name, syncer, global, sections, content, seconds, cpu_secs, rss_mib, peak_mib })
    }

    /// Starts the daemon once, and waits until it is at rest.
    async fn run(&mut self, args: &Args) -> anyhow::Result<()> {
        let step = Step::begin(format!("{}, start {}", self.name, self.seconds.len() + 1));
        let config = (self.global.as_str(), self.sections.as_str());
        let all = |keys: u64| keys >= args.objects as u64;
        let started = Server::start_until(args.program.as_deref(), config, self.syncer, |it| all(it.keys)).await;
        let (server, start) = started.with_context(|| self.name.clone())?;
        sleep(args.settle()).await;
        self.seconds.push(start.seconds);
        self.cpu_secs.push(start.cpu_secs);
        self.rss_mib.push(server.rss_mib());
        self.peak_mib.push(server.peak_mib());
        step.done();
        Ok(())
    }

    fn into_row(self) -> Row {
        let (content_mib, rss_mib) = (self.content as f64 / MIB, median(self.rss_mib));
        Row::new(self.name)
            .with("in_sync_secs", median(self.seconds))
            .with("cpu_secs", median(self.cpu_secs))
            .with("content_mib", content_mib)
            .with("rss_mib", rss_mib)
            .with("rss_to_content", rss_mib / content_mib)
            .with("peak_mib", median(self.peak_mib))
    }
}

/// Both ways, started in turn: whatever else the machine does meets both.
pub(crate) async fn measure(args: &Args) -> anyhow::Result<Vec<Row>> {
    let etcd = Etcd::start().await.context("BULRUSH_WITHOUT leaves etcd out")?;
    let (mut client, url) = (etcd.client().await, etcd.url());
    let mesh = format!(
        "[datastore \"kv\"]\nType = etcdv3\nEndpoints = {url}\nPrefix = {}\n[syncer \"mesh\"]\nSources = kv\nKinds = example.org/v1/Garden\n",
        content::MESH
    );
    let calico = format!("DatastoreType = etcdv3\nEtcdEndpoints = {url}");
    let config = ("CalicoSyncers = none".to_owned(), mesh);
    let any = Way::fill(&mut client, args.objects, "documents", content::garden_in_etcd, "mesh", config).await?;
    let config = (calico, String::new());
    let sets = content::network_set_in_etcd;
    let calico = Way::fill(&mut client, args.objects, "GlobalNetworkSets", sets, "felix", config).await?;
    let mut ways = [any, calico];
    for _ in 0..args.repeat {
        for way in &mut ways {
            way.run(args).await?;
        }
    }
    Ok(ways.into_iter().map(Way::into_row).collect())
}
