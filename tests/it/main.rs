//! All integration tests in one binary, so that they link once.

#[path = "../support/etcd.rs"]
mod real_etcd;

mod etcd;
mod folder;
