//! All integration tests in one binary, so that they link once.

mod data_model_vectors;
#[path = "../support/etcd.rs"]
mod real_etcd;

mod etcd;
mod folder;
mod simulation;

#[path = "../support/daemon.rs"]
mod daemon;

mod agents;
mod process;
