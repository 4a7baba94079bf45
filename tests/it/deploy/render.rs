//! Runs kustomize and helm and reads their output.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::project;
use crate::need::{Program, need};

/// A Kubernetes version that the chart accepts; helm cannot ask a cluster here.
const KUBE_VERSION: &str = "1.30.0";

/// Components that watch Bulrush.
const MONITORING: [&str; 5] = [
    "deploy/components/metrics",
    "deploy/components/podmonitor",
    "deploy/components/servicemonitor",
    "deploy/prometheus",
    "deploy/grafana",
];
/// Components for a cluster where Calico does not do the network.
const POD_NETWORK: [&str; 3] =
    ["deploy/components/pod-network", "deploy/components/networkpolicy", "deploy/components/pod-cidr"];
/// Values that switch everything on.
const ALL_ON: [&str; 8] = [
    "metrics.enabled=true",
    "autoscaling.enabled=true",
    "startupProbe.failureThreshold=30",
    "metrics.podMonitor.enabled=true",
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.grafanaDashboard.enabled=true",
    "networkPolicy.enabled=true",
];
/// Values for mutual TLS.
const TLS: [&str; 3] =
    ["tls.enabled=true", "tls.clientURISAN=spiffe://cluster/agents", "test.tls.secretName=node-certs"];
/// Values that change ports, network and options.
const OTHERS: [&str; 20] = [
    "podDisruptionBudget.unhealthyPodEvictionPolicy=",
    "hostNetwork=false",
    "metrics.enabled=true",
    "metrics.host=10.0.0.1",
    "service.annotations.a=b",
    "updateStrategy.rollingUpdate.maxUnavailable=0",
    "livenessProbe.failureThreshold=5",
    "topologySpreadConstraints=[]",
    "extraEnv=[{\"name\": \"TYPHA_DEBUGPORT\", \"value\": \"6060\"}]",
    "extraEnvFrom=[{\"configMapRef\": {\"name\": \"proxy\", \"optional\": true}}]",
    "extraVolumes=[{\"name\": \"extra\", \"configMap\": {\"name\": \"ca\"}}]",
    "extraVolumeMounts=[{\"name\": \"extra\", \"mountPath\": \"/etc/extra\", \"readOnly\": true}]",
    "health.port=9198",
    "metrics.port=9193",
    "service.targetPort=6473",
    "usePodCIDR=true",
    "interfacePrefix=eni",
    "calicoAPIGroup=projectcalico.org/v3",
    "config.ServerMaxLagBytes=33554432",
    "terminationGracePeriodSeconds=900",
];
/// Values for kinds that are not Calico's, without Calico's.
pub(super) const SECTIONS: [&str; 7] = [
    "config.CalicoSyncers=none",
    "datastores={\"git\": {\"Type\": \"file\", \"Path\": \"/etc/mesh/git\"}, \"cluster\": {\"Type\": \"kubernetes\", \"Required\": false}}",
    "syncers.mesh={\"Sources\": [\"git\", \"cluster\"], \"Kinds\": [\"networking.istio.io/*\", \"v1/ConfigMap\"], \"Selector\": \"app in (web,shop)\"}",
    "syncers.other={\"Sources\": \"git\", \"Kinds\": \"v1/Secret\", \"Folder\": \"a;b\", \"MaxDelaySecs\": 100000000, \"QuietSecs\": 0.25}",
    "rbac.extraRules=[{\"apiGroups\": [\"networking.istio.io\"], \"resources\": [\"*\"], \"verbs\": [\"list\", \"watch\"]}]",
    "extraVolumes=[{\"name\": \"mesh\", \"configMap\": {\"name\": \"ca\"}}]",
    "extraVolumeMounts=[{\"name\": \"mesh\", \"mountPath\": \"/etc/mesh\", \"readOnly\": true}]",
];
/// Values that leave out all optional parts, under Typha's name.
const PLAIN: [&str; 5] = [
    "test.enabled=false",
    "podDisruptionBudget.enabled=false",
    "fullnameOverride=calico-typha",
    "tls.enabled=true",
    "tls.caSecret=ca",
];

