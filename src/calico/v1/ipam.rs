//! Address management: blocks and their owners.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::{Text, TextMap};
use crate::calico::numorstring::scalar;
use crate::model::timestamp::Timestamp;

/// A block of addresses, and the use of each. Custom resources have the same fields in their spec.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct AllocationBlock<'a> {
    /// The block's range, masked.
    pub cidr: Text<'a>,
    /// Owner, as `host:{node}`.
    pub affinity: Option<Text<'a>>,
    /// Time of the owner's claim.
    #[serde(alias = "affinityClaimTime", skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<Time>,
    /// Per address: index into `attributes`, or free.
    pub allocations: Option<Vec<Option<i64>>>,
    /// Free addresses, in the order in which they will be used.
    pub unallocated: Option<Vec<i64>>,
    /// Uses of addresses.
    pub attributes: Option<Vec<AllocationAttribute<'a>>>,
    /// Number of changes.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: u64,
    /// Sequence numbers at which addresses were assigned; keys are indexes as text, sorted as text.
    #[serde(rename = "sequenceNumberForAllocation")]
    pub sequence_number_for_allocation: Option<BTreeMap<Text<'a>, u64>>,
    /// Whether it is about to be deleted.
    pub deleted: bool,
    /// An old form of `affinity`.
    #[serde(rename = "hostAffinity", skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<Text<'a>>,
}

/// The use of an address.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct AllocationAttribute<'a> {
    /// The handle that holds the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<Text<'a>>,
    /// Details of the owner.
    #[serde(skip_serializing_if = "TextMap::is_empty")]
    pub secondary: TextMap<'a>,
    /// Details of another owner, while an address moves.
    #[serde(rename = "alternateOwnerAttrs", skip_serializing_if = "TextMap::is_empty")]
    pub alternate_owner_attrs: TextMap<'a>,
    /// Time of the address's release.
    #[serde(rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
}

/// The ownership of a block by a node.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct BlockAffinity<'a> {
    /// `confirmed`, `pending` or `pendingDeletion`.
    pub state: Text<'a>,
    /// Whether it is about to be deleted.
    pub deleted: bool,
}

/// A moment as Kubernetes writes it. The zero time prints `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalar(deserializer, "a time as in 2006-01-02T15:04:05Z", |_| None, Timestamp::parse).map(Self)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == Timestamp::ZERO { serializer.serialize_none() } else { serializer.collect_str(&self.0) }
    }
}
