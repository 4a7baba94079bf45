//! A program to compare with: it only keeps Kubernetes' own kinds in memory, with kube-rs' reflector.
//!
//! It holds whole objects in k8s-openapi's types, as the documentation of kube-rs shows, and serves no clients. It is a
//! child process, so that its CPU time and memory are counted separately.

use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::proc;

/// The reflector's way of reading the initial content.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Reading {
    /// Lists in pages, then a watch: the library's default.
    Pages,
    /// Streaming lists.
    Streams,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Number of objects held.
    pub(crate) objects: usize,
    /// From exec until every kind was complete.
    pub(crate) seconds: f64,
    pub(crate) cpu_secs: f64,
    pub(crate) peak_mib: f64,
    pub(crate) rss_mib: f64,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the reflector as a child until it holds everything.
pub(crate) async fn run(kubeconfig: &Path, reading: Reading) -> anyhow::Result<Outcome> {
    let reading = reading.to_possible_value().context("every way of reading has a name")?.get_name().to_owned();
    let started = Instant::now();
    let mut child = Process(
        Command::new(std::env::current_exe()?)
            .arg("--be-reflector")
            .arg(kubeconfig)
            .args(["--reading", &reading])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the reflector")?,
    );
    let mut out = child.0.stdout.take().context("the reflector's output")?;
    let first = tokio::task::spawn_blocking(move || {
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).is_ok_and(|n| n == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    });
    let line = first.await?;
    let seconds = started.elapsed().as_secs_f64();
    let pid = child.0.id();
    let objects = line.parse().with_context(|| format!("the reflector failed: it said {line:?}"))?;
    Ok(Outcome {
        objects,
        seconds,
        cpu_secs: proc::cpu_secs(pid),
        peak_mib: proc::peak_mib(pid),
        rss_mib: proc::rss_mib(pid),
    })
}

/// Runs as the child: prints the number of objects once all kinds are complete, and ends when its standard input closes.
pub(crate) fn be(kubeconfig: PathBuf, reading: Reading) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let file = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let (pods, nodes, namespaces, accounts, services, slices, policies) = tokio::try_join!(
            keep::<Pod>(&client, reading),
            keep::<Node>(&client, reading),
            keep::<Namespace>(&client, reading),
            keep::<ServiceAccount>(&client, reading),
            keep::<Service>(&client, reading),
            keep::<EndpointSlice>(&client, reading),
            keep::<NetworkPolicy>(&client, reading),
        )?;
        let objects = pods.len()
            + nodes.len()
            + namespaces.len()
            + accounts.len()
            + services.len()
            + slices.len()
            + policies.len();
        ensure!(!pods.is_empty(), "there are no pods");
        let mut out = std::io::stdout();
        writeln!(out, "{objects}")?;
        out.flush()?;
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await??;
        anyhow::Ok(())
    })
}

/// Starts to reflect a kind for ever; returns once the kind is complete.
async fn keep<K>(client: &Client, reading: Reading) -> anyhow::Result<reflector::Store<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let config = match reading {
        Reading::Pages => watcher::Config::default(),
        Reading::Streams => watcher::Config::default().streaming_lists(),
    };
    let events = watcher(Api::<K>::all(client.clone()), config).default_backoff().reflect(writer);
    tokio::spawn(events.for_each(|event| async {
        if let Err(error) = event {
            eprintln!("reflector: {}: {error}", K::kind(&()));
        }
    }));
    store.wait_until_ready().await.context("the reflector's writer is gone")?;
    Ok(store)
}
