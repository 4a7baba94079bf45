//! The content of a datastore: kinds, and their objects in the datastore's form.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Revision;

/// Largest object, in bytes of JSON: etcd's limit for a request, which Kubernetes' objects have to meet as well.
pub const MAX_OBJECT_BYTES: usize = 3 << 19;

/// A kind of object that can be listed and watched.
///
/// Calico's kinds always have the group `projectcalico.org`, even if a datastore keeps them under another group
/// (`crd.projectcalico.org/v1`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for Kubernetes' core group.
    pub group: Cow<'static, str>,
    /// API version within the group.
    pub version: Cow<'static, str>,
    /// The kind's name, for example `IPPool`.
    pub name: Cow<'static, str>,
    /// Lower-case plural, as in URLs and etcd paths.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Prefix of its keys in etcd, ending in `/`. `None`: etcd does not hold this kind.
    pub etcd_prefix: Option<Cow<'static, str>>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}/{}", self.version, self.name)
        } else {
            write!(f, "{}/{}/{}", self.group, self.version, self.name)
        }
    }
}

/// The name of an object within its kind.
///
/// In etcd, kinds with keys other than `[namespace/]name` (IPAM blocks and affinities) have the whole rest of the path
/// as name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name within the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// The form of an object in its datastore; decides its conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Calico's etcd layout: v3 JSON under `/calico/resources/v3/…`, IPAM data in its own JSON.
    Etcd,
    /// A Calico resource as a `crd.projectcalico.org/v1` custom resource.
    CrdV1,
    /// A Calico resource as `projectcalico.org/v3` (custom resource, or as `calicoctl` prints it).
    V3,
    /// A native or third-party Kubernetes object.
    Kubernetes,
}

/// One object as its datastore holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// Its version.
    pub revision: Revision,
    /// The form of `body`.
    pub dialect: Dialect,
    /// The object as JSON.
    pub body: Bytes,
    /// Where people find it, if its name does not tell: file and line.
    pub place: Option<Arc<str>>,
}
