//! Logs the facts about the datastore once after the start: the cluster's Calico, the kinds that are there and the missing ones, and the
//! numbers of keys and nodes. `bulrush preflight` looks up the same facts before an installation.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::stores::{self, StoreView};
use crate::calico::release::Release;
use crate::model::SyncStatus;
use crate::pipeline::PipelineView;
use crate::sizing;
use crate::syncer::kind_watch::{KindStatus, Phase};

/// Longest wait for in-sync before the facts are logged.
const LATEST: Duration = Duration::from_secs(60);

/// The sources of the facts.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) views: Vec<PipelineView>,
    pub(super) stores: Vec<StoreView>,
    /// The release of the cluster's own Calico.
    pub(super) cluster: watch::Receiver<Option<Release>>,
    pub(super) tls: bool,
}

impl Facts {
    /// Waits until all is in sync, but not longer than [`LATEST`], and logs the facts.
    ///
    /// # Cancel safety
    /// May be dropped at any time; then nothing is logged.
    pub(super) async fn tell(self, cancel: CancellationToken) {
        let telling = async {
            let in_sync = timeout(LATEST, self.in_sync()).await.is_ok();
            self.log(in_sync);
        };
        cancel.run_until_cancelled(telling).await;
    }

    async fn in_sync(&self) {
        for view in &self.views {
            let mut trail = view.reader.follow();
            while trail.position().status != SyncStatus::InSync {
                if trail.next().await.is_none() {
                    return;
                }
            }
        }
    }

    fn log(&self, in_sync: bool) {
        let keys: usize = self.views.iter().map(|view| view.reader.newest().map.len()).sum();
        let nodes = self.views.iter().find_map(|view| *view.nodes.as_ref()?.borrow());
        let kinds = stores::kinds(&self.stores);
        let of = |phase: Phase| -> Vec<&KindStatus> { kinds.iter().filter(|kind| kind.phase == phase).collect() };
        let calico = match *self.cluster.borrow() {
            // Of Calico's syncers one counts nodes.
            _ if self.views.iter().all(|view| view.nodes.is_none()) => "off".to_owned(),
            Some(line) => line.to_string(),
            None => "unknown".to_owned(),
        };
        let memory = sizing::memory(keys as u64, nodes.unwrap_or(0) as u64, self.tls).div_ceil(1 << 20);
        info!(
            datastore = stores::types(&self.stores),
            location = stores::locations(&self.stores),
            calico,
            tls = self.tls,
            kinds = of(Phase::Watching).len(),
            keys,
            nodes = nodes.unwrap_or(0),
            memory_mib = memory,
            in_sync,
            "the datastore as it is at the start; memory is an estimate for all agents on this replica"
        );
        let absent = of(Phase::Absent);
        let (spared, missing): (Vec<&KindStatus>, Vec<&KindStatus>) =
            absent.iter().partition(|kind| kind.error.is_some());
        if !missing.is_empty() {
            info!(kinds = names(&missing), "the datastore does not have these kinds, which are empty for agents");
        }
        if !spared.is_empty() {
            let kinds = names(&spared);
            info!(
                kinds,
                "these kinds may not be listed, and this cluster's Calico does not read them: empty for agents"
            );
        }
        for kind in kinds.iter().filter(|kind| matches!(kind.phase, Phase::Listing | Phase::Retrying | Phase::Lost)) {
            let error = kind.error.as_deref().unwrap_or("no answer yet");
            warn!(kind = kind.kind, error, "this kind keeps agents from being in sync");
        }
    }
}

fn names(kinds: &[&KindStatus]) -> String {
    kinds.iter().map(|kind| kind.kind.as_str()).collect::<Vec<_>>().join(", ")
}
