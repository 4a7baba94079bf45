//! Alerts and dashboard: their metrics exist, and all copies are the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use bulrush::syncserver::CloseReason;
use serde_json::Value;
use tempfile::TempDir;

use super::read;
use super::render::chart;
use crate::daemon::{Daemon, eventually, http_get};

const ALERTS: &str = "deploy/prometheus/alerts.yaml";
const DASHBOARD: &str = "deploy/grafana/bulrush.json";
/// Metrics of other programs: kube-state-metrics, and the kubelet for containers.
const FOREIGN: [&str; 7] = [
    "container_memory_working_set_bytes",
    "kube_deployment_spec_replicas",
    "kube_deployment_status_replicas_available",
    "kube_node_status_condition",
    "kube_pod_container_info",
    "kube_pod_container_resource_limits",
    "kube_pod_container_status_restarts_total",
];
/// Close reasons that do not go away however often an agent tries.
const FOR_GOOD: [&str; 4] = ["tls-failed", "no-dialect", "unknown-syncer", "unsupported"];
/// An object that cannot be converted, and a value that is not valid.
const BAD: &str = "
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: bad}
spec: {cidr: nonsense}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: bad}
spec: {selector: 'nonsense('}
";

fn alerts() -> anyhow::Result<Value> {
    Ok(serde_saphyr::from_str(&read(ALERTS)?)?)
}

fn rules(alerts: &Value) -> impl Iterator<Item = &Value> {
    let groups = alerts["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

/// Names in an expression that look like metrics: those of Bulrush, Typha, the process and other programs, outside
/// of quotes.
fn metrics_in(expression: &str) -> impl Iterator<Item = &str> {
    let outside = expression.split('"').step_by(2);
    let words = outside.flat_map(|part| part.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
    words.filter(|word| {
        ["typha_", "bulrush_", "process_", "go_", "kube_", "container_"].iter().any(|prefix| word.starts_with(prefix))
    })
}

/// Collects every string below a field `expr` or `query`, at any depth.
fn expressions<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => into.push(text),
                    other => expressions(other, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, into)),
        _ => {}
    }
}

/// Writes `key` and `cert` into a folder. Returns when the certificate expires, in seconds since the epoch.
fn own_certificate(folder: &Path) -> anyhow::Result<f64> {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()])?;
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = rcgen::KeyPair::generate()?;
    fs::write(folder.join("cert"), params.self_signed(&key)?.pem())?;
    fs::write(folder.join("key"), key.serialize_pem())?;
    Ok(4_102_444_800.0)
}

