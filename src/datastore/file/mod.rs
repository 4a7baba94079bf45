//! The folder datastore: a tree of YAML and JSON files, followed live.
//!
//! Fed by files as `calicoctl` and `kubectl get -o yaml` print them, feeds the kind watches. [`store`] is the datastore, whose parts share
//! [`shared`]; [`driver`] notices changes and starts reloads, [`scan`] reads the tree, [`parse`] turns files into resources, [`folder`] decides what a reload changes, [`follower`] hands that on, [`kinds`] tells
//! which kinds there are.
//! Nothing is ever written to the folder.
//!
//! Invariants: one look at the folder is at most one version, and one batch per kind; deletions may come a look later;
//! unchanged objects keep their revision; what cannot be read, or is being written, counts as unchanged, never as deleted;
//! nothing is listed before all of it could be read.

mod config;
mod driver;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod folder;
mod follower;
mod kinds;
mod parse;
mod scan;
mod shared;
mod status;
mod store;

pub use self::config::{DEFAULT_QUIET, FileConfig};
pub use self::status::{FileError, FileStatus};
pub use self::store::FileStore;
