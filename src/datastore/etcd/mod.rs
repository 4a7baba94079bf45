//! The etcd v3 datastore: the objects of each kind below the prefix of the kind.
//!
//! Fed by an etcd cluster, feeds the kind watches. [`config`] says where it is, [`store`] is the datastore, whose parts share
//! [`shared`]. [`endpoints`] keeps one connection per endpoint and moves on when one
//! fails, [`list`] pages through a prefix at one revision, [`watch`] follows it from there, [`object`] turns keys and
//! values into objects, [`failure`] turns etcd's errors into what to do next, [`write`] changes single objects.
//!
//! Invariants: a page of a list never comes from another revision than the first one; the position of a batch never
//! runs ahead of the events delivered; a value that cannot be read affects its own key only.

mod config;
mod endpoints;
mod failure;
mod list;
mod object;
mod shared;
mod store;
mod watch;
mod write;

pub use self::config::{ConfigError, DEFAULT_PAGE_LIMIT, EtcdConfig, MAX_MESSAGE_BYTES};
pub use self::store::EtcdStore;
