//! Calico's own knowledge: its kinds, keys, values, rules, releases and pipelines. The rooms below know none of it.
//!
//! [`pipelines`] says which syncer is fed from which [`kinds`]; [`processors`] make [keys](keys) and values of objects
//! ([`v3`] and Kubernetes' own in, [`v1`] and [whole resources](resource) out); [`validate`] says which values may be
//! distributed; [`dialect`] tells the result to agents of each [`release`]; [`bootstrap`] writes the few objects that a
//! fresh datastore needs.
//! Datastores and kind watches are handed their facts as data: [`catalog`], [`cluster`].

#[cfg(feature = "discovery")]
pub mod aside;
#[cfg(feature = "server")]
pub mod bootstrap;
#[cfg(feature = "server")]
pub mod catalog;
#[cfg(feature = "server")]
pub mod cluster;
#[cfg(feature = "server")]
pub mod dialect;
#[cfg(feature = "server")]
pub mod duration;
#[cfg(any(test, fuzzing))]
pub mod exercise;
#[cfg(feature = "server")]
pub mod keys;
#[cfg(feature = "discovery")]
pub mod kinds;
#[cfg(feature = "server")]
pub mod net;
#[cfg(feature = "server")]
pub mod numorstring;
#[cfg(feature = "server")]
pub mod pipelines;
#[cfg(feature = "server")]
pub mod processors;
pub mod release;
#[cfg(feature = "server")]
pub mod resource;
#[cfg(feature = "server")]
pub mod schema;
#[cfg(feature = "server")]
pub mod selector;
pub mod syncers;
#[cfg(feature = "server")]
pub mod v1;
#[cfg(feature = "server")]
pub mod v3;
#[cfg(feature = "server")]
pub mod validate;
#[cfg(feature = "server")]
pub mod verdict;
