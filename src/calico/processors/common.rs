//! Helpers of several processors.

use std::sync::Arc;

use bytes::Bytes;
use ipnet::IpNet;

use crate::calico::net;
use crate::calico::resource::{Resource, ResourceError};
use crate::model::strict::ReadError;
use crate::model::{Key, KvPair, Revision, Value, no_revision};
use crate::syncer::processor::ConvertError;
use crate::validate::{Findings, Validate};

impl ConvertError {
    /// An error with this reason: field, value, accepted values.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl From<ReadError> for ConvertError {
    fn from(error: ReadError) -> Self {
        Self::new(format!("not readable as an object of its kind: {error}"))
    }
}

impl From<ResourceError> for ConvertError {
    fn from(error: ResourceError) -> Self {
        Self::new(error.to_string())
    }
}

/// The network in a field, masked.
pub(super) fn network(field: &str, text: &str) -> Result<IpNet, ConvertError> {
    let net = net::parse_cidr(text).map(|net| net.trunc());
    net.ok_or_else(|| ConvertError::new(format!("{field}: {text:?} is not a network (address/length)")))
}

/// A key without a value.
pub(super) fn blank(key: Key) -> KvPair {
    KvPair { key, value: None, revision: no_revision(), v3_resource_version: no_revision(), origin: None }
}

/// A key with a v1 value of an object at this revision, or without a value.
pub(super) fn pair(key: Key, value: Option<Value>, revision: &Revision) -> KvPair {
    match value {
        None => blank(key),
        value => KvPair { key, value, revision: revision.clone(), v3_resource_version: no_revision(), origin: None },
    }
}

/// A key with a whole object at this revision.
pub(super) fn whole(key: Key, object: Resource, revision: &Revision) -> KvPair {
    let (value, v3_resource_version) = object.into_value();
    KvPair { key, value: Some(value), revision: revision.clone(), v3_resource_version, origin: None }
}

/// A value checked here, while its typed form exists, so that the validation stage need not keep that form. A refusal
/// is still reported by that stage.
pub(super) fn rejected_or_raw(bytes: Bytes, findings: Findings) -> Value {
    if findings.are_harmless() { Value::raw(bytes) } else { Value::checked(bytes, Arc::new(Rejected(findings))) }
}

/// The findings of a failed check, for the validation stage.
#[derive(Debug)]
struct Rejected(Findings);

impl Validate for Rejected {
    fn validate(&self) -> Findings {
        self.0.clone()
    }
}
