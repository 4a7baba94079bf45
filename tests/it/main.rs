//! All integration tests in one binary, so that they link once.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, says why it skips, and waits for other processes in real time"
)]

#[path = "../support/vectors/mod.rs"]
mod vectors;

mod data_model_vectors;

#[path = "../support/need.rs"]
mod need;

#[path = "../support/paused.rs"]
mod paused;

#[path = "../support/wait.rs"]
mod wait;

#[path = "../support/etcd.rs"]
mod real_etcd;

#[path = "../support/apiserver/mod.rs"]
mod apiserver;

#[path = "../support/scripted_api.rs"]
mod scripted;

mod etcd;
mod folder;
mod folder_kinds;
mod simulation;
mod structure;

#[path = "../support/daemon.rs"]
mod daemon;

mod agents;
mod bad_objects;
mod certificates;
mod deploy;
mod dialects;
mod hostile;
mod kubernetes;
mod made_up_kind;
mod process;
mod schema_corpora;
mod scripted_api;
