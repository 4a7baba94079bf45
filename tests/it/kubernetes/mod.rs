//! The Kubernetes datastore against a real API server.

mod harness;
