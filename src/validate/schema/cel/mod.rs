//! Rules of schemas in CEL (`x-kubernetes-validations`): compiled once, run on values.
//!
//! The language is the crate `kube-cel`, with Kubernetes' functions. Here is all that this crate leaves to its user: values with the types of
//! the schema, bounds on a rule's text and on its cost, and the old value as an optional.

mod compile;
mod cost;
mod evaluate;
mod rule;
mod scope;
mod value;

pub(super) use compile::compile;
pub(super) use evaluate::{Verdict, evaluate};
pub use rule::Rule;
pub(super) use value::{Bindings, Sizes};
