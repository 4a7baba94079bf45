//! Many watches in, one ordered stream out.
//!
//! A [`kind_watch`] lists and watches one kind once per process. A [`watcher_cache`] turns its objects into updates for one
//! syncer through a [`processor`]. An [`inlet`] follows a datastore whose kinds come and go. A [`watcher_syncer`] merges a syncer's caches. A [`spec`] says as data which kinds and
//! processors a syncer has.

#[cfg(feature = "server")]
pub mod inlet;
pub mod kind_watch;
#[cfg(feature = "server")]
mod merger;
#[cfg(feature = "server")]
pub mod processor;
#[cfg(feature = "server")]
mod source;
#[cfg(feature = "server")]
pub mod spec;
#[cfg(feature = "server")]
pub mod watcher_cache;
#[cfg(feature = "server")]
pub mod watcher_syncer;
