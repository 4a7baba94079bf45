//! The whole road from a datastore to the snapshot cache's door, held against the data-model vectors.

use bulrush::datastore::memory::MemoryStore;
use bulrush::syncer::pipelines::{self, Flavour, Source};

use crate::vectors::data_model::{Case, run_all};

/// The sources of which the daemon makes the case's syncer.
pub(crate) fn pipeline(flavour: Flavour, case: &Case) -> Vec<Source> {
    let specs = pipelines::calico(flavour, &case.context);
    specs.into_iter().find(|spec| spec.syncer == case.syncer).expect("every syncer has a pipeline").sources
}

#[test]
fn all_data_model_vectors_through_the_pipeline() {
    let flavour = |case: &Case| if case.datastore == "etcd" { Flavour::Etcd } else { Flavour::Kubernetes };
    run_all(|case| pipeline(flavour(case), case), None, |_| MemoryStore::new());
}

#[test]
fn all_data_model_vectors_of_kubernetes_through_the_folders_pipeline() {
    run_all(|case| pipeline(Flavour::Folder, case), None, |_| MemoryStore::new());
}
