//! Many watches in, one ordered stream out.
//!
//! [`kinds`](crate::model::kinds) names what can be watched. A [`kind_watch`] lists and watches one kind once per process. A [`watcher_cache`]
//! turns its objects into updates for one syncer through a processor. A [`watcher_syncer`] merges a syncer's caches.

pub mod kind_watch;
pub mod pipelines;
pub mod processors;
pub mod watcher_cache;
pub mod watcher_syncer;
