//! A service account's token ends, and a new token is written to the same file, as by the kubelet.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bulrush::calico::kinds as k;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::population::{SMALL, namespace};
use super::proxy::Proxy;
use super::{eventually, logged, populated, role, start_all};
use crate::apiserver::Auth;
use crate::apiserver::crds::{CrdGroup, watched_kinds};
use crate::apiserver::rest::Rest;

const GROUP: CrdGroup = CrdGroup::V1;
const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
/// The name of the account.
const NAME: &str = "bulrush";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_is_replaced_without_loss() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    let rest = server.rest();
    let subject = json!({"kind": "ServiceAccount", "name": NAME, "namespace": "kube-system"});
    role::grant_to(&rest, NAME, &subject, &role::rules()?).await?;
    let folder = TempDir::new()?;
    let file = folder.path().join("token");
    write_token(&rest, &file).await?;

    let proxy = Proxy::start(&server).await?;
    let kubeconfig = server.kubeconfig_at(NAME, &proxy.url(), &Auth::TokenFile(file.clone()));
    let (daemon, agents) = start_all(&folder, kubeconfig).await?;
    let started = agents.until_equal(&rest, GROUP).await?;
    let user = format!("system:serviceaccount:kube-system:{NAME}");
    let reads = server.collections_read(&user);
    ensure!(watched_kinds().iter().all(|kind| reads.get(&GROUP.resource(kind)) == Some(&1)), "{reads:?}");

    // The account is deleted, and its token with it. The server accepts the token for some seconds more.
    agents.begin();
    rest.delete(&format!("{ACCOUNTS}/{NAME}")).await?;
    eventually("the token is refused", async || {
        proxy.cut();
        proxy.seen().iter().any(|seen| seen.code == 401).then_some(())
    })
    .await?;
    let deleted = |i| GROUP.path(&k::POD, &namespace(i % SMALL.namespaces), &format!("pod-{i}"));
    rest.delete_all((0..5).map(deleted).collect()).await?;
    let line = logged(&daemon, &["WARN", "credentials"]).await?;
    ensure!(line.contains("token"), "{line}");
    agents.heard_no_status()?;

    // A new token in the same file.
    write_token(&rest, &file).await?;
    let after = agents.until_equal(&rest, GROUP).await?;
    // The account itself makes a profile, which came and went.
    agents.deleted_exactly_the_missing_keys(&started, &after, Some("ksa.kube-system.bulrush"))?;
    agents.heard_no_status()?;
    ensure!(server.collections_read(&user) == reads, "a refused token costs no list");
    Ok(())
}

/// Creates the account, if it is missing, and writes a token of it into a file.
async fn write_token(rest: &Rest, file: &Path) -> anyhow::Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}});
    rest.create(ACCOUNTS, &account).await?;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let answer: Value = rest.create(&format!("{ACCOUNTS}/{NAME}/token"), &request).await?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    // Renamed into place, as by the kubelet: the file is always whole.
    let fresh = file.with_extension("new");
    fs::write(&fresh, token)?;
    fs::rename(&fresh, file)?;
    Ok(())
}
