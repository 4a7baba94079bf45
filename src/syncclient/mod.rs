//! The client: it follows a syncer of a Bulrush or a Typha, and survives the loss of its server.
//!
//! ```no_run
//! use bulrush::syncclient::{Client, SyncEvent};
//!
//! # async fn example() -> Result<(), bulrush::syncclient::Error> {
//! let mut client = Client::builder(["localhost:5473"]).agent("my-agent").start()?;
//! while let Some(event) = client.next().await {
//!     match event {
//!         SyncEvent::Updates(updates) => println!("{} changes", updates.len()),
//!         SyncEvent::Status(status) => println!("now {status}"),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is the near end of a bounded channel; a task at the far end owns the connection. [`session`] is a protocol
//! without a socket, [`tracker`] knows the consumer's data, [`rotation`] says which server is next, [`finder`] is for servers that are
//! found and not given, [`driver`] ties them to a [`connector`]'s stream and to the clock. With the feature `discovery` (part of
//! `server`), `discovery::Discovery` finds servers by their Kubernetes service.
//!
//! Invariants: those of [`tracker`]; and while an event waits to be taken, nothing more is read. So a slow consumer costs a
//! bounded amount of memory here, and is a slow client of the server.

mod builder;
mod client;
mod clients;
pub mod connector;
#[cfg(feature = "discovery")]
pub mod discovery;
mod driver;
mod error;
mod event;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod exercise;
pub mod finder;
#[doc(hidden)]
pub mod rotation;
#[doc(hidden)]
pub mod session;
mod settings;
#[doc(hidden)]
pub mod tracker;
#[cfg(feature = "typed")]
pub mod typed;

pub use builder::ClientBuilder;
pub use client::{Client, Handle};
pub use clients::Clients;
pub use error::Error;
pub use event::{ServerInfo, SyncEvent, apply};
pub use settings::{Identity, Protocol, Timeouts};

#[doc(inline)]
pub use crate::calico::release::Release;
#[doc(inline)]
pub use crate::calico::syncers;
#[doc(inline)]
pub use crate::syncproto::native::Compression;

#[cfg(test)]
mod tests;
