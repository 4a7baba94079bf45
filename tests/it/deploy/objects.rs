//! Rendered objects fit together: every name that one of them uses exists.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::render::Rendered;

/// Kinds without a namespace.
const CLUSTER_KINDS: [&str; 2] = ["ClusterRole", "ClusterRoleBinding"];
/// Objects made by others: certificates of the operator and of the chart's user, and the optional address of the API server.
const FOREIGN: [&str; 5] = ["tigera-ca-bundle", "typha-certs", "typha-ca", "ca", "kubernetes-services-endpoint"];

pub(super) fn check(rendered: &Rendered) -> anyhow::Result<()> {
    identities(rendered)?;
    let deployment = rendered.deployment()?;
    pod(rendered, deployment)?;
    placement(&deployment["spec"]["template"]["spec"])?;
    scaling(rendered, deployment)?;
    selectors(rendered, &deployment["spec"]["template"])?;
    bindings(rendered, deployment)
}

fn text<'a>(value: &'a Value, what: &str) -> anyhow::Result<&'a str> {
    value.as_str().filter(|text| !text.is_empty()).with_context(|| format!("{what} is {value}"))
}

/// Every object has a kind, a name and a version, and is there once; all are in one namespace.
fn identities(rendered: &Rendered) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for object in &rendered.objects {
        let kind = text(&object["kind"], "kind")?;
        let name = text(&object["metadata"]["name"], "metadata.name")?;
        text(&object["apiVersion"], "apiVersion")?;
        let namespace = object["metadata"]["namespace"].as_str();
        ensure!(namespace.is_none() == CLUSTER_KINDS.contains(&kind), "{kind} {name} is in {namespace:?}");
        ensure!(seen.insert((kind, namespace, name)), "{kind} {name} is there twice");
    }
    let namespaces: BTreeSet<&str> =
        rendered.objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    ensure!(namespaces.len() == 1, "all in one namespace: {namespaces:?}");
    Ok(())
}

fn pod(rendered: &Rendered, deployment: &Value) -> anyhow::Result<()> {
    let spec = &deployment["spec"]["template"]["spec"];
    let containers = spec["containers"].as_array().context("containers")?;
    ensure!(containers.len() == 1, "one container");
    let container = &containers[0];
    ensure!(container["command"] == serde_json::json!(["/usr/bin/bulrush"]));
    ensure!(spec["securityContext"]["runAsNonRoot"] == true && spec["securityContext"]["runAsUser"] == 10_001);
    ensure!(spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
    let security = &container["securityContext"];
    ensure!(security["readOnlyRootFilesystem"] == true && security["allowPrivilegeEscalation"] == false);
    ensure!(security["capabilities"]["drop"] == serde_json::json!(["ALL"]));
    ensure!(container["resources"]["requests"]["memory"].is_string());

    let mut variables = BTreeSet::new();
    for variable in container["env"].as_array().into_iter().flatten() {
        let name = text(&variable["name"], "a variable's name")?;
        ensure!(variables.insert(name), "{name} is given twice");
        ensure!(variable["value"].is_string() || variable["valueFrom"].is_object(), "{variable}");
    }
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    ensure!(volumes.len() == mounts.len(), "every volume is mounted once");
    for mount in &mounts {
        ensure!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount} has no volume");
        ensure!(mount["readOnly"] == true, "{mount} can be written to");
    }
    for volume in &volumes {
        let (kind, name) = match (&volume["configMap"]["name"], &volume["secret"]["secretName"]) {
            (Value::String(name), _) => ("ConfigMap", name),
            (_, Value::String(name)) => ("Secret", name),
            _ => anyhow::bail!("{volume} is neither ConfigMap nor Secret"),
        };
        let here = rendered.of_kind(kind).any(|object| object["metadata"]["name"] == *name);
        ensure!(here || FOREIGN.contains(&name.as_str()), "there is no {kind} {name}");
    }
    let account = text(&spec["serviceAccountName"], "serviceAccountName")?;
    ensure!(rendered.of_kind("ServiceAccount").any(|object| object["metadata"]["name"] == account));
    Ok(())
}

