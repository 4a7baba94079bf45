//! What is in `deploy/`, rendered by the real kustomize and helm: complete, true of the code, and accepted by a real API server.

mod applied;
mod monitoring;
mod objects;
mod options;
mod pod;
mod rbac;
mod render;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Runs a check on everything that can be rendered; says which rendering failed.
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
fn roles_permit_exactly_what_is_asked_for() -> anyhow::Result<()> {
    everywhere(rbac::check)
}

/// The chart's defaults mean what the base means; only names and texts that each tool makes differ.
#[test]
fn the_charts_defaults_are_the_base() -> anyhow::Result<()> {
    let Some(base) = kustomization("deploy/base", &[])? else { return Ok(()) };
    let Some(chart) = chart("bulrush", "kube-system", &[])? else { return Ok(()) };
    let (base, chart) = (comparable(&base)?, comparable(&chart)?);
    similar(&base, &chart)
}

/// Objects without what each tool adds of itself, in a fixed order; of a configuration file, what it means.
fn comparable(rendered: &Rendered) -> anyhow::Result<Vec<Value>> {
    const TOOLS_LABELS: [&str; 4] =
        ["app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "k8s-app"];
    let mut objects = rendered.objects.clone();
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

/// A mistake in the values is refused, and not rendered into something that does not start.
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
        // What ports, probes and mounts follow from is a value of the chart, and the message says which.
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
        (&["env[0].name=TYPHA_HEALTHPORT", "env[0].value=9100"], "health.port"),
        (&["env[0].name=typha_ServerPort", "env[0].value=9100"], "service.targetPort"),
    ] {
        match chart("bulrush", "kube-system", values) {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => anyhow::bail!("{values:?} was accepted"),
            Err(error) => ensure!(format!("{error:#}").contains(said), "{values:?}: {error:#}"),
        }
    }
    Ok(())
}

/// The image's own configuration is enough to start with nothing in the environment.
#[test]
fn the_images_configuration_is_good_in_an_empty_environment() -> anyhow::Result<()> {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bulrush")).args(arguments).env_clear().output()?;
        let out = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "{arguments:?}: {out}\n{}", String::from_utf8_lossy(&output.stderr));
        Ok(out)
    };
    let file = project("deploy/image/typha.cfg").display().to_string();
    let page: Value = serde_json::from_str(&run(&["config", "-o", "json", "-c", &file])?)?;
    ensure!(page["mistakes"] == serde_json::json!([]) && page["warnings"] == serde_json::json!([]), "{page:#}");
    let option = |name: &str| page["options"].as_array().into_iter().flatten().find(|option| option["name"] == name);
    ensure!(option("LogFilePath").is_some_and(|option| option["value"] == ""), "there is no place for a log file");
    ensure!(run(&["version"])?.starts_with("Version: "));
    Ok(())
}

/// What the Dockerfile copies is let through by .dockerignore, and is there.
#[test]
fn the_dockerfile_names_files_that_exist() -> anyhow::Result<()> {
    let (docker, ignore) = (read("Dockerfile")?, read(".dockerignore")?);
    ensure!(docker.contains("deploy/image/typha.cfg") && ignore.contains("!deploy/image"));
    for line in ignore.lines().filter_map(|line| line.strip_prefix('!')) {
        ensure!(project(line).exists(), ".dockerignore names {line}");
    }
    let toolchain = read("rust-toolchain.toml")?;
    let version = docker.lines().find_map(|line| line.strip_prefix("ARG RUST_VERSION=")).context("ARG RUST_VERSION")?;
    ensure!(toolchain.contains(&format!("\"{version}\"")), "the image is built with the project's toolchain");
    // Under the names that Calico's images have for Typha, for Deployments whose image alone was replaced.
    for name in ["calico", "calico-typha"] {
        ensure!(docker.contains(&format!("ln -s bulrush /image/usr/bin/{name} ")), "no {name} in the image");
    }
    // Static, not root, nothing but the binary.
    ensure!(docker.contains("FROM scratch") && docker.contains("USER 10001:10001"));
    ensure!(docker.contains("-unknown-linux-musl"));
    Ok(())
}
