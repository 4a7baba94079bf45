//! All doors for agents: they are drained, stopped and inspected together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use tokio::runtime::Handle;
use tracing::error;

use crate::health::{HealthAggregator, REPORT_TIMEOUT, Reports};
use crate::outlet::status::ClientStatus;
use crate::outlet::{Listening, Outlet};
use crate::tasks::{TaskFailure, TaskRegistry};

/// The doors that serve.
#[derive(Clone, Debug)]
pub(super) struct Doors(Vec<Arc<dyn Outlet>>);

impl Doors {
    /// The doors that listen. Their tasks are supervised like all others.
    pub(super) fn of(listening: &[Box<dyn Listening>], tasks: &TaskRegistry) -> Self {
        for door in listening {
            tasks.include(&door.tasks());
        }
        Self(listening.iter().map(|door| door.outlet()).collect())
    }

    /// See [`Outlet::drain`].
    pub(super) fn drain(&self) {
        for door in &self.0 {
            door.drain();
        }
    }

    /// See [`Outlet::stop`].
    pub(super) fn stop(&self) {
        for door in &self.0 {
            door.stop();
        }
    }

    /// See [`Outlet::connections`].
    pub(super) fn connections(&self) -> usize {
        self.0.iter().map(|door| door.connections()).sum()
    }

    /// See [`Outlet::clients`]; door by door.
    pub(super) fn clients(&self) -> Vec<ClientStatus> {
        self.0.iter().flat_map(|door| door.clients()).collect()
    }
}

/// Serves at all doors, on the runtime for connections, until all have ended or one has failed.
pub(super) async fn serve(
    listening: Vec<Box<dyn Listening>>,
    health: HealthAggregator,
    agents: Handle,
) -> anyhow::Result<()> {
    let serving = listening.into_iter().map(|door| {
        let alive = health.register(door.name(), Reports::Live, REPORT_TIMEOUT);
        alive.report_live(true);
        let task = agents.spawn(door.run(Box::new(move || alive.report_live(true))));
        async { task.await.context("serve agents")?.map_err(failed) }
    });
    try_join_all(serving).await.map(drop)
}

/// The address where a door listens.
pub(super) fn address(door: &dyn Listening) -> anyhow::Result<SocketAddr> {
    door.local_addr().with_context(|| format!("read the address of {}", door.name()))
}

/// Logs that a task has failed, which ends the process.
pub(super) fn failed(failure: TaskFailure) -> anyhow::Error {
    error!(target: crate::logging::FATAL_TARGET, %failure, "a part of the daemon failed");
    anyhow::Error::new(failure)
}
