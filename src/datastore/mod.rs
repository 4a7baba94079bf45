//! Where truth lives: the datastores that Bulrush reads, and the seam between.
//!
//! A datastore lists and watches *selections* of objects of one kind, and knows nothing of syncers, keys or agents. A [`Kind`] is
//! data, so that any resource can be one; what a datastore has to know of kinds is data as well ([`catalog`]). Errors are named by what the caller
//! does next. Every further datastore is one more file or folder here.

pub mod address;
pub mod backoff;
pub mod builtin;
pub mod catalog;
#[cfg(feature = "server")]
pub mod etcd;
#[cfg(feature = "server")]
pub mod file;
mod filter;
mod inlet;
pub mod kubernetes;
pub mod labels;
#[cfg(feature = "server")]
pub mod memory;
mod pattern;
#[cfg(feature = "server")]
mod seen;
pub mod selection;
pub mod write;

pub use self::inlet::{Datastore, Error, Event, ListPage, Malformed, WatchBatch};
pub use self::pattern::{BadPattern, KindsNow, Pattern, Unknown};
pub use self::selection::Selection;
pub use crate::model::object::{Dialect, Kind, Object, ObjectId};