/// The names on a daemon's metrics page; names of a summary's parts without their endings.
fn served() -> anyhow::Result<BTreeSet<String>> {
    let folder = TempDir::new()?;
    let path = folder.path().display().to_string();
    fs::write(folder.path().join("bad.yaml"), BAD)?;
    let certificates = TempDir::new()?;
    let certificate = own_certificate(certificates.path())?;
    let file = |name: &str| certificates.path().join(name).display().to_string();
    let (key, cert) = (file("key"), file("cert"));
    let daemon = Daemon::start(
        folder.path(),
        &[
            ("DatastoreType", "file"),
            ("DatastorePath", &path),
            ("ServerKeyFile", &key),
            ("ServerCertFile", &cert),
            ("CAFile", &cert),
            ("ClientCN", "agent"),
        ],
    )?;
    daemon.wait_ready()?;
    for option in ["ServerCertFile", "CAFile"] {
        let series = format!("bulrush_certificate_expiry_timestamp_seconds{{option=\"{option}\"}}");
        let value = eventually("a certificate was looked at", || daemon.metric(&series).ok())?;
        ensure!((value - certificate).abs() < f64::EPSILON, "{series} is {value}, and not {certificate}");
    }
    // No agent has connected, and the bad objects were bad from the start: alerts see both.
    for (series, expected) in [
        ("bulrush_connections_closed_total{reason=\"fell-behind\"}", 0.0),
        ("bulrush_in_sync{syncer=\"felix\"}", 1.0),
        ("bulrush_problems{found_by=\"IPPool\",kind=\"projectcalico.org/v3/IPPool\",syncer=\"felix\"}", 1.0),
        ("bulrush_problems{found_by=\"validation\",kind=\"GlobalNetworkPolicy\",syncer=\"felix\"}", 1.0),
    ] {
        let value = daemon.metric(series)?;
        ensure!((value - expected).abs() < f64::EPSILON, "{series} is {value}");
    }
    let (_, page) = http_get(daemon.metrics, "/metrics")?;
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

#[test]
fn alerts_and_dashboard_are_about_metrics_that_exist() -> anyhow::Result<()> {
    let (alerts, dashboard): (Value, Value) = (alerts()?, serde_json::from_str(&read(DASHBOARD)?)?);
    let served = served()?;
    let mut used = Vec::new();
    expressions(&alerts, &mut used);
    let alerting = used.len();
    expressions(&dashboard, &mut used);
    ensure!(alerting > 10 && used.len() > alerting + 30, "{} expressions", used.len());
    let mut named = BTreeSet::new();
    for expression in used {
        for name in metrics_in(expression) {
            ensure!(served.contains(name) || FOREIGN.contains(&name), "{expression:?}: there is no metric {name}");
            named.insert(name.to_owned());
        }
        let count = |c: char| expression.chars().filter(|&found| found == c).count();
        ensure!(count('(') == count(')') && count('{') == count('}') && count('"') % 2 == 0, "{expression:?}");
    }
    // All of Typha's metrics are shown, and the manual explains all metrics.
    let unseen = |name: &&String| name.starts_with("typha_") && !named.contains(*name);
    ensure!(served.iter().find(unseen).is_none(), "no panel and no alert shows {:?}", served.iter().find(unseen));
    let manual = read("docs/operations.md")?;
    for name in served.iter().filter(|name| !name.starts_with("process_")) {
        ensure!(manual.contains(name.as_str()), "the manual does not explain {name}");
    }
    Ok(())
}

/// The page of `runbook_url`, as in the chart's default and in all alerts.
fn runbooks() -> anyhow::Result<String> {
    let values: Value = serde_saphyr::from_str(&read("deploy/helm/bulrush/values.yaml")?)?;
    let page = values["metrics"]["prometheusRule"]["runbookURL"].as_str().context("runbookURL")?;
    ensure!(page.ends_with("/docs/operations.md"), "{page} is not the manual");
    Ok(page.to_owned())
}

/// Every alert leads to its section of the manual, and every such section belongs to an alert.
#[test]
fn alerts_lead_to_their_sections() -> anyhow::Result<()> {
    let (alerts, manual, page) = (alerts()?, read("docs/operations.md")?, runbooks()?);
    let mut sections: BTreeSet<&str> = manual
        .lines()
        .filter_map(|line| line.strip_prefix("#### "))
        .filter(|name| name.starts_with("Bulrush"))
        .collect();
    for rule in rules(&alerts) {
        let name = rule["alert"].as_str().context("a name")?;
        ensure!(sections.remove(name), "the manual has no section {name}");
        let link = &rule["annotations"]["runbook_url"];
        ensure!(*link == format!("{page}#{}", name.to_lowercase()), "{name}: {link}");
        let section = manual.split_once(&format!("#### {name}\n\n")).map(|(_, rest)| rest).context("a section")?;
        let severity = rule["labels"]["severity"].as_str().context("a severity")?;
        let told = section.split('.').next().unwrap_or_default().to_lowercase();
        ensure!(told == severity, "{name} is {severity}, and the manual says {told}");
    }
    ensure!(sections.is_empty(), "there are no alerts {sections:?}");
    Ok(())
}

/// The chart's alerts are about its Deployment and lead to its user's pages.
#[test]
fn the_charts_alerts_are_about_its_own_deployment() -> anyhow::Result<()> {
    let values = [
        "metrics.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.prometheusRule.runbookURL=https://pages.example/bulrush",
        "fullnameOverride=proxy",
    ];
    let Some(rendered) = chart("bulrush", "kube-system", &values)? else { return Ok(()) };
    let rule = rendered.of_kind("PrometheusRule").next().context("a PrometheusRule")?;
    let (ours, shipped) = (&rule["spec"], alerts()?);
    for (ours, shipped) in rules(ours).zip(rules(&shipped)) {
        let link = ours["annotations"]["runbook_url"].as_str().context("runbook_url")?;
        ensure!(link.starts_with("https://pages.example/bulrush#bulrush"), "{link}");
        let expr = ours["expr"].as_str().context("expr")?;
        ensure!(!expr.contains("calico-typha"), "{expr}");
        ensure!(ours["alert"] == shipped["alert"], "{ours:#}");
    }
    let missing =
        rules(ours).find(|rule| rule["alert"] == "BulrushReplicasMissing").context("BulrushReplicasMissing")?;
    ensure!(
        missing["expr"].as_str().is_some_and(|expr| expr.matches("deployment=~\"proxy\"").count() == 2),
        "{missing:#}"
    );
    ensure!(rules(ours).count() == rules(&shipped).count());
    Ok(())
}

/// Close reasons in an expression exist; the manual names them all.
#[test]
fn alerts_are_complete_and_explained() -> anyhow::Result<()> {
    let (alerts, manual) = (alerts()?, read("docs/operations.md")?);
    let mut names = BTreeSet::new();
    for rule in rules(&alerts) {
        let name = rule["alert"].as_str().context("a name")?;
        ensure!(names.insert(name), "{name} is there twice");
        ensure!(rule["labels"]["severity"].is_string(), "{name} has no severity");
        for text in ["summary", "description"] {
            ensure!(rule["annotations"][text].is_string(), "{name} has no {text}");
        }
        let reasons = rule["expr"]
            .as_str()
            .and_then(|expr| expr.split("reason=~\"").nth(1))
            .map(|rest| rest.split('"').next().unwrap_or_default().split('|').collect::<Vec<_>>());
        for reason in reasons.into_iter().flatten() {
            ensure!(CloseReason::LABELS.contains(&reason), "{name}: there is no reason {reason}");
            let critical = rule["labels"]["severity"] == "critical";
            ensure!(
                critical == FOR_GOOD.contains(&reason),
                "{name}: {reason} is critical if it does not pass by itself"
            );
        }
    }
    for reason in CloseReason::LABELS {
        ensure!(manual.contains(&format!("`{reason}`")), "the manual does not know the reason {reason}");
    }
    // A state that lasts is seen as long as it lasts, not only in its first hour.
    let seen = |name: &str| rules(&alerts).any(|rule| rule["expr"].as_str().is_some_and(|expr| expr.contains(name)));
    for gauge in [
        "bulrush_in_sync",
        "bulrush_problems",
        "bulrush_datastore_age_seconds",
        "bulrush_certificate_expiry_timestamp_seconds",
        "bulrush_folder_held",
        "bulrush_folder_errors",
    ] {
        ensure!(seen(gauge), "no alert looks at {gauge}");
    }
    Ok(())
}

/// Helm reads only files of its chart, kustomize only files below its folder, so there are copies.
#[test]
fn copies_are_the_same() -> anyhow::Result<()> {
    ensure!(read(ALERTS)? == read("deploy/helm/bulrush/files/alerts.yaml")?, "copy {ALERTS} to the chart");
    ensure!(read(DASHBOARD)? == read("deploy/helm/bulrush/files/bulrush.json")?, "copy {DASHBOARD} to the chart");
    let rule: Value = serde_saphyr::from_str(&read("deploy/prometheus/prometheusrule.yaml")?)?;
    ensure!(rule["spec"] == alerts()?, "prometheusrule.yaml has other alerts than alerts.yaml");
    Ok(())
}
