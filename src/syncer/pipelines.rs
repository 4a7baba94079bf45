//! Which syncer watches what: a table, so that a further kind is a further row.
//!
//! The daemon asks for the table of its datastore once at start and builds one pipeline per [`PipelineSpec`], with one
//! watcher cache per [`Source`]. A kind that several syncers name is still watched once per process.

use std::fmt;

use super::SyncerType;

use super::processors::{Context, Processor};
use crate::datastore::Kind;

/// What one watcher cache is made of: kinds whose objects share keys, and their processor.
pub struct Source {
    /// Calico's name for what comes out, for logs.
    pub name: &'static str,
    /// What is watched. Never empty.
    pub kinds: Vec<Kind>,
    /// Converts the objects of all `kinds`.
    pub processor: Box<dyn Processor>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("name", &self.name).field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// One syncer's pipeline.
#[derive(Debug)]
pub struct PipelineSpec {
    /// Whom it feeds.
    pub syncer: SyncerType,
    /// What it is fed from.
    pub sources: Vec<Source>,
    /// Whether the nodes that pass through it are counted, for sharing agents out between instances.
    pub counts_nodes: bool,
}

/// The family of datastores; decides which kinds stand for Calico's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Calico's etcd layout.
    Etcd,
    /// The Kubernetes API.
    Kubernetes,
    /// A folder of YAML as `calicoctl` and `kubectl` print it: the kinds of both others.
    Folder,
}

/// Calico's four syncers over a datastore of this flavour, in [`SyncerType::ALL`]'s order.
#[must_use]
pub fn calico(flavour: Flavour, ctx: &Context) -> Vec<PipelineSpec> {
    SyncerType::ALL
        .into_iter()
        .map(|syncer| PipelineSpec {
            syncer,
            sources: rows(syncer, ctx).into_iter().filter_map(|row| row.source(flavour, ctx)).collect(),
            counts_nodes: syncer == SyncerType::Felix,
        })
        .collect()
}

/// A source in all flavours.
struct Row {
    name: &'static str,
    etcd: Vec<Kind>,
    kubernetes: Vec<Kind>,
    /// Nothing is watched in pod-CIDR mode, which etcd does not know.
    not_with_pod_cidr: bool,
    processor: Box<dyn Processor>,
}

impl Row {
    fn source(self, flavour: Flavour, ctx: &Context) -> Option<Source> {
        if self.not_with_pod_cidr && ctx.use_pod_cidr && flavour != Flavour::Etcd {
            return None;
        }
        let kinds = match flavour {
            Flavour::Etcd => self.etcd,
            Flavour::Kubernetes => self.kubernetes,
            Flavour::Folder => {
                let mut kinds = self.etcd;
                let further: Vec<Kind> = self.kubernetes.into_iter().filter(|kind| !kinds.contains(kind)).collect();
                kinds.extend(further);
                kinds
            }
        };
        (!kinds.is_empty()).then(|| Source { name: self.name, kinds, processor: self.processor })
    }
}

/// A source whose kind is the same in all flavours.
fn calico_kind(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![kind.clone()], kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

/// A source that is one thing in etcd and others in Kubernetes.
fn either<const N: usize>(name: &'static str, etcd: Kind, kubernetes: [Kind; N], processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: vec![etcd], kubernetes: kubernetes.into(), not_with_pod_cidr: false, processor }
}

/// A source that only Kubernetes has.
fn kubernetes_only(name: &'static str, kind: Kind, processor: Box<dyn Processor>) -> Row {
    Row { name, etcd: Vec::new(), kubernetes: vec![kind], not_with_pod_cidr: false, processor }
}

fn rows(syncer: SyncerType, ctx: &Context) -> Vec<Row> {
    match syncer {
        SyncerType::Felix => felix(ctx),
        SyncerType::Bgp => bgp(ctx),
        SyncerType::TunnelIpAllocation => tunnel_ip_allocation(ctx),
        SyncerType::NodeStatus => node_status(ctx),
    }
}

fn felix(_ctx: &Context) -> Vec<Row> {
    Vec::new()
}

fn bgp(_ctx: &Context) -> Vec<Row> {
    Vec::new()
}

fn tunnel_ip_allocation(_ctx: &Context) -> Vec<Row> {
    Vec::new()
}

fn node_status(_ctx: &Context) -> Vec<Row> {
    Vec::new()
}
