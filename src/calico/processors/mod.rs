//! Update processors: one object of a datastore in, zero or more key-value pairs out. Pure: no I/O, no clock.

use std::ffi::OsString;

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::calico::release::Release;
use crate::calico::resource;
use crate::calico::schema::Fields;
use crate::calico::v1::meta::Body;
use crate::datastore::Object;
use crate::model::gojson;
use crate::syncer::processor::ConvertError;

pub mod block_affinity;
mod common;
pub mod conflict;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod felix_config;
pub mod host_endpoint;
pub mod ip_pool;
pub mod ipam_block;
pub mod keyed;
pub mod live_migration;
pub mod network_set;
pub mod node;
pub mod passthrough;
pub mod policy;
pub mod profile;
pub mod rules;
pub mod simple;
pub mod tier;
pub mod workload_endpoint;

use common::{blank, network, pair, rejected_or_raw, whole};

/// Settings of the conversion; constant for the life of the process, except for the cluster's release.
#[derive(Clone, Debug)]
pub struct Context {
    /// `USE_POD_CIDR`: host-local IPAM, where nodes produce the IPAM blocks. Ignored for
    /// [`crate::datastore::Dialect::Etcd`].
    pub use_pod_cidr: bool,
    /// First item of `FELIX_INTERFACEPREFIX`: the prefix of workload interfaces' names.
    pub interface_prefix: String,
    /// The release of the cluster's own Calico, from its ClusterInformation.
    pub cluster: watch::Sender<Option<Release>>,
}

impl Default for Context {
    fn default() -> Self {
        Self { use_pod_cidr: false, interface_prefix: "cali".to_owned(), cluster: watch::Sender::new(None) }
    }
}

impl Context {
    /// Reads `USE_POD_CIDR` (as Calico does: any usual word for yes) and `FELIX_INTERFACEPREFIX` (its first item).
    #[must_use]
    pub fn from_environment(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut context = Self::default();
        let mut prefixed = false;
        for (name, value) in environment {
            let value = value.to_string_lossy();
            let is_yes = || ["true", "t", "1"].contains(&value.to_ascii_lowercase().as_str());
            match name.to_str() {
                // As for all settings of Calico's client, the name with the prefix wins unless its value is empty.
                Some("CALICO_USE_POD_CIDR") if !value.is_empty() => (context.use_pod_cidr, prefixed) = (is_yes(), true),
                Some("USE_POD_CIDR") if !prefixed => context.use_pod_cidr = is_yes(),
                Some("FELIX_INTERFACEPREFIX") => {
                    if let Some(first) = value.split(',').map(str::trim).find(|item| !item.is_empty()) {
                        first.clone_into(&mut context.interface_prefix);
                    }
                }
                _ => {}
            }
        }
        context
    }
}

/// Reads an object: its metadata, if any, and a spec that borrows nothing.
pub(crate) fn body<S>(object: &Object) -> Result<(Option<Fields>, S), ConvertError>
where
    S: Default + DeserializeOwned,
{
    gojson::parse_with(&object.body, |json| {
        let body: Body<'_, S> = gojson::from_str(json)?;
        let metadata = body.metadata.map(|json| resource::metadata(json.get(), object.dialect)).transpose()?;
        Ok((metadata, body.spec))
    })
}

/// Refuses a policy of Kubernetes with a UID that is no UUID: Calico derives another UUID from it.
pub(crate) fn check_uid(metadata: Option<&Fields>) -> Result<(), ConvertError> {
    let uid = metadata.map_or("", |metadata| metadata.text("uid"));
    if uid.is_empty() || resource::reverse_uid(uid).is_some() {
        return Ok(());
    }
    Err(ConvertError::new(format!("metadata.uid: {uid:?} is not a UUID")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_with_the_prefix_counts_more_in_any_order() {
        let uses = |variables: &[(&str, &str)]| {
            let read = |order: Vec<&(&str, &str)>| {
                Context::from_environment(order.into_iter().map(|(name, value)| (name.into(), value.into())))
                    .use_pod_cidr
            };
            let (one, other) = (read(variables.iter().collect()), read(variables.iter().rev().collect()));
            assert_eq!(one, other, "{variables:?}");
            one
        };
        assert!(!uses(&[]));
        assert!(uses(&[("USE_POD_CIDR", "True")]));
        assert!(uses(&[("CALICO_USE_POD_CIDR", "1"), ("USE_POD_CIDR", "false")]));
        assert!(!uses(&[("CALICO_USE_POD_CIDR", "no"), ("USE_POD_CIDR", "true")]));
        assert!(uses(&[("CALICO_USE_POD_CIDR", ""), ("USE_POD_CIDR", "true")]));
    }
}

#[cfg(test)]
pub(crate) mod vectors_tests;
