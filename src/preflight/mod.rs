//! Inspects a cluster before Bulrush takes Typha's place: names each obstacle, and the command that removes it.
//!
//! Fed by single answers of an API server ([`Lookup`]), makes a [`Report`]. [`typha`] finds the Typha that is installed, [`options`] reads
//! its variables as Bulrush would, [`serving`] looks at ports, probes and replicas, [`certificates`] at TLS, [`agents`] at the agents,
//! [`rights`] at the rights of its account, [`kinds`] at the kinds that the API server serves; [`memory`] estimates. [`compare`] is another
//! question: whether a running Typha and Bulrush tell agents the same.
//!
//! Invariants: nothing is written, neither to the cluster nor to a disk; private keys are not read; if something cannot be read, the
//! report says so and does not call it good.

mod agents;
mod certificates;
pub mod compare;
mod json;
mod kinds;
mod memory;
mod options;
pub mod report;
pub mod rights;
mod serving;
pub mod typha;

use serde_json::Value;

use self::json::text;
use self::report::Report;
pub use self::rights::Account;
use self::typha::{Installed, Method};
use crate::calico::kinds::{CLUSTER_INFORMATION, ENDPOINT_SLICE};
use crate::calico::release::{Release, Version};
use crate::datastore::kubernetes::lookup::{Answer, Lookup};

/// The parts of a cluster that have other names than in Calico's installs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Namespace and name of Typha's Deployment.
    pub typha: Option<(String, String)>,
    /// The account whose rights to ask for; `None`: those of the Deployment's service account, or of this account if there is no Deployment.
    pub account: Option<Account>,
}

/// Looks a cluster over.
///
/// # Cancel safety
/// May be dropped at any time.
pub async fn look(lookup: &Lookup, options: &Options) -> Report {
    let mut report = Report::default();
    report.fact("server", lookup.server());
    if !reachable(lookup, &mut report).await {
        return report;
    }
    let watched = match kinds::watched(lookup).await {
        Ok(watched) => watched,
        Err(reason) => {
            report.unknown("kinds", format!("the API groups cannot be listed: {reason}"));
            return report;
        }
    };
    let installed = installation(lookup, options, &mut report).await;
    let mut settings = options::Settings::default();
    if let Some(installed) = &installed {
        let variables = installed.variables(lookup).await;
        settings = options::check(lookup, installed, &variables, &mut report).await;
        serving::check(lookup, installed, &settings, &mut report).await;
        certificates::check(lookup, installed, &settings, &mut report).await;
    }
    let line = release(lookup, &watched, &settings, &mut report).await;
    agents::check(lookup, installed.as_ref(), &settings, &mut report).await;
    let account = options.account.clone().unwrap_or_else(|| match &installed {
        Some(installed) => {
            Account::Service { namespace: installed.namespace.clone(), name: installed.account().to_owned() }
        }
        None => Account::Own,
    });
    let needed = if settings.uses_etcd() {
        // Replicas are counted at the API server all the same.
        let own: Vec<_> = watched.iter().filter(|(kind, _)| *kind == ENDPOINT_SLICE && settings.rebalances()).collect();
        rights::watching(own)
    } else {
        rights::needed(&watched)
    };
    rights::check(lookup, &account, needed, line, &mut report).await;
    let counts = kinds::check(lookup, &watched, line, &settings, &mut report).await;
    memory::check(installed.as_ref(), &settings, &counts, &mut report);
    report
}

async fn reachable(lookup: &Lookup, report: &mut Report) -> bool {
    match lookup.get("/version").await {
        Answer::Found(version) => {
            let version = text(&version, "/gitVersion");
            report.fact("kubernetes_version", version);
            report.ok("kubernetes", format!("the API server at {} is Kubernetes {version}", lookup.server()));
            true
        }
        other => {
            let reason = other.reason();
            report
                .unknown("kubernetes", format!("the API server at {} cannot be asked: {reason}", lookup.server()))
                .remedy("kubectl version; then name the kubeconfig with --kubeconfig, or its context with --context");
            false
        }
    }
}

