//! The Kubernetes API as a datastore: native kinds and custom resources.
//!
//! Fed by an API server, feeds the kind watches. [`config`] says where it is and as whom we speak, [`load`] reads the files that
//! it names, [`proxy`] chooses the way there, [`client`] sends requests within bounds. [`store`] is the datastore, whose parts share
//! [`shared`]: [`kind_state`] is what is remembered of each kind, [`groups`] finds the API group that holds a family of kinds,
//! [`definitions`] watches the definitions of kinds, whose names are in [`known`], [`absence`] decides by them whether a kind is missing.
//! [`discovery`] asks which kinds there are, [`served`] reads the answers, [`kinds`] follows the kinds that somebody asks for by pattern. [`list`] reads a kind as
//! a stream or in pages, [`watch`] follows it; [`stream`] is the connection of both, [`lines`] cuts what it sends, [`events`] and
//! [`object`] read it. [`write`] changes single objects, [`failure`] turns answers into what to do next, [`lookup`] asks once, for
//! commands that inspect a cluster.
//!
//! Invariants:
//! - a kind costs one list and one watch: the stream that delivered a list goes on as the watch that follows it;
//! - the position of a batch never runs ahead of the events delivered;
//! - an object that cannot be read affects itself only;
//! - a kind is absent only if that is confirmed, its objects are gone only if its definition was there and is gone, and
//!   neither is ever true of a kind that every API server has;
//! - whatever the server asks for (`Retry-After`) is waited for, within a limit, and kinds come back one after another
//!   ([`client::end_of_pause`]).

mod absence;
mod client;
pub mod config;
mod definitions;
mod discovery;
mod events;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod failure;
mod groups;
mod kind_state;
mod kinds;
mod known;
mod limit;
mod lines;
mod list;
mod load;
pub mod lookup;
mod object;
mod proxy;
mod served;
mod shared;
mod store;
mod stream;
mod watch;
mod write;

pub use self::config::{ConfigError, KubernetesConfig};
pub use self::store::KubernetesStore;
