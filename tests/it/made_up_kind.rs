//! A pipeline of a made-up kind, from its datastore to an agent, without anything from `calico/`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bulrush::calico::dialect::choice::OfUnknownVersions;
use bulrush::datastore::memory::MemoryStore;
use bulrush::datastore::{Dialect, Kind, Object, ObjectId};
use bulrush::health::HealthAggregator;
use bulrush::metrics::{ServerMetrics, SyncerMetrics};
use bulrush::model::finding::BAD_VALUE;
use bulrush::model::{Key, KvPair, SyncStatus, SyncerName, Update, Value, no_revision};
use bulrush::outlet::Outlet as _;
use bulrush::pipeline::SyncerPipeline;
use bulrush::syncclient::{Client, Protocol, Release, SyncEvent};
use bulrush::syncer::kind_watch::KindHub;
use bulrush::syncer::processor::{ConvertError, ObjectEvent, Processor};
use bulrush::syncer::spec::{PipelineSpec, Source};
use bulrush::syncserver::{Config, Metrics, Server};
use bulrush::tasks::TaskRegistry;
use bulrush::validate::filter::{OnInvalid, Rules};
use bulrush::validate::{Findings, Validate};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

const GARDENS: SyncerName = SyncerName::new("gardens");
const PATIENCE: Duration = Duration::from_secs(30);

fn garden() -> Kind {
    Kind {
        group: "example.org".into(),
        version: "v1".into(),
        name: "Garden".into(),
        plural: "gardens".into(),
        namespaced: true,
        etcd_prefix: None,
    }
}

/// Number of beds. A garden without beds is not valid.
#[derive(Debug)]
struct Beds(Option<u64>);

impl Validate for Beds {
    fn validate(&self) -> Findings {
        let mut findings = Findings::none();
        if self.0 == Some(0) {
            findings.error(BAD_VALUE, "spec.beds", "0", "one bed at least");
        }
        findings
    }
}

/// Hands gardens on as they are.
struct Gardens;

fn key(id: &ObjectId) -> Key {
    format!("/gardens/{id}").into()
}

impl Processor for Gardens {
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError> {
        let (id, value, revision) = match event {
            ObjectEvent::Put(object) => {
                let body: serde_json::Value =
                    serde_json::from_slice(&object.body).map_err(|error| ConvertError { reason: error.to_string() })?;
                let beds = Beds(body["spec"]["beds"].as_u64());
                (&object.id, Some(Value::checked(object.body.clone(), Arc::new(beds))), object.revision.clone())
            }
            ObjectEvent::Delete(id, _) => (id, None, no_revision()),
        };
        out.push(KvPair { key: key(id), value, revision, v3_resource_version: no_revision(), origin: None });
        Ok(())
    }
}

fn object(name: &str, beds: u64) -> Object {
    Object {
        id: ObjectId { namespace: "home".into(), name: name.into() },
        revision: no_revision(),
        dialect: Dialect::Kubernetes,
        body: format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"beds":{beds}}}}}"#).into(),
        place: None,
    }
}

