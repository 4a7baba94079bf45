//! Where the server under test reads from, and where changes are written to: etcd, or a Kubernetes API server.

use std::path::PathBuf;

use anyhow::Context as _;
use etcd_client::Client;
use futures_util::future::BoxFuture;

use crate::data;
use crate::kubernetes::{self, Cluster};
use crate::real_etcd::Etcd;
use crate::relay::Relay;

/// A filled datastore.
pub(crate) enum Store {
    /// Calico's keys in etcd. Ours if there is a process.
    Etcd { url: String, client: Box<Client>, size: data::Size, _process: Option<Etcd> },
    /// Pods and the rest in an API server of ours.
    Kubernetes(Box<Cluster>),
}

impl Store {
    /// Fills the etcd at `url`, or one of our own.
    pub(crate) async fn etcd(url: Option<&str>, endpoints: usize) -> anyhow::Result<Self> {
        let (url, process) = if let Some(url) = url {
            (url.to_owned(), None)
        } else {
            let etcd = Etcd::start().await;
            (etcd.url(), Some(etcd))
        };
        let mut client =
            Client::connect([url.clone()], None).await.with_context(|| format!("connect to etcd at {url}"))?;
        let size = data::Size::of(endpoints);
        data::fill(&mut client, size).await?;
        Ok(Self::Etcd { url, client: Box::new(client), size, _process: process })
    }

    /// Starts and fills an API server.
    pub(crate) async fn kubernetes(pods: usize) -> anyhow::Result<Self> {
        Ok(Self::Kubernetes(Box::new(Cluster::start(kubernetes::Size::of(pods)).await?)))
    }

    /// The name of the datastore.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Etcd { .. } => "etcd",
            Self::Kubernetes(_) => "kubernetes",
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
        };
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Writes change number `number`, which agents see as a label of an endpoint.
    pub(crate) fn change(&self, number: usize) -> BoxFuture<'static, anyhow::Result<()>> {
        match self {
            Self::Etcd { client, size, .. } => {
                let (mut client, size) = (client.clone(), *size);
                let endpoint = number.wrapping_mul(7919) % size.endpoints;
                let (key, value) =
                    (data::endpoint_key(endpoint, size), data::endpoint_value(endpoint, number as u64, size));
                Box::pin(async move { client.put(key, value, None).await.map(drop).context("write a change to etcd") })
            }
            Self::Kubernetes(cluster) => Box::pin(cluster.change(number)),
        }
    }
}
