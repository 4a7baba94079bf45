//! Pipelines of any kind: the keys, values and revisions of objects of which this program knows nothing but their schema.
//!
//! Fed by datastores through [`syncer`](crate::syncer); the counterpart of [`calico`](crate::calico). [`key`] names data, [`canonical`] makes the
//! bytes and the revision that are the same on every replica, [`objects`] and [`documents`] are the processors, [`pipeline`] puts the description of a pipeline together.

pub mod canonical;
pub mod documents;
pub mod key;
pub mod objects;
pub mod pipeline;
mod subject;
mod text;

pub use self::subject::Check;
