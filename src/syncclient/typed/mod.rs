//! Objects of any kind as the agent's own types, read by serde. Feature `typed` (part of `server`).
//!
//! ```no_run
//! use bulrush::model::SyncerName;
//! use bulrush::syncclient::Client;
//! use bulrush::syncclient::typed::Store;
//!
//! #[derive(serde::Deserialize)]
//! struct VirtualService {
//!     spec: Spec,
//! }
//! #[derive(serde::Deserialize)]
//! struct Spec {
//!     hosts: Vec<String>,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder(["localhost:5473"]).syncer(SyncerName::intern("mesh")?).start()?;
//! let mut store = Store::follow(client);
//! store.in_sync().await?;
//! let kind = "networking.istio.io/VirtualService";
//! if let Some(service) = store.get::<VirtualService>(kind, "default", "reviews")? {
//!     println!("{:?}", service.spec.hosts);
//! }
//! store.changed().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Decode`] reads the value of one update; [`Store`] follows a [`Client`](super::Client) and keeps all objects.

mod store;

use serde::de::DeserializeOwned;

pub use self::store::{Ended, Store};
use crate::model::{ResourceKey, Update};

/// A value cannot be read as the type that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read {object} as {wanted}: {reason}")]
pub struct DecodeError {
    /// The object, in words, or its key.
    pub object: String,
    /// The Rust type.
    pub wanted: &'static str,
    /// The place and the reason.
    pub reason: String,
}

/// Reads values as objects.
pub trait Decode {
    /// The parts of the key. `None`: it is not that of an object of any kind.
    fn resource(&self) -> Option<ResourceKey<'_>>;

    /// The object. `None`: it was deleted, or its value must not be used.
    ///
    /// # Errors
    /// The value does not have the form of the type.
    fn decode<T: DeserializeOwned>(&self) -> Result<Option<T>, DecodeError>;
}

impl Decode for Update {
    fn resource(&self) -> Option<ResourceKey<'_>> {
        ResourceKey::parse(&self.key)
    }

    fn decode<T: DeserializeOwned>(&self) -> Result<Option<T>, DecodeError> {
        let Some(value) = &self.value else { return Ok(None) };
        serde_json::from_slice(&value.bytes).map(Some).map_err(|error| DecodeError {
            object: self.resource().map_or_else(|| self.key.to_string(), |parts| parts.to_string()),
            wanted: std::any::type_name::<T>(),
            reason: error.to_string(),
        })
    }
}
