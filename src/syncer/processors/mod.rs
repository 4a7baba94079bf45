//! Update processors: one object of a datastore in, zero or more key-value pairs out. Pure: no I/O, no clock.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use std::ffi::OsString;

use tokio::sync::watch;

use crate::datastore::{Dialect, Object, ObjectId};
use crate::model::release::Release;
use crate::model::schema::{self, Case, Fields};
use crate::model::{KvPair, gojson, resource};

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

use common::{blank, rejected_or_raw, unreadable};

/// What happened to an object.
#[derive(Clone, Copy, Debug)]
pub enum ObjectEvent<'a> {
    /// It was listed, created or changed.
    Put(&'a Object),
    /// It is gone; the object as it was, where the datastore still knows it.
    Delete(&'a ObjectId, Option<&'a Object>),
}

/// An object could not be converted. Its keys, so far as they are known, were emitted without values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConvertError {
    /// What about the object could not be understood: field, value, what is accepted.
    pub reason: String,
}

/// Surroundings that influence conversion; the same for the life of the process.
#[derive(Clone, Debug)]
pub struct Context {
    /// `USE_POD_CIDR`: host-local IPAM. Nodes then produce the IPAM blocks. Ignored for [`crate::datastore::Dialect::Etcd`].
    pub use_pod_cidr: bool,
    /// First item of `FELIX_INTERFACEPREFIX`: what names of workload interfaces begin with.
    pub interface_prefix: String,
    /// The release of the cluster's own Calico, as its ClusterInformation says.
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
                // As with all settings of Calico's client: the name with the prefix counts more, unless it is empty.
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

/// Converts the objects of one kind (or of kinds that produce the same keys) for one syncer.
///
/// The caller compares what comes out with what it sent before: emitting a pair without a value for a key that was never
/// sent is harmless, emitting an unchanged pair again too.
pub trait Processor: Send {
    /// A full list begins: forget what was learnt from objects. Not called when one of several kinds is listed again
    /// while another one's objects are known and stay so.
    fn on_resync(&mut self) {}

    /// All lists are complete: appends what is there besides the objects (the same at every call). Until the next
    /// [`Self::on_resync`], events are changes seen by watching.
    fn on_list_end(&mut self, _out: &mut Vec<KvPair>) {}

    /// The datastore vouched for all changes up to this revision (a bookmark). Few processors care.
    fn on_progress(&mut self, _kind_name: &str, _revision: &str) {}

    /// Appends the pairs that follow from the event to `out`.
    ///
    /// # Errors
    /// When the object cannot be converted; pairs that follow from that (blanked keys) are appended all the same.
    fn process(&mut self, event: ObjectEvent<'_>, out: &mut Vec<KvPair>) -> Result<(), ConvertError>;
}

/// Reads an object's body into a type of the caller's.
pub(crate) fn body<T: DeserializeOwned>(object: &Object) -> Result<T, ConvertError> {
    gojson::parse(&object.body).map_err(unreadable)
}

/// Refuses an object whose metadata Calico's clients could not read, for kinds whose data hold nothing of it.
pub(crate) fn check_metadata(object: &Object, metadata: Option<&RawValue>) -> Result<(), ConvertError> {
    read_metadata(object, metadata).map(drop)
}

/// The same for Calico's own policies, of which Calico's client in etcd reads an annotation as well.
pub(crate) fn check_policy_metadata(object: &Object, metadata: Option<&RawValue>) -> Result<(), ConvertError> {
    let Some(metadata) = read_metadata(object, metadata)?.filter(|_| object.dialect == Dialect::Etcd) else {
        return Ok(());
    };
    resource::check_metadata_annotation(&metadata)
        .map_err(|error| ConvertError { reason: format!("metadata: {error}") })
}

/// The same for policies of Kubernetes, whose UID Calico makes another one of: that takes a UUID.
pub(crate) fn check_metadata_and_uid(object: &Object, metadata: Option<&RawValue>) -> Result<(), ConvertError> {
    let metadata = read_metadata(object, metadata)?;
    let uid = metadata.as_ref().map_or("", |metadata| metadata.text("uid"));
    if uid.is_empty() || resource::reverse_uid(uid).is_some() {
        return Ok(());
    }
    Err(ConvertError::new(format!("metadata.uid: {uid:?} is not a UUID")))
}

fn read_metadata(object: &Object, metadata: Option<&RawValue>) -> Result<Option<Fields>, ConvertError> {
    let Some(metadata) = metadata else { return Ok(None) };
    let declaration = schema::find("v1.ObjectMeta").expect("part of the table");
    let case = if object.dialect == Dialect::Etcd { Case::Folded } else { Case::Exact };
    let refuse = |error: &dyn std::fmt::Display| ConvertError { reason: format!("metadata: {error}") };
    let mut metadata = schema::decode(declaration, metadata.get().as_bytes(), case).map_err(|error| refuse(&error))?;
    if object.dialect == Dialect::CrdV1 {
        resource::convert_crd_metadata(&mut metadata).map_err(|error| refuse(&error))?;
    }
    Ok(Some(metadata))
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
