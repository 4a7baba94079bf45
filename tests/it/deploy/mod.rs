//! The manifests of `deploy/`, rendered by the real kustomize and helm: complete, true of the code, and accepted by a real API server.

mod applied;
mod helm_test;
mod image;
mod monitoring;
mod objects;
mod options;
mod pod;
mod rbac;
mod render;
mod sections;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use self::render::{Rendered, chart, kustomization, variants};

/// A file of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(project(path)).with_context(|| format!("read {path}"))
}

/// Runs a check on all renderings; names the rendering that failed.
fn everywhere(check: impl Fn(&Rendered) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for rendered in variants()?.into_iter().flatten() {
        check(&rendered).with_context(|| format!("in {}", rendered.name))?;
    }
    Ok(())
}

#[test]
fn everything_renders_to_whole_objects() -> anyhow::Result<()> {
    everywhere(objects::check)
}

#[test]
fn options_and_variables_are_known_and_agree_with_ports_and_probes() -> anyhow::Result<()> {
    everywhere(options::check)
}

#[test]
fn roles_permit_exactly_the_needed_requests() -> anyhow::Result<()> {
    everywhere(rbac::check)
}

/// The chart's defaults equal the base, except for names and texts that each tool makes.
#[test]
fn the_charts_defaults_are_the_base() -> anyhow::Result<()> {
    let Some(base) = kustomization("deploy/base", &[])? else { return Ok(()) };
    let Some(chart) = chart("bulrush", "kube-system", &["image.repository=bulrush"])? else { return Ok(()) };
    let (base, chart) = (comparable(&base)?, comparable(&chart)?);
    similar(&base, &chart)
}

/// Objects without the additions of each tool, in a fixed order; configuration files as their meaning.
fn comparable(rendered: &Rendered) -> anyhow::Result<Vec<Value>> {
    const TOOLS_LABELS: [&str; 4] =
        ["app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "k8s-app"];
    let mut objects = rendered.objects.clone();
    // The pod for `helm test` is not installed.
    objects.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    for object in &mut objects {
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels.retain(|name, _| !TOOLS_LABELS.contains(&name.as_str()));
        }
        match object["kind"].as_str() {
            // The name may end with a digest of the content.
            Some("ConfigMap") => {
                object["metadata"]["name"] = "bulrush-config".into();
                let text = object["data"]["typha.cfg"].as_str().context("a typha.cfg")?;
                let mut settings: Vec<String> =
                    text.lines().filter(|line| line.contains(" = ")).map(str::to_lowercase).collect();
                settings.sort();
                object["data"]["typha.cfg"] = settings.into();
            }
            Some("Deployment") => {
                let template = &mut object["spec"]["template"];
                if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
                    annotations.remove("checksum/config");
                }
                template["spec"]["volumes"][0]["configMap"]["name"] = "bulrush-config".into();
            }
            _ => {}
        }
    }
    objects.sort_by_key(|object| format!("{}/{}", object["kind"], object["metadata"]["name"]));
    Ok(objects)
}

fn similar(base: &[Value], chart: &[Value]) -> anyhow::Result<()> {
    let kinds = |objects: &[Value]| objects.iter().map(|object| object["kind"].clone()).collect::<Vec<_>>();
    ensure!(kinds(base) == kinds(chart), "kinds differ: {:?} and {:?}", kinds(base), kinds(chart));
    for (base, chart) in base.iter().zip(chart) {
        ensure!(base == chart, "the base has\n{base:#}\nand the chart\n{chart:#}");
    }
    Ok(())
}

/// Metrics open a port of the node that everybody can read: as in Calico they are off unless asked for. (Without the port
/// the option is off, too: see `options`.)
#[test]
fn metrics_are_off_unless_asked_for() -> anyhow::Result<()> {
    let asked = ["deploy/components/metrics"];
    for (rendered, on) in [
        (kustomization("deploy/base", &[])?, false),
        (kustomization("deploy/overlays/calico-manifest", &[])?, false),
        (kustomization("deploy/overlays/operator-tls", &[])?, false),
        (kustomization("deploy/base", &asked)?, true),
        (chart("bulrush", "kube-system", &[])?, false),
        (chart("bulrush", "kube-system", &["metrics.enabled=true"])?, true),
    ] {
        let Some(rendered) = rendered else { return Ok(()) };
        let ports = &rendered.deployment()?["spec"]["template"]["spec"]["containers"][0]["ports"];
        let served = ports.as_array().into_iter().flatten().any(|port| port["name"] == "metrics");
        ensure!(served == on, "{}: metrics are {}", rendered.name, if served { "on" } else { "off" });
    }
    Ok(())
}

