//! Address management: blocks and who they belong to.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use super::Net;
use super::text::{Text, TextMap};
use crate::model::timestamp::Timestamp;

/// A block of addresses and what each is used for.
#[derive(Clone, Debug, Serialize)]
pub struct AllocationBlock<'a> {
    /// The block's range.
    pub cidr: Net,
    /// Owner, as `host:{node}`.
    pub affinity: Option<Text<'a>>,
    /// When the owner claimed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<Time>,
    /// Per address: index into `attributes`, or free.
    pub allocations: Option<Vec<Option<i64>>>,
    /// Free addresses, in the order in which they will be used.
    pub unallocated: Option<Vec<i64>>,
    /// What addresses are used for.
    pub attributes: Option<Vec<AllocationAttribute<'a>>>,
    /// Counts changes.
    #[serde(rename = "sequenceNumber")]
    pub sequence_number: u64,
    /// Sequence numbers at which addresses were assigned; keys are indexes as text, sorted as text.
    #[serde(rename = "sequenceNumberForAllocation")]
    pub sequence_number_for_allocation: Option<BTreeMap<Text<'a>, u64>>,
    /// Whether it is about to vanish.
    pub deleted: bool,
    /// An old form of `affinity`.
    #[serde(rename = "hostAffinity", skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<Text<'a>>,
}

/// What an address is used for.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AllocationAttribute<'a> {
    /// Which handle holds the address.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<Text<'a>>,
    /// Details of the owner.
    #[serde(borrow, default, skip_serializing_if = "TextMap::is_empty")]
    pub secondary: TextMap<'a>,
    /// Details of another owner, while an address moves.
    #[serde(borrow, default, rename = "alternateOwnerAttrs", skip_serializing_if = "TextMap::is_empty")]
    pub alternate_owner_attrs: TextMap<'a>,
    /// When the address was given back.
    #[serde(default, rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    pub released_at: Option<Time>,
}

/// Which node a block belongs to.
#[derive(Clone, Debug, Serialize)]
pub struct BlockAffinity<'a> {
    /// How sure that is: `confirmed`, `pending`, `pendingDeletion`.
    pub state: Text<'a>,
    /// Whether it is about to vanish.
    pub deleted: bool,
}

/// A moment as Kubernetes writes it. The zero time prints `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        Timestamp::parse(&text)
            .map(Self)
            .ok_or_else(|| D::Error::custom(format_args!("{:?} is not a time as in 2006-01-02T15:04:05Z", &*text)))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == Timestamp::ZERO { serializer.serialize_none() } else { serializer.collect_str(&self.0) }
    }
}