/// All that an agent has once it is in sync.
async fn content(mut client: Client) -> anyhow::Result<BTreeMap<String, bytes::Bytes>> {
    let mut content = BTreeMap::new();
    let told = async {
        loop {
            match client.next().await.context("the client lives")? {
                SyncEvent::Status(SyncStatus::InSync) => return anyhow::Ok(()),
                SyncEvent::Updates(updates) => {
                    let put = |update: Update| Some((update.key.to_string(), update.value?.bytes));
                    content.extend(updates.into_iter().filter_map(put));
                }
                SyncEvent::Disconnected { reason, .. } => anyhow::bail!("no connection: {reason}"),
                _ => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await??;
    client.close().await;
    Ok(content)
}

#[tokio::test]
async fn a_made_up_kind_reaches_an_agent() -> anyhow::Result<()> {
    let store = MemoryStore::new();
    store.put(&garden(), object("back", 3));
    store.put(&garden(), object("bare", 0));
    let (registry, stop, tasks) = (Registry::new(), CancellationToken::new(), TaskRegistry::new());
    let mut hub = KindHub::new(Arc::new(store.clone()), 1);
    let spec = PipelineSpec {
        syncer: GARDENS,
        sources: vec![Source { name: "Garden".into(), kinds: vec![garden()], processor: Box::new(Gardens) }],
        inlets: Vec::new(),
        publishing: None,
        rules: Rules { on_invalid: OnInvalid::KeepLast, family: |_| "garden" },
        counts: Some("/gardens/"),
    };
    let metrics = SyncerMetrics::new(&registry, GARDENS.as_str());
    let pipeline = SyncerPipeline::new(spec, 100, &metrics, &mut hub);
    let view = pipeline.view();
    pipeline.start(&tasks, &HealthAggregator::new(), true, &stop);
    tasks.spawn("watches", hub.run(stop.clone()));
    let caches = BTreeMap::from([(GARDENS, view.reader.clone())]);
    let metrics = Metrics { server: ServerMetrics::new(&registry), syncers: BTreeMap::from([(GARDENS, metrics)]) };
    // No release of Calico has a form of its own for these data, so none is refused.
    let of_unknown_versions = OfUnknownVersions::Refuse;
    let config = Config { host: "127.0.0.1".to_owned(), port: 0, of_unknown_versions, ..Config::default() };
    let bound = Server::bind(config, caches, metrics, None).await?;
    let (address, server) = (bound.local_addr()?, bound.handle());
    let serving = tokio::spawn(bound.run(|| {}));

    let mut client = Client::builder([address.to_string()]).agent("test").syncer(GARDENS).start()?;
    let mut held = BTreeMap::new();
    let mut until = async |wanted: fn(&BTreeMap<String, String>, bool) -> bool| {
        let mut in_sync = false;
        let told = async {
            while !wanted(&held, in_sync) {
                match client.next().await.context("the client lives")? {
                    SyncEvent::Status(status) => in_sync = status == SyncStatus::InSync,
                    SyncEvent::Updates(updates) => {
                        for update in updates {
                            match update.value {
                                Some(value) => {
                                    held.insert(update.key.to_string(), String::from_utf8(value.bytes.to_vec())?)
                                }
                                None => held.remove(update.key.as_str()),
                            };
                        }
                    }
                    _ => {}
                }
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, told).await?
    };
    until(|held, in_sync| in_sync && held.keys().eq(["/gardens/home/back"])).await?;
    for (compression, release, version) in
        [(true, Release::V3_26, "v3.20.0"), (false, Release::V3_26, "built-here"), (true, Release::Master, "v3.33.0")]
    {
        let protocol = Protocol::Calico { compression };
        let agent = Client::builder([address.to_string()]).agent("gob").syncer(GARDENS).protocol(protocol);
        let content = content(agent.dialect(release).version(version).start()?).await?;
        ensure!(content.keys().eq(["/gardens/home/back"]), "{version}: {content:?}");
        ensure!(content["/gardens/home/back"] == object("back", 3).body, "{version}: the value is as it was");
    }
    // The garden without a bed stays absent, and a garden that was good keeps its last good form.
    store.put(&garden(), object("back", 0));
    store.put(&garden(), object("front", 1));
    until(|held, _| held.len() == 2 && held["/gardens/home/back"].contains(r#""beds":3"#)).await?;
    store.delete(&garden(), &object("back", 0).id);
    until(|held, _| held.keys().eq(["/gardens/home/front"])).await?;
    let nodes = view.nodes.context("they are counted")?;
    ensure!(*nodes.borrow() == Some(2), "two objects are there, good or not: {:?}", *nodes.borrow());
    ensure!(view.problems.snapshot(10)[0].reason.contains("one bed at least"), "the garden without a bed is named");
    server.stop();
    serving.await??;
    stop.cancel();
    Ok(())
}
