//! Where the server under test reads from, and where changes are written to: etcd, or a Kubernetes API server. Or nowhere,
//! for a server whose datastore is not ours to write to.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use etcd_client::Client;
use futures_util::future::BoxFuture;

use crate::args::Args;
use crate::data;
use crate::kubernetes::Cluster;
use crate::real_etcd::Etcd;
use crate::relay::Relay;

/// Endpoints are changed in steps of this prime, so that neighbours in time are not neighbours in the datastore.
const STRIDE: usize = 7919;

/// A filled datastore.
pub(crate) enum Store {
    /// Calico's keys in etcd. Ours if there is a process.
    Etcd { url: String, client: Box<Client>, size: data::Size, _process: Option<Box<Etcd>> },
    /// Pods and the rest in an API server of ours.
    Kubernetes(Box<Cluster>),
    /// Whatever the server reads; nothing is written to it.
    Elsewhere,
}

impl Store {
    /// The one that the arguments ask for, filled.
    pub(crate) async fn start(args: &Args) -> anyhow::Result<Self> {
        if args.kubernetes {
            return Ok(Self::Kubernetes(Box::new(Cluster::start(args).await?)));
        }
        if args.server.is_some() && args.etcd.is_none() {
            return Ok(Self::Elsewhere);
        }
        Self::etcd(args.etcd.as_deref(), args.size()).await
    }

    /// Fills the etcd at `url`, or one of our own.
    async fn etcd(url: Option<&str>, size: data::Size) -> anyhow::Result<Self> {
        let (url, process) = if let Some(url) = url {
            (url.to_owned(), None)
        } else {
            let etcd = Etcd::start().await;
            (etcd.url(), Some(Box::new(etcd)))
        };
        let mut client =
            Client::connect([url.clone()], None).await.with_context(|| format!("connect to etcd at {url}"))?;
        data::fill(&mut client, size).await?;
        Ok(Self::Etcd { url, client: Box::new(client), size, _process: process })
    }

    /// The name of the datastore.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Etcd { .. } => "etcd",
            Self::Kubernetes(_) => "kubernetes",
            Self::Elsewhere => "elsewhere",
        }
    }

    /// The variables that make a server read from it, by way of `relay` if there is one.
    pub(crate) fn environment(&self, relay: Option<&Relay>) -> Vec<(String, String)> {
        let variables = match self {
            Self::Etcd { url, .. } => {
                vec![("TYPHA_DATASTORETYPE", "etcdv3".to_owned()), ("TYPHA_ETCDENDPOINTS", url.clone())]
            }
            Self::Kubernetes(cluster) => {
                let file: PathBuf = cluster.kubeconfig(relay);
                vec![
                    ("TYPHA_DATASTORETYPE", "kubernetes".to_owned()),
                    ("KUBECONFIG", file.display().to_string()),
                    ("CALICO_API_GROUP", "crd.projectcalico.org/v1".to_owned()),
                ]
            }
            Self::Elsewhere => Vec::new(),
        };
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Writes change number `number`, which agents see as a label of an endpoint.
    pub(crate) fn change(&self, number: usize) -> anyhow::Result<BoxFuture<'static, anyhow::Result<()>>> {
        match self {
            Self::Etcd { client, size, .. } => {
                let (mut client, size) = (client.clone(), *size);
                let endpoint = self.changed(number);
                let (key, value) =
                    (data::endpoint_key(endpoint, size), data::endpoint_value(endpoint, number as u64, size));
                let put = async move { client.put(key, value, None).await.map(drop).context("write a change to etcd") };
                Ok(Box::pin(put))
            }
            Self::Kubernetes(cluster) => Ok(cluster.change(self.changed(number), number)),
            Self::Elsewhere => bail!("changes need the server's datastore: give --etcd"),
        }
    }

    /// Which endpoint change number `number` is about: a different one each time, until all had their turn.
    pub(crate) fn changed(&self, number: usize) -> usize {
        number.wrapping_mul(STRIDE) % self.endpoints().max(1)
    }

    /// How many endpoints it holds.
    pub(crate) fn endpoints(&self) -> usize {
        match self {
            Self::Etcd { size, .. } => size.endpoints,
            Self::Kubernetes(cluster) => cluster.pods(),
            Self::Elsewhere => 0,
        }
    }
}
