//! The values that agents' data planes read, and the parts of objects that they are made of.
//!
//! Field order is wire order. Processors fill these types and serialise them with [`crate::model::gojson`].

pub mod endpoint;
pub mod ipam;
pub mod meta;
pub mod policy;
pub mod pool;
pub mod sets;
pub mod text;
pub mod wireguard;

use ipnet::IpNet;
use serde::{Serialize, Serializer};

/// A network as JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net(pub IpNet);

impl Serialize for Net {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that skip_serializing_if asks for")]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}
