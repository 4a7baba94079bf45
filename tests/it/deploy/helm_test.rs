//! The pod of `helm test`: its question is put to a real daemon.

use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::applied::Certificates;
use super::render::{Rendered, chart};
use crate::daemon::Daemon;

/// The arguments of the pod's only container.
fn arguments(rendered: &Rendered) -> anyhow::Result<Vec<String>> {
    let pod = rendered.of_kind("Pod").next().context("a pod")?;
    ensure!(pod["metadata"]["annotations"]["helm.sh/hook"] == "test", "{pod:#}");
    let container = &pod["spec"]["containers"][0];
    ensure!(container["command"] == serde_json::json!(["/usr/bin/bulrush"]), "{container:#}");
    let texts = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(texts.map(str::to_owned).collect())
}

/// Asks this server as the pod would, with the agent's files of this folder.
fn ask(arguments: &[String], server: &str, files: &str) -> anyhow::Result<Output> {
    let here = |argument: &String| match argument.strip_prefix("--server=") {
        Some(_) => format!("--server={server}"),
        None => argument.replace("/etc/bulrush/agent/", files),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_bulrush"));
    Ok(command.args(arguments.iter().map(here)).env_clear().output()?)
}

/// It asks the Service of the chart, and succeeds if a replica in sync answers; otherwise it fails.
#[test]
fn the_pod_of_helm_test_asks_as_an_agent_would() -> anyhow::Result<()> {
    let certificates = Certificates::new()?;
    let agents = format!("{}/", certificates.agents.path().display());
    for tls in [false, true] {
        let mut values = vec!["fullnameOverride=proxy", "service.port=5999", "test.timeoutSeconds=20"];
        if tls {
            values.extend(["tls.enabled=true", "test.tls.secretName=node-certs"]);
        }
        let Some(rendered) = chart("bulrush", "calico-helm", &values)? else { return Ok(()) };
        let arguments = arguments(&rendered)?;
        ensure!(arguments.contains(&"--server=proxy.calico-helm.svc:5999".to_owned()), "{arguments:?}");

        let folder = TempDir::new()?;
        std::fs::write(folder.path().join("none.yaml"), "# nothing\n")?;
        let path = folder.path().display().to_string();
        let mut options = vec![("DatastoreType", "file".to_owned()), ("DatastorePath", path)];
        if tls {
            for (option, mounted) in [
                ("ServerKeyFile", "/typha-certs/tls.key"),
                ("ServerCertFile", "/typha-certs/tls.crt"),
                ("CAFile", "/etc/pki/tls/certs/tigera-ca-bundle.crt"),
            ] {
                let file = certificates.agents.path().join(option);
                std::fs::write(&file, &certificates.mounted[mounted])?;
                options.push((option, file.display().to_string()));
            }
            options.push(("ClientCN", "typha-client".to_owned()));
        }
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, &**value)).collect();
        let logs = TempDir::new()?;
        let daemon = Daemon::start(logs.path(), &options)?;
        daemon.wait_ready()?;
        let answered = ask(&arguments, &daemon.sync.to_string(), &agents)?;
        ensure!(answered.status.success(), "{}\n{}", String::from_utf8_lossy(&answered.stderr), daemon.log());
        drop(daemon);

        let hurried: Vec<String> =
            arguments.iter().map(|argument| argument.replace("--timeout=20", "--timeout=1")).collect();
        let nobody = ask(&hurried, "127.0.0.1:1", &agents)?;
        ensure!(nobody.status.code() == Some(1), "no server is there, and it ends with {}", nobody.status);
    }
    Ok(())
}

/// With TLS and without an agent's certificate the test could only fail, so there is none.
#[test]
fn there_is_no_test_with_tls_without_an_agents_certificate() -> anyhow::Result<()> {
    for (values, pods) in [
        (&[][..], 1),
        (&["tls.enabled=true"], 0),
        (&["tls.enabled=true", "test.tls.secretName=node-certs"], 1),
        (&["test.enabled=false"], 0),
    ] {
        let Some(rendered) = chart("bulrush", "kube-system", values)? else { return Ok(()) };
        ensure!(rendered.of_kind("Pod").count() == pods, "{values:?}");
    }
    Ok(())
}
