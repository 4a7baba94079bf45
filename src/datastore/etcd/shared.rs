//! The connections and the memory that lists, watches and writes of one etcd share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::endpoints::Endpoints;
use super::object::Layout;
use crate::datastore::catalog::Catalog;
use crate::datastore::selection::Selection;

/// One etcd, as it is used.
pub(super) struct Shared {
    pub(super) endpoints: Endpoints,
    pub(super) catalog: Arc<Catalog>,
    /// Keys per page of a list.
    pub(super) page_limit: u32,
    /// Cluster id that answered the last list, per prefix: a watch must not go on in another cluster's history.
    pub(super) listed_from: Mutex<HashMap<String, u64>>,
}

impl Shared {
    /// Where the objects are, as closely as a prefix can say it; `None`: etcd does not hold the kind.
    pub(super) fn layout(&self, selection: &Selection) -> Option<Layout> {
        let kind = selection.kind();
        let prefix = kind.etcd_prefix.as_ref()?.to_string();
        let range = selection.only_namespace().map_or_else(|| prefix.clone(), |only| format!("{prefix}{only}/"));
        Some(Layout { kind: kind.clone(), prefix, range, form: self.catalog.value_form(kind) })
    }

    /// A list below the prefix was answered by this cluster.
    pub(super) fn note_cluster(&self, prefix: &str, cluster: u64) {
        let mut known = self.listed_from.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(prefix.to_owned(), cluster);
    }

    /// The cluster that answered the last list below the prefix.
    pub(super) fn cluster_of(&self, prefix: &str) -> Option<u64> {
        self.listed_from.lock().unwrap_or_else(PoisonError::into_inner).get(prefix).copied()
    }
}