/// The number of replicas is left out if an autoscaler or the operator sets it, and only then.
#[test]
fn replicas_are_left_out_only_if_others_set_them() -> anyhow::Result<()> {
    let elsewhere = ["deploy/components/scaled-elsewhere"];
    for (rendered, ours) in [
        (kustomization("deploy/base", &[])?, true),
        (kustomization("deploy/overlays/calico-manifest", &[])?, true),
        (kustomization("deploy/base", &elsewhere)?, false),
        (kustomization("deploy/overlays/calico-manifest", &elsewhere)?, false),
        (kustomization("deploy/overlays/operator-tls", &[])?, false),
        // Adding the component twice does no harm.
        (kustomization("deploy/overlays/operator-tls", &elsewhere)?, false),
        (chart("bulrush", "kube-system", &[])?, true),
        (chart("bulrush", "kube-system", &["autoscaling.enabled=true"])?, false),
    ] {
        let Some(rendered) = rendered else { return Ok(()) };
        ensure!(rendered.deployment()?["spec"]["replicas"].is_null() != ours, "{}", rendered.name);
        ensure!(
            rendered.of_kind("HorizontalPodAutoscaler").count() == usize::from(rendered.name.contains("autoscaling"))
        );
    }
    Ok(())
}

/// Mistakes in the values are refused instead of rendered into a Deployment that does not start.
#[test]
fn the_chart_refuses_values_that_cannot_work() -> anyhow::Result<()> {
    for (values, said) in [
        (&["replcas=3"][..], "replcas"),
        (&["tls.enabled=true", "tls.clientCN="], "clientCN"),
        (&["metrics.port=70000"], "port"),
        (&["terminationGracePeriodSeconds=10"], "terminationGracePeriodSeconds"),
        (&["config.Log File=x"], "config"),
        (&["networkPolicy.enabled=true", "networkPolicy.apiServerPorts=null"], "apiServerPorts"),
        (&["networkPolicy.apiServerPorts=[]"], "apiServerPorts"),
        // Ports, probes and mounts follow from a value of the chart, which the message names.
        (&["config.ServerPort=6000"], "service.targetPort"),
        (&["config.serverport=6000"], "service.targetPort"),
        (&["config.HealthPort=9100"], "health.port"),
        (&["config.HealthEnabled=false"], "HealthEnabled"),
        (&["config.HealthHost=10.0.0.1"], "hostNetwork"),
        (&["config.PrometheusMetricsPort=9100"], "metrics.port"),
        (&["config.PrometheusMetricsEnabled=false"], "metrics.enabled"),
        (&["config.LogFilePath=/var/log/typha.log"], "LogFilePath"),
        (&["config.ServerCertFile=/x"], "tls.secretName"),
        (&["config.CAFile=/x"], "tls.caConfigMap"),
        (&["extraEnv[0].name=TYPHA_HEALTHPORT", "extraEnv[0].value=9100"], "health.port"),
        (&["extraEnv[0].name=typha_ServerPort", "extraEnv[0].value=9100"], "service.targetPort"),
        (&["config.PrometheusMetricsHost=10.0.0.1"], "metrics.host"),
        (&["livenessProbe.httpGet.port=1"], "livenessProbe"),
        (&["datastores.Git.Type=file"], "Git"),
        (&["syncers.mesh.On Invalid=keep"], "On Invalid"),
        (&["syncers.mesh=x"], "syncers"),
        // No image is published: the message says how to build one.
        (&["image.repository="], "docker build"),
        (&["metrics.podMonitor.enabled=true"], "metrics.enabled"),
        (&["metrics.serviceMonitor.enabled=true"], "metrics.enabled"),
        (&["metrics.prometheusRule.enabled=true"], "metrics.enabled"),
        (&["autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=null"], "nothing to scale by"),
        (&["autoscaling.enabled=true", "autoscaling.maxReplicas=2"], "minReplicas"),
        (&["podDisruptionBudget.unhealthyPodEvictionPolicy=Always"], "unhealthyPodEvictionPolicy"),
    ] {
        match chart("bulrush", "kube-system", values) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => anyhow::bail!("{values:?} was accepted"),
            Err(error) => ensure!(format!("{error:#}").contains(said), "{values:?}: {error:#}"),
        }
    }
    Ok(())
}