/// A drained pod does not come back to its cordoned node, taints of nodes without Calico's agents are tolerated, and replicas are
/// spread over nodes and zones, or by the scheduler's own rule.
fn placement(spec: &Value) -> anyhow::Result<()> {
    let tolerations = spec["tolerations"].as_array().context("tolerations")?;
    let tolerated = |key: &str, effect: &str| {
        tolerations.iter().any(|toleration| {
            let fits = |field: &str, wanted: &str| toleration[field].as_str().is_none_or(|text| text == wanted);
            fits("key", key) && fits("effect", effect)
        })
    };
    for (key, effect) in [
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/out-of-service", "NoExecute"),
    ] {
        ensure!(!tolerated(key, effect), "{key} is tolerated as {effect}");
    }
    for (key, effect) in [
        ("node-role.kubernetes.io/control-plane", "NoSchedule"),
        ("node-role.kubernetes.io/etcd", "NoExecute"),
        ("CriticalAddonsOnly", "NoExecute"),
        ("node.kubernetes.io/not-ready", "NoSchedule"),
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
        ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ] {
        ensure!(tolerated(key, effect), "{key} is not tolerated as {effect}");
    }
    let constraints = spec["topologySpreadConstraints"].as_array().into_iter().flatten();
    let keys: BTreeSet<&str> = constraints.filter_map(|constraint| constraint["topologyKey"].as_str()).collect();
    let both = BTreeSet::from(["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    ensure!(keys.is_empty() || keys == both, "any constraint switches the scheduler's own off: {keys:?}");
    Ok(())
}

/// An autoscaler scales our Deployment, and then the Deployment itself sets no number of replicas.
fn scaling(rendered: &Rendered, deployment: &Value) -> anyhow::Result<()> {
    for scaler in rendered.of_kind("HorizontalPodAutoscaler") {
        let target = &scaler["spec"]["scaleTargetRef"];
        ensure!(target["kind"] == "Deployment" && target["name"] == deployment["metadata"]["name"], "{target}");
        ensure!(deployment["spec"]["replicas"].is_null(), "both set the number of replicas");
    }
    Ok(())
}

/// Every selector selects our pods, and the ports named beside it exist.
fn selectors(rendered: &Rendered, template: &Value) -> anyhow::Result<()> {
    let labels = &template["metadata"]["labels"];
    let selects = |selector: &Value| -> bool {
        let wanted = selector.as_object().filter(|wanted| !wanted.is_empty());
        wanted.is_some_and(|wanted| wanted.iter().all(|(name, value)| labels[name] == *value))
    };
    let ports: BTreeSet<&str> = template["spec"]["containers"][0]["ports"]
        .as_array()
        .context("ports")?
        .iter()
        .filter_map(|port| port["name"].as_str())
        .collect();
    for object in &rendered.objects {
        let spec = &object["spec"];
        let (selector, used): (&Value, Vec<&Value>) = match object["kind"].as_str().unwrap_or_default() {
            "Service" => {
                let ports = spec["ports"].as_array().into_iter().flatten();
                (&spec["selector"], ports.map(|port| &port["targetPort"]).collect())
            }
            "PodMonitor" => {
                let endpoints = spec["podMetricsEndpoints"].as_array().into_iter().flatten();
                (&spec["selector"]["matchLabels"], endpoints.map(|endpoint| &endpoint["port"]).collect())
            }
            "Deployment" | "PodDisruptionBudget" => (&spec["selector"]["matchLabels"], Vec::new()),
            "NetworkPolicy" => (&spec["podSelector"]["matchLabels"], Vec::new()),
            "ServiceMonitor" => {
                service_monitor(rendered, spec)?;
                continue;
            }
            _ => continue,
        };
        let name = &object["metadata"]["name"];
        for pod in rendered.of_kind("Pod") {
            let labels = &pod["metadata"]["labels"];
            let found = selector.as_object().into_iter().flatten().all(|(name, value)| labels[name] == *value);
            ensure!(!found, "{} {name} selects the pod of the test", object["kind"]);
        }
        ensure!(selects(selector), "{} {name} does not select the pods: {selector}", object["kind"]);
        for port in used {
            ensure!(port.as_str().is_some_and(|port| ports.contains(port)), "{} {name}: port {port}", object["kind"]);
        }
    }
    for constraint in template["spec"]["topologySpreadConstraints"].as_array().into_iter().flatten() {
        ensure!(selects(&constraint["labelSelector"]["matchLabels"]), "{constraint}");
    }
    Ok(())
}

/// It selects only the Service for metrics, and a port of it.
fn service_monitor(rendered: &Rendered, spec: &Value) -> anyhow::Result<()> {
    let wanted = spec["selector"]["matchLabels"].as_object().context("matchLabels")?;
    let chosen: Vec<&Value> = rendered
        .of_kind("Service")
        .filter(|service| wanted.iter().all(|(name, value)| service["metadata"]["labels"][name] == *value))
        .collect();
    ensure!(chosen.len() == 1, "{wanted:?} selects {} Services", chosen.len());
    ensure!(chosen[0]["spec"]["ports"][0]["name"] == spec["endpoints"][0]["port"]);
    Ok(())
}

/// The role is bound to the pods' account.
fn bindings(rendered: &Rendered, deployment: &Value) -> anyhow::Result<()> {
    let binding = rendered.of_kind("ClusterRoleBinding").next().context("a ClusterRoleBinding")?;
    let role = &binding["roleRef"]["name"];
    ensure!(
        rendered.of_kind("ClusterRole").any(|object| object["metadata"]["name"] == *role),
        "there is no role {role}"
    );
    let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
    let subject = &binding["subjects"][0];
    ensure!(subject["kind"] == "ServiceAccount" && subject["name"] == *account, "{subject}");
    ensure!(subject["namespace"] == deployment["metadata"]["namespace"], "{subject} is in another namespace");
    Ok(())
}