/// ClusterInformation `default` of the API server.
async fn information(lookup: &Lookup, watched: &[kinds::Watched], report: &mut Report) -> Option<Value> {
    let (_, place) = watched.iter().find(|(kind, _)| *kind == CLUSTER_INFORMATION)?;
    match lookup.get(&format!("{}/default", place.path)).await {
        Answer::Found(information) => Some(information),
        Answer::Missing(_) => {
            report.obstacle(
                "calico",
                "there is no ClusterInformation default: no Calico has run in this cluster, or its data are in etcd",
            );
            None
        }
        other => {
            report.unknown("calico", format!("ClusterInformation default: {}", other.reason()));
            None
        }
    }
}

/// The release of the cluster's own Calico.
async fn release(
    lookup: &Lookup,
    watched: &[kinds::Watched],
    settings: &options::Settings,
    report: &mut Report,
) -> Option<Release> {
    let information = if settings.uses_etcd() {
        options::etcd(settings, report).await?
    } else {
        information(lookup, watched, report).await?
    };
    let enterprise = text(&information, "/spec/cnxVersion");
    if !enterprise.is_empty() {
        report.obstacle("calico", format!("this is Calico Enterprise {enterprise}, which Bulrush does not serve"));
    }
    let version = text(&information, "/spec/calicoVersion");
    report.fact("calico_version", version);
    match Version::of(version) {
        Version::Release(line) => {
            report.fact("release", line.as_str());
            report.ok("calico", format!("Calico is {version}; its agents are served as {line}"));
            return Some(line);
        }
        Version::TooOld => {
            let text = format!("Calico is {version}; Bulrush serves agents of {} and newer", Release::ALL[0]);
            report.obstacle("calico", text).remedy("upgrade Calico first")
        }
        Version::Unknown => {
            let served = "its agents are served by what their hello says";
            report
                .note("calico", format!("Calico is {version:?}, which names no release: {served}"))
                .remedy("TYPHA_SERVERUNKNOWNVERSIONDIALECT says as which release agents without a version are served")
        }
    };
    None
}

/// Typha's Deployment, and the tool that installed it.
async fn installation(lookup: &Lookup, options: &Options, report: &mut Report) -> Option<Installed> {
    let installed = match Installed::find(lookup, options.typha.as_ref()).await {
        Ok(Some(installed)) => installed,
        Ok(None) => {
            report.fact("install", "none");
            report.note("install", "there is no Typha in this cluster: agents watch the API server themselves").remedy(
                "install Bulrush as docs/operations.md says under \"Install\", and tell calico-node with \
                 FELIX_TYPHAK8SSERVICENAME",
            );
            return None;
        }
        Err(reason) => {
            report.unknown("install", format!("Typha's Deployment cannot be looked for: {reason}"));
            return None;
        }
    };
    let Installed { method, namespace, name, .. } = &installed;
    report.fact("install", method.as_str());
    report.fact("typha", format!("{namespace}/{name}"));
    report.fact("image", installed.image());
    let place = format!("Deployment {namespace}/{name} ({}), image {}", method.as_str(), installed.image());
    let swap = format!("kubectl -n {namespace} set image deployment/{name} {}=REGISTRY/bulrush:TAG", typha::NAME);
    match method {
        Method::Operator if !installed.is_let_alone() => report
            .obstacle(
                "install",
                format!("{place}: the operator undoes changes of the image while it looks after this Deployment"),
            )
            .remedy(format!(
                "kubectl -n {namespace} annotate deployment {name} unsupported.operator.tigera.io/ignore=true && {swap}"
            )),
        Method::Operator | Method::Manifest => report.ok("install", place).remedy(swap),
        Method::Chart => report
            .note("install", format!("{place}: the next helm upgrade of Calico puts its own image back"))
            .remedy(swap),
    };
    Some(installed)
}
