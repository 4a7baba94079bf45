//! Many kinds at rest: CPU of the daemon while nothing changes.

use std::fs;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::apiserver::ApiServer;
use crate::apiserver::crds::{DEFINITIONS, served_at};
use crate::args::Args;
use crate::content;
use crate::progress::Step;
use crate::report::Row;
use crate::server::Server;

/// Both datastores, one after the other. The API server is left out where `BULRUSH_WITHOUT` says so.
pub(crate) async fn measure(args: &Args) -> anyhow::Result<Vec<Row>> {
    let mut rows = vec![in_a_folder(args).await?];
    rows.extend(in_an_api_server(args).await?);
    Ok(rows)
}

async fn in_a_folder(args: &Args) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    for i in 0..args.kinds {
        fs::write(folder.path().join(format!("{i}.json")), content::one_of_many(i).to_string())?;
    }
    let datastore = format!("Type = file\nPath = {}", folder.path().display());
    at_rest(args, format!("idle: {} kinds of a folder", args.kinds), &datastore).await
}

async fn in_an_api_server(args: &Args) -> anyhow::Result<Option<Row>> {
    let Some(api) = ApiServer::start().await else { return Ok(None) };
    let step = Step::begin(format!("defining {} kinds in an API server", args.kinds));
    let rest = api.rest();
    let collection = |i| format!("/apis/{}/v1/{}", content::MANY, content::plural_of_many(i));
    rest.create_all((0..args.kinds).map(|i| (DEFINITIONS.to_owned(), content::definition_of_many(i))).collect())
        .await?;
    for i in 0..args.kinds {
        served_at(&rest, &collection(i)).await?;
    }
    rest.create_all((0..args.kinds).map(|i| (collection(i), content::one_of_many(i))).collect()).await?;
    step.done();
    let datastore = format!("Type = kubernetes\nKubeconfig = {}", api.kubeconfig("admin").display());
    at_rest(args, format!("idle: {} kinds of an API server", args.kinds), &datastore).await.map(Some)
}

/// Starts a daemon over this datastore, and takes its CPU time once it is at rest.
async fn at_rest(args: &Args, name: String, datastore: &str) -> anyhow::Result<Row> {
    let step = Step::begin(name.clone());
    let sections =
        format!("[datastore \"many\"]\n{datastore}\n[syncer \"mesh\"]\nSources = many\nKinds = {}/*\n", content::MANY);
    let config = ("CalicoSyncers = none", sections.as_str());
    let kinds = args.kinds as u64;
    let (server, start) = Server::start_until(args.program.as_deref(), config, "mesh", |syncer| {
        syncer.keys == kinds && syncer.sources.iter().map(|source| source.kinds).sum::<u64>() == kinds
    })
    .await?;
    sleep(args.settle()).await;
    let (began, before) = (Instant::now(), server.cpu_secs());
    sleep(Duration::from_secs(args.seconds)).await;
    let percent = 100.0 * (server.cpu_secs() - before) / began.elapsed().as_secs_f64();
    step.done();
    Ok(Row::new(name)
        .with("cpu_percent", percent)
        .with("in_sync_secs", start.seconds)
        .with("rss_mib", server.rss_mib()))
}
