//! Says once in the log with what the daemon has to do: the cluster's Calico, the kinds that are there and those that are not, how much there
//! is of everything. The facts that `bulrush preflight` looks up before an installation, seen from inside.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::model::SyncStatus;
use crate::model::release::Release;
use crate::pipeline::PipelineView;
use crate::sizing;
use crate::syncer::kind_watch::{KindStatus, Phase};

/// After this long the facts are told, in sync or not.
const LATEST: Duration = Duration::from_secs(60);

/// Where the facts come from.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) views: Vec<PipelineView>,
    pub(super) kinds: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
    /// The release of the cluster's own Calico.
    pub(super) cluster: watch::Receiver<Option<Release>>,
    pub(super) datastore_type: String,
    pub(super) location: String,
    pub(super) tls: bool,
}

impl Facts {
    /// Waits until all is in sync, or for long enough, and tells.
    ///
    /// # Cancel safety
    /// May be dropped at any time; then nothing is told.
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
        let kinds: Vec<KindStatus> = self.kinds.borrow().iter().map(|kind| kind.borrow().clone()).collect();
        let of = |phase: Phase| -> Vec<&KindStatus> { kinds.iter().filter(|kind| kind.phase == phase).collect() };
        let calico = self.cluster.borrow().map_or_else(|| "unknown".to_owned(), |line| line.to_string());
        let memory = sizing::memory(keys as u64, nodes.unwrap_or(0) as u64, self.tls).div_ceil(1 << 20);
        info!(
            datastore = %self.datastore_type,
            location = %self.location,
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
