//! The datastore of the server under test, to which changes are written: etcd, or a Kubernetes API server. Or none,
//! for a server whose datastore we may not write to.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use etcd_client::Client;
use futures_util::future::BoxFuture;

use crate::args::Args;
use crate::data;
use crate::kubernetes::Cluster;
use crate::real_etcd::Etcd;
use crate::relay::Relay;

/// Endpoints are changed in steps of this prime, so that successive changes are not neighbours in the datastore.
const STRIDE: usize = 7919;

/// A filled datastore.
pub(crate) struct Store {
    kind: Kind,
    /// The number of the next change. The fill has 0.
    next: AtomicUsize,
}

/// The datastore.
enum Kind {
    /// Calico's keys in etcd, which we have started if there is a process.
    Etcd { url: String, client: Box<Client>, size: data::Size, _process: Option<Box<Etcd>> },
    /// Pods and the rest in an API server of ours.
    Kubernetes(Box<Cluster>),
    /// An unknown datastore; nothing is written to it.
    Elsewhere,
}

impl Store {
    /// Opens and fills the datastore of the arguments.
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        let kind = if args.kubernetes {
            Kind::Kubernetes(Box::new(Cluster::start(args).await?))
        } else if args.server.is_some() && args.etcd.is_none() {
            Kind::Elsewhere
        } else {
            etcd(args.etcd.as_deref(), args.size()).await?
        };
        Ok(Self { kind, next: AtomicUsize::new(1) })
    }

    /// The name of the datastore.
    pub(crate) fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Etcd { .. } => "etcd",
            Kind::Kubernetes(_) => "kubernetes",
            Kind::Elsewhere => "elsewhere",
        }
    }

    /// The variables that make a server read from it, by way of `relay` if there is one.
    pub(crate) fn environment(&self, relay: Option<&Relay>) -> Vec<(String, String)> {
        let variables = match &self.kind {
            Kind::Etcd { url, .. } => {
                vec![("TYPHA_DATASTORETYPE", "etcdv3".to_owned()), ("TYPHA_ETCDENDPOINTS", url.clone())]
            }
            Kind::Kubernetes(cluster) => {
                let file: PathBuf = cluster.kubeconfig(relay);
                vec![
                    ("TYPHA_DATASTORETYPE", "kubernetes".to_owned()),
                    ("KUBECONFIG", file.display().to_string()),
                    ("CALICO_API_GROUP", "crd.projectcalico.org/v1".to_owned()),
                ]
            }
            Kind::Elsewhere => Vec::new(),
        };
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Reserves numbers for `changes` changes, and returns the first.
    pub(crate) fn take_numbers(&self, changes: usize) -> usize {
        self.next.fetch_add(changes, Ordering::Relaxed)
    }

    /// The cluster, where the datastore is Kubernetes.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match &self.kind {
            Kind::Kubernetes(cluster) => Some(cluster),
            Kind::Etcd { .. } | Kind::Elsewhere => None,
        }
    }

    /// Writes change number `number`, which agents see as a label of an endpoint.
    pub(crate) fn change(&self, number: usize) -> anyhow::Result<BoxFuture<'static, anyhow::Result<()>>> {
        match &self.kind {
            Kind::Etcd { client, size, .. } => {
                let (mut client, size) = (client.clone(), *size);
                let endpoint = self.changed(number);
                let (key, value) =
                    (data::endpoint_key(endpoint, size), data::endpoint_value(endpoint, number as u64, size));
                let put = async move { client.put(key, value, None).await.map(drop).context("write a change to etcd") };
                Ok(Box::pin(put))
            }
            Kind::Kubernetes(cluster) => Ok(cluster.change(self.changed(number), number)),
            Kind::Elsewhere => bail!("changes need the server's datastore: give --etcd"),
        }
    }

    /// Whether changes can be written.
    pub(crate) fn is_ours(&self) -> bool {
        !matches!(self.kind, Kind::Elsewhere)
    }

    /// The endpoint that change number `number` changes: a different one each time, until all had their turn.
    pub(crate) fn changed(&self, number: usize) -> usize {
        number.wrapping_mul(STRIDE) % self.endpoints().max(1)
    }

    /// Number of endpoints.
    pub(crate) fn endpoints(&self) -> usize {
        match &self.kind {
            Kind::Etcd { size, .. } => size.endpoints,
            Kind::Kubernetes(cluster) => cluster.pods(),
            Kind::Elsewhere => 0,
        }
    }
}

/// Fills the etcd at `url`, or an etcd that it starts.
async fn etcd(url: Option<&str>, size: data::Size) -> anyhow::Result<Kind> {
    let (url, process) = if let Some(url) = url {
        (url.to_owned(), None)
    } else {
        let etcd = Etcd::start().await.context("BULRUSH_WITHOUT leaves etcd out")?;
        (etcd.url(), Some(Box::new(etcd)))
    };
    let mut client = Client::connect([url.clone()], None).await.with_context(|| format!("connect to etcd at {url}"))?;
    data::fill(&mut client, size).await?;
    Ok(Kind::Etcd { url, client: Box::new(client), size, _process: process })
}
