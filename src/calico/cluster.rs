//! Which kinds are missed in a cluster with a Calico of its own.
//!
//! The role of an older release permits only the kinds that its own Typha reads, and the API server says of a kind that is not
//! installed that it is not permitted. Such a kind counts as absent.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::catalog::GROUP;
use super::kinds::read_by;
use super::release::Release;
use crate::datastore::Kind;
use crate::syncer::kind_watch::{Judgement, KindPolicy, LOOK_SELDOM};

/// How often to look again for one of Calico's own kinds: its definition is probably just being installed. Calico's figure.
const LOOK_SOON: Duration = Duration::from_secs(5);

/// The policy for Calico's kinds. Without a release that is found out nothing is spared.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    release: Option<watch::Receiver<Option<Release>>>,
}

impl Cluster {
    /// In a cluster whose Calico has this release; none in it: not known (yet).
    #[must_use]
    pub fn of(release: watch::Receiver<Option<Release>>) -> Self {
        Self { release: Some(release) }
    }
}

impl KindPolicy for Cluster {
    fn look_again(&self, kind: &Kind) -> Duration {
        if kind.group == GROUP { LOOK_SOON } else { LOOK_SELDOM }
    }

    fn judge(&self, kind: &Kind) -> Judgement {
        let Some(mut release) = self.release.clone() else { return Judgement::missed() };
        let spared = spared(kind, *release.borrow());
        let (kind, then) = (kind.clone(), spared.clone());
        let changed = async move {
            if release.wait_for(|now| self::spared(&kind, *now) != then).await.is_err() {
                // Nobody will ever find out.
                std::future::pending::<()>().await;
            }
        };
        Judgement { spared, changed: changed.boxed() }
    }
}

/// Why a kind is not missed in the cluster of this release, if it is not.
fn spared(kind: &Kind, release: Option<Release>) -> Option<String> {
    let reads = read_by(kind).contain(release.unwrap_or(Release::Master));
    (!reads).then(|| match release {
        Some(release) => format!("Calico {release}, which this cluster runs, does not read it"),
        None => "only agents of old releases are told of it".to_owned(),
    })
}
