//! Connects rebalancing with a watch of our service's servers and with the server that it steers.
//!
//! If the API server is a datastore, rebalancing shares the watch of `EndpointSlice` that the felix syncer has anyway. If not,
//! it has a watch of its own, of our service's slices only.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::stores::Store;
use crate::calico::kinds::ENDPOINT_SLICE;
use crate::config::{Config, DatastoreConfig, DatastoreType};
use crate::datastore::Selection;
use crate::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use crate::outlet::Outlet;
use crate::rebalance::{Limits, Rebalancer, Settings};
use crate::replicas::Service;
use crate::syncclient::discovery::slices;
use crate::syncer::kind_watch::{KindEvent, KindHub, KindStatus, Subscriber};
use crate::tasks::TaskRegistry;

/// Events that may wait between the watch and the rebalancer, which takes each event at once.
const EVENTS: usize = 16;

/// Rebalancing that is subscribed and not started yet.
#[derive(Debug)]
pub(super) struct Sharing {
    settings: Settings,
    events: mpsc::Receiver<(usize, KindEvent)>,
    watches: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
    own_hub: Option<KindHub>,
}

impl Sharing {
    /// Subscribes to the service's servers at the datastore that is the API server, or at a hub of our own. `None` if
    /// rebalancing is off or the API server is not configured: then every server keeps all agents that connect, as in Typha.
    pub(super) fn subscribe(config: &Config, stores: &mut [Store]) -> Option<Self> {
        let rebalancing = config.connections.rebalancing.as_ref()?;
        let service = rebalancing.service.clone();
        let (events_in, events) = mpsc::channel(EVENTS);
        let subscriber = Subscriber::new(0, events_in);
        let mut own_hub = None;
        let api = stores.iter_mut().find(|store| is_api(&store.config, &rebalancing.kubernetes));
        let (hub, slices) = if let Some(store) = api {
            // The syncers watch all slices anyway.
            (&mut store.hub, Selection::from(ENDPOINT_SLICE))
        } else {
            match own_watch(&rebalancing.kubernetes, &service) {
                Ok((hub, slices)) => (own_hub.insert(hub), slices),
                Err(error) => {
                    error!(%error, "ConnectionRebalancingMode = kubernetes needs the API server; connections are not shared out");
                    return None;
                }
            }
        };
        hub.subscribe(slices, subscriber);
        let watches = hub.statuses();
        let limits = Limits { lower: config.connections.lower_limit, upper: config.server.max_connections };
        let settings = Settings { service, limits, syncers: 0, interval: rebalancing.poll_interval, own: Vec::new() };
        Some(Self { settings, events, watches, own_hub })
    }

    /// Starts it as supervised tasks. `nodes` is the number of nodes, which follow up to `syncers` syncers each; `own` are our
    /// addresses as the service lists them, if they are known.
    pub(super) fn start(
        self,
        tasks: &TaskRegistry,
        stop: &CancellationToken,
        nodes: watch::Receiver<Option<usize>>,
        syncers: usize,
        server: Arc<dyn Outlet>,
        own: Vec<SocketAddr>,
    ) {
        let settings = Settings { syncers, own, ..self.settings };
        if let Some(hub) = self.own_hub {
            tasks.spawn("rebalancing-watch", hub.run(stop.clone()));
        }
        let rebalancer = Rebalancer::new(settings, self.events, self.watches, nodes, server);
        tasks.spawn("rebalancing", rebalancer.run(stop.clone()));
    }
}

/// Whether the datastore is this API server.
fn is_api(datastore: &DatastoreConfig, kubernetes: &KubernetesConfig) -> bool {
    datastore.datastore_type == DatastoreType::Kubernetes && datastore.kubernetes == *kubernetes
}

/// A hub over the API server, and the slices of the service to watch there.
fn own_watch(kubernetes: &KubernetesConfig, service: &Service) -> anyhow::Result<(KindHub, Selection)> {
    let selection = slices(service)?;
    let store = KubernetesStore::connect(kubernetes.clone())?;
    Ok((KindHub::new(Arc::new(store), rand::random()), selection))
}
