//! Network sets: networks under labels, for policies to select.

use serde::Serialize;

use super::policy::Net;
use super::text::{Text, TextMap};

/// A global or namespaced network set.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkSet<'a> {
    /// Masked networks, and entries for empty texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nets: Vec<Net>,
    /// The object's labels; with the namespace for namespaced sets.
    pub labels: TextMap<'a>,
    /// The namespace's profile, for namespaced sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile_ids: Vec<Text<'a>>,
}
