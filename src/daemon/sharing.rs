//! Wires rebalancing: which watch the servers of our service are seen through, and whom the result steers.
//!
//! With the Kubernetes datastore it is the process's watch of `EndpointSlice` that the felix syncer has anyway. With another
//! one it is a watch of its own, of our service's slices only.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::config::{Config, DatastoreType, Rebalancing};
use crate::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use crate::model::kinds::ENDPOINT_SLICE;
use crate::rebalance::{Limits, Rebalancer, Settings};
use crate::replicas::Service;
use crate::syncclient::discovery::scope;
use crate::syncer::kind_watch::{KindEvent, KindHub, KindStatus, Subscriber};
use crate::syncserver::Handle;
use crate::tasks::TaskRegistry;

/// Events that may wait between the watch and the rebalancer, which takes each in at once.
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
    /// Subscribes to the service's servers at `hub`, or at a hub of our own; `None` where rebalancing is off, or where the
    /// API server is not configured: then every server keeps whoever comes, as Typha does.
    pub(super) fn subscribe(config: &Config, hub: &mut KindHub) -> Option<Self> {
        let rebalancing = config.connections.rebalancing.as_ref()?;
        let service = service(rebalancing);
        let (events_in, events) = mpsc::channel(EVENTS);
        let subscriber = Subscriber::new(0, events_in);
        let mut own_hub = match config.datastore.datastore_type {
            DatastoreType::Kubernetes => None,
            DatastoreType::Etcdv3 | DatastoreType::File => {
                let kubernetes = &config.datastore.kubernetes;
                let scoped = KubernetesConfig { scope: Some(scope(&service)), ..kubernetes.clone() };
                match KubernetesStore::connect(scoped) {
                    Ok(store) => Some(KindHub::new(Arc::new(store), rand::random())),
                    Err(error) => {
                        error!(%error, "ConnectionRebalancingMode = kubernetes needs the API server; connections are not shared out");
                        return None;
                    }
                }
            }
        };
        let hub = own_hub.as_mut().unwrap_or(hub);
        hub.subscribe(ENDPOINT_SLICE, subscriber);
        let watches = hub.statuses();
        let limits = Limits { lower: config.connections.lower_limit, upper: config.connections.upper_limit };
        let settings = Settings { service, limits, syncers: 0, interval: rebalancing.poll_interval, own: Vec::new() };
        Some(Self { settings, events, watches, own_hub })
    }

    /// Starts it as supervised tasks. `nodes` counts the nodes that follow up to `syncers` syncers each; `own` are our
    /// addresses as the service lists them, where they are known.
    pub(super) fn start(
        self,
        tasks: &TaskRegistry,
        stop: &CancellationToken,
        nodes: watch::Receiver<Option<usize>>,
        syncers: usize,
        server: Handle,
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

fn service(rebalancing: &Rebalancing) -> Service {
    Service {
        namespace: rebalancing.namespace.clone(),
        name: rebalancing.service.clone(),
        port_name: rebalancing.port_name.clone(),
    }
}