/// Objects as a tool printed them.
#[derive(Clone, Debug)]
pub(super) struct Rendered {
    /// The name of the rendering.
    pub(super) name: String,
    pub(super) objects: Vec<Value>,
}

impl Rendered {
    /// All objects of a kind.
    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The only Deployment.
    pub(super) fn deployment(&self) -> anyhow::Result<&Value> {
        let mut found = self.of_kind("Deployment");
        match (found.next(), found.next()) {
            (Some(deployment), None) => Ok(deployment),
            _ => bail!("{} has not exactly one Deployment", self.name),
        }
    }
}

/// Renderings of everything that is shipped, in each sensible combination. `None`: a tool is left out, the test returns.
pub(super) fn variants() -> anyhow::Result<Option<Vec<Rendered>>> {
    let mut all = Vec::new();
    for folder in ["deploy/base", "deploy/overlays/calico-manifest", "deploy/overlays/operator-tls"] {
        let everything: Vec<&str> = MONITORING.iter().chain(&POD_NETWORK).copied().collect();
        for components in [&[][..], &MONITORING[..1], &MONITORING, &POD_NETWORK, &everything] {
            let Some(rendered) = kustomization(folder, components)? else { return Ok(None) };
            all.push(rendered);
        }
    }
    let together: Vec<&str> = ALL_ON.iter().chain(&TLS).chain(&OTHERS).copied().collect();
    let charts = [&[][..], &ALL_ON, &TLS, &OTHERS, &PLAIN, &together].map(|values| ("bulrush", "kube-system", values));
    for (release, namespace, values) in charts.into_iter().chain([("proxy", "calico-helm", &TLS[..])]) {
        let Some(rendered) = chart(release, namespace, values)? else { return Ok(None) };
        all.push(rendered);
    }
    Ok(Some(all))
}

/// Builds a folder with components added, as a user's own kustomization would. `None`: kustomize is left out, the test returns.
pub(super) fn kustomization(folder: &str, components: &[&str]) -> anyhow::Result<Option<Rendered>> {
    let Some(kustomize) = need(Program::Kustomize) else { return Ok(None) };
    // Kustomize accepts only relative paths to local folders, so the user's folder is beside.
    let beside = project("target");
    // The folder is missing if builds go elsewhere.
    fs::create_dir_all(&beside)?;
    let own = tempfile::Builder::new().prefix("kustomization-").tempdir_in(beside)?;
    let relative = |path: &str| format!("../../{path}");
    let mut text = String::from("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n");
    text += &format!("resources:\n  - {}\n", relative(folder));
    if !components.is_empty() {
        text += "components:\n";
        for component in components {
            text += &format!("  - {}\n", relative(component));
        }
    }
    fs::write(own.path().join("kustomization.yaml"), text)?;
    let name = if components.is_empty() { folder.to_owned() } else { format!("{folder} with {components:?}") };
    render(name, Command::new(kustomize).arg("build").arg(own.path())).map(Some)
}

/// Renders the chart with values as `--set` takes them, and an image unless they name one. `None`: helm is left out, the test returns.
pub(super) fn chart(release: &str, namespace: &str, values: &[&str]) -> anyhow::Result<Option<Rendered>> {
    let Some(helm) = need(Program::Helm) else { return Ok(None) };
    let mut command = Command::new(helm);
    command.args(["template", release]).arg(project("deploy/helm/bulrush"));
    command.args(["--namespace", namespace, "--kube-version", KUBE_VERSION]);
    for value in [&["image.repository=registry.example/bulrush"][..], values].concat() {
        // A list may be empty only as JSON.
        let is_json = value.contains("=[") || value.contains("={");
        command.args([if is_json { "--set-json" } else { "--set" }, value]);
    }
    render(format!("the chart with {values:?}"), &mut command).map(Some)
}

fn render(name: String, command: &mut Command) -> anyhow::Result<Rendered> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let mut objects: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{name} prints YAML:\n{text}"))?;
    objects.retain(|object| !object.is_null());
    Ok(Rendered { name, objects })
}
