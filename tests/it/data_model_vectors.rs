//! The whole way from a datastore into the snapshot cache, compared with the data-model vectors.

use bulrush::calico::pipelines::{self, Flavour};
use bulrush::datastore::memory::MemoryStore;
use bulrush::syncer::spec::Source;

use crate::vectors::data_model::{Case, run_all};

/// The daemon's sources for the case's syncer.
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
