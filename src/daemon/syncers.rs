//! The pipelines of the configuration: Calico's, and those of any kinds.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use prometheus::Registry;

use super::schemas::Schemas;
use super::stores::Store;
use crate::calico::pipelines;
use crate::calico::processors::Context;
use crate::config::{Config, GLOBAL, SyncerConfig};
use crate::datastore::catalog::Catalog;
use crate::datastore::labels::Labels;
use crate::generic::pipeline::{self as generic, From, Request};
use crate::metrics::SyncerMetrics;
use crate::pipeline::SyncerPipeline;
use crate::syncer::kind_watch::KindHub;
use crate::syncer::spec::{PipelineSpec, Publishing};

/// The pipelines, not started yet.
#[derive(Debug)]
pub(super) struct Pipelines {
    /// Calico's, in Typha's order; none if they are switched off.
    pub(super) calico: Vec<SyncerPipeline>,
    /// The others, in the file's order, each with whether readiness waits for it.
    pub(super) others: Vec<(SyncerPipeline, bool)>,
}

impl Pipelines {
    /// Builds all pipelines over these datastores, which must not have been started. `known`: the schemas, and the scopes by them.
    ///
    /// # Errors
    /// A configuration that cannot work.
    pub(super) fn build(
        config: &Config,
        stores: &mut [Store],
        known: (&Schemas, &Arc<Catalog>),
        context: &Context,
        registry: &Registry,
    ) -> anyhow::Result<Self> {
        let build = |spec: PipelineSpec, hub: Option<&mut KindHub>| {
            let metrics = SyncerMetrics::new(registry, spec.syncer.as_str());
            SyncerPipeline::new(spec, config.cache.max_batch_size, &metrics, hub)
        };
        let mut calico = Vec::new();
        if config.calico_syncers {
            let store = Store::named(stores, GLOBAL).context("no datastore for Calico's syncers")?;
            let specs = pipelines::calico(store.source.flavour, context);
            calico.extend(specs.into_iter().map(|spec| build(spec, Some(&mut store.hub))));
        }
        let mut others = Vec::new();
        for syncer in &config.syncers {
            let spec = spec(syncer, stores, known).with_context(|| format!("set up syncer {}", syncer.name))?;
            others.push((build(spec, None), syncer.ready));
        }
        Ok(Self { calico, others })
    }

    /// All of them, Calico's first.
    pub(super) fn all(&self) -> impl Iterator<Item = &SyncerPipeline> {
        self.calico.iter().chain(self.others.iter().map(|(pipeline, _)| pipeline))
    }
}

fn spec(
    config: &SyncerConfig,
    stores: &mut [Store],
    (schemas, catalog): (&Schemas, &Arc<Catalog>),
) -> anyhow::Result<PipelineSpec> {
    let (check, again) = schemas.check(config.name);
    let request = Request {
        syncer: config.name,
        kinds: config.kinds.clone(),
        namespaces: config.namespaces.iter().cloned().collect(),
        labels: Labels::parse(&config.selector)?,
        folder: PathBuf::from(&config.folder),
        on_invalid: config.on_invalid,
        with_status: config.status,
        check,
        again,
        catalog: Arc::clone(catalog),
        publishing: Publishing { quiet: config.quiet, max_delay: config.max_delay },
    };
    let from = config.sources.iter().map(|name| {
        let store = Store::named(stores, name).with_context(|| format!("no datastore {name}"))?;
        Ok(From {
            name: Arc::from(name.as_str()),
            datastore: store.source.datastore.clone(),
            joiner: store.hub.joiner(),
            spared_after: (!store.config.required).then_some(store.config.sync_timeout),
            texts: store.source.texts.clone(),
        })
    });
    Ok(generic::spec(&request, from.collect::<anyhow::Result<_>>()?))
}
