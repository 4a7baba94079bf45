//! An overloaded API server: it answers 429 with a time to wait.

use std::time::Duration;

use anyhow::ensure;
use tempfile::TempDir;

use super::population::{self, SMALL};
use super::proxy::{Proxy, Refusal};
use super::{USER, allow, eventually, populated, start_all};
use crate::apiserver::crds::{CrdGroup, watched_kinds};

const GROUP: CrdGroup = CrdGroup::V1;
const PAUSE: u64 = 2;

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_waited_for_and_nothing_is_lost() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    let rest = server.rest();
    allow(&server).await?;
    let proxy = Proxy::start(&server).await?;
    let refuse = |containing: &str, times| {
        proxy.refuse(Refusal { containing: containing.to_owned(), code: 429, retry_after: Some(PAUSE), times });
    };

    // At start: lists are refused.
    refuse("/pods", 2);
    refuse("/ippools", 1);
    let kubeconfig = proxy.kubeconfig(&server);
    let folder = TempDir::new()?;
    let (_daemon, agents) = start_all(&folder, kubeconfig).await?;
    let started = agents.until_equal(&rest, GROUP).await?;
    let pods = waited(&proxy, "/pods")?;
    ensure!(pods == 3, "pods were asked for {pods} times");
    waited(&proxy, "/ippools")?;

    // Later: all watches are cut, and may not come back at once.
    agents.begin();
    let reads = server.collections_read(USER);
    proxy.begin();
    refuse("watch=true", 10);
    proxy.cut();
    let gone = (0..10).map(|i| {
        GROUP.path(&bulrush::calico::kinds::POD, &population::namespace(i % SMALL.namespaces), &format!("pod-{i}"))
    });
    rest.delete_all(gone.collect()).await?;
    let after = agents.until_equal(&rest, GROUP).await?;
    let kinds = watched_kinds().len();
    let back = async || {
        (proxy.seen().iter().filter(|seen| seen.is_watch() && seen.code == 200).count() >= kinds).then_some(())
    };
    eventually("all kinds are watched again", back).await?;
    agents.deleted_exactly_the_missing_keys(&started, &after, None)?;
    agents.heard_no_status()?;
    ensure!(server.collections_read(USER) == reads, "a refused watch costs no list");
    for kind in watched_kinds() {
        waited(&proxy, &format!("{}?", GROUP.collection(&kind, "")))?;
    }
    Ok(())
}

/// Fails if a request whose path contains this text came sooner after a refusal than the server asked for. Returns the number of requests.
fn waited(proxy: &Proxy, containing: &str) -> anyhow::Result<usize> {
    let seen: Vec<_> = proxy.seen().into_iter().filter(|seen| seen.what.contains(containing)).collect();
    for pair in seen.windows(2) {
        let pause = pair[1].at - pair[0].at;
        // Only the time after a refusal counts.
        let is_refused = pair[0].code == 429;
        ensure!(!is_refused || pause >= Duration::from_secs(PAUSE), "{containing} was asked for again after {pause:?}");
    }
    Ok(seen.len())
}
