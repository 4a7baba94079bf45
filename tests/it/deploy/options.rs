//! Options and variables in rendered pods are known and good, and agree with the ports and probes beside them.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::pod::Pod;
use super::render::Rendered;

/// Variables that are not options: Calico's generic variables that Bulrush reads.
const PLAIN_VARIABLES: [&str; 3] = ["USE_POD_CIDR", "FELIX_INTERFACEPREFIX", "CALICO_API_GROUP"];

pub(super) fn check(rendered: &Rendered) -> anyhow::Result<()> {
    let pod = Pod::new(rendered, &BTreeMap::new())?;
    for name in pod.variables.keys() {
        ensure!(name.starts_with("TYPHA_") || PLAIN_VARIABLES.contains(&name.as_str()), "Bulrush does not read {name}");
    }
    let page = pod.config()?;
    ensure!(page["mistakes"] == json!([]), "{:#}", page["mistakes"]);
    // An unknown option would be a warning.
    ensure!(page["warnings"] == json!([]), "{:#}", page["warnings"]);
    let option = |name: &str| -> anyhow::Result<&Value> {
        let mut options = page["options"].as_array().into_iter().flatten();
        Ok(&options.find(|option| option["name"] == name).with_context(|| format!("an option {name}"))?["value"])
    };

    let deployment = rendered.deployment()?;
    let spec = &deployment["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let port = |name: &str| {
        let mut ports = container["ports"].as_array().into_iter().flatten();
        ports.find(|port| port["name"] == name).map(|port| port["containerPort"].clone())
    };
    ensure!(option("DatastoreType")? == "kubernetes");
    ensure!(option("LogFilePath")? == "", "the root file system cannot be written to");
    ensure!(option("HealthEnabled")? == true);
    let metrics = port("metrics");
    ensure!(
        *option("PrometheusMetricsEnabled")? == json!(metrics.is_some()),
        "metrics are served where there is a port"
    );
    if let Some(metrics) = metrics {
        ensure!(*option("PrometheusMetricsPort")? == metrics);
    }
    for (probe, path) in [("livenessProbe", "/liveness"), ("readinessProbe", "/readiness")] {
        let get = &container[probe]["httpGet"];
        ensure!(get["path"] == path && get["port"] == *option("HealthPort")?, "{probe} asks {get}");
        let host_network = spec["hostNetwork"] == true;
        // On the pod network the kubelet asks at the pod's address.
        let (host, listens) = if host_network { ("localhost", "localhost") } else { ("", "") };
        ensure!(get["host"].as_str().unwrap_or("") == host && option("HealthHost")? == listens, "{probe} asks {get}");
    }

    // Rebalancing counts the endpoints of the Service that agents use.
    ensure!(option("ConnectionRebalancingMode")? == "kubernetes");
    let service = rendered
        .of_kind("Service")
        .find(|service| service["metadata"]["name"] == *option("K8sServiceName").unwrap_or(&Value::Null))
        .context("a Service of the configured name")?;
    ensure!(service["metadata"]["namespace"] == *option("K8sNamespace")?);
    let served = &service["spec"]["ports"][0];
    ensure!(served["name"] == *option("K8sPortName")?);
    let target = served["targetPort"].as_str().context("targetPort")?;
    ensure!(port(target).as_ref() == Some(option("ServerPort")?), "the Service leads to the server's port");

    for policy in rendered.of_kind("NetworkPolicy") {
        let rules = |direction: &str| policy["spec"][direction].as_array().cloned().unwrap_or_default();
        let ports: Vec<Value> =
            rules("ingress").iter().filter_map(|rule| rule["ports"].as_array().cloned()).flatten().collect();
        let lets_in = |wanted: &Value| ports.iter().any(|port| port["port"] == *wanted);
        ensure!(lets_in(option("ServerPort")?) && lets_in(option("HealthPort")?), "{policy:#}");
        for rule in rules("ingress").iter().chain(&rules("egress")) {
            ensure!(rule["ports"].as_array().is_some_and(|ports| !ports.is_empty()), "everything is permitted: {rule}");
        }
    }

    let grace = spec["terminationGracePeriodSeconds"].as_f64().context("terminationGracePeriodSeconds")?;
    ensure!(option("ShutdownTimeoutSecs")?.as_f64().is_some_and(|shutdown| shutdown <= grace));
    let deadline = deployment["spec"]["progressDeadlineSeconds"].as_f64().context("progressDeadlineSeconds")?;
    ensure!(deadline >= 1.2 * grace, "old pods take {grace} s to end, a rollout may take {deadline} s");
    Ok(())
}
