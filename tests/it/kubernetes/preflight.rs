//! `bulrush preflight` against a real API server: a fit cluster, each obstacle with its remedy, and the comparison with a
//! running server. Deployment, Service and pods are written as Calico's manifest and the kubelet write them.

use std::path::Path;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bulrush::calico::kinds as k;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::population::SMALL;
use super::{USER, allow, populated, role, start_daemon};
use crate::apiserver::ApiServer;
use crate::apiserver::crds::CrdGroup;
use crate::apiserver::rest::Rest;
use crate::real_etcd::issue_certificates;

const GROUP: CrdGroup = CrdGroup::V1;
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/calico-typha";
const ENV: &str = "/spec/template/spec/containers/0/env/-";

/// The outcome of a run of the command.
struct Run {
    status: i32,
    document: Value,
}

impl Run {
    /// The findings of a topic with this verdict.
    fn findings(&self, topic: &str, verdict: &str) -> Vec<&Value> {
        let findings = self.document["findings"].as_array().into_iter().flatten();
        findings.filter(|finding| finding["topic"] == topic && finding["verdict"] == verdict).collect()
    }

    /// Checks that there is one obstacle, of this topic, with these words in its text; returns its remedy.
    fn only_obstacle(&self, topic: &str, words: &str) -> anyhow::Result<&str> {
        let all = self.document["findings"].as_array().into_iter().flatten();
        let obstacles: Vec<&Value> = all.filter(|finding| finding["verdict"] == "obstacle").collect();
        let [obstacle] = obstacles[..] else { anyhow::bail!("one obstacle is expected: {:#}", self.document) };
        ensure!(
            obstacle["topic"] == topic && obstacle["text"].as_str().is_some_and(|text| text.contains(words)),
            "{words}: {obstacle:#}"
        );
        ensure!(self.status == 1, "exit status {}", self.status);
        Ok(obstacle["remedy"].as_str().unwrap_or_default())
    }
}

async fn preflight(kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<Run> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bulrush"));
    command.args(["preflight", "--output", "json", "--config-file", "no-such-file.cfg"]).args(arguments);
    command.env("KUBECONFIG", kubeconfig).env("TYPHA_DATASTORETYPE", "kubernetes");
    let output = command.output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let document = serde_json::from_slice(&output.stdout).with_context(|| format!("the output is JSON; {stderr}"))?;
    Ok(Run { status: output.status.code().context("it ends by itself")?, document })
}

/// Installs Typha as Calico's manifest does, gives its account our role, and adds three agents.
async fn install(server: &ApiServer) -> anyhow::Result<()> {
    let rest = server.rest();
    let subject = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "kube-system"});
    role::grant_to(&rest, "calico-node", &subject, &role::rules()?).await?;
    let information = json!({
        "apiVersion": GROUP.api_version(), "kind": "ClusterInformation", "metadata": {"name": "default"},
        "spec": {"calicoVersion": "v3.31.7", "datastoreReady": true},
    });
    rest.apply(&format!("{}/default", GROUP.collection(&k::CLUSTER_INFORMATION, "")), &information).await?;
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": 9098, "host": "localhost"}});
    let labels = json!({"k8s-app": "calico-typha"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "calico-typha", "namespace": "kube-system", "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": "calico-node", "hostNetwork": true,
                "containers": [{
                    "name": "calico-typha", "image": "docker.io/calico/typha:v3.31.7",
                    "ports": [{"containerPort": 5473, "name": "calico-typha"}],
                    "envFrom": [{"configMapRef": {"name": "kubernetes-services-endpoint", "optional": true}}],
                    "env": [
                        {"name": "TYPHA_DATASTORETYPE", "value": "kubernetes"},
                        {"name": "TYPHA_HEALTHENABLED", "value": "true"},
                        {"name": "TYPHA_CONNECTIONREBALANCINGMODE", "value": "kubernetes"},
                    ],
                    "livenessProbe": probe("/liveness"), "readinessProbe": probe("/readiness"),
                }],
            }},
        },
    });
    rest.create("/apis/apps/v1/namespaces/kube-system/deployments", &deployment).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "calico-typha", "namespace": "kube-system"},
        "spec": {"ports": [{"port": 5473, "targetPort": "calico-typha", "name": "calico-typha"}], "selector": labels},
    });
    rest.create("/api/v1/namespaces/kube-system/services", &service).await?;
    agent(&rest, "calico-node-a", "v3.31.7").await
}

async fn agent(rest: &Rest, name: &str, version: &str) -> anyhow::Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"k8s-app": "calico-node"}},
        "spec": {"nodeName": "node-0", "containers": [{"name": "calico-node", "image": format!("quay.io/calico/node:{version}")}]},
    });
    rest.create("/api/v1/namespaces/kube-system/pods", &pod).await.map(drop)
}

/// Changes the Deployment, runs the command, and changes it back.
async fn changed(rest: &Rest, admin: &Path, operations: Value) -> anyhow::Result<Run> {
    let before = rest.get(DEPLOYMENT).await?;
    rest.patch_by(DEPLOYMENT, &operations).await?;
    let run = preflight(admin, &[]).await;
    let mut before = before;
    if let Some(metadata) = before["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    rest.replace(DEPLOYMENT, &before).await?;
    run
}

fn variable(name: &str, value: &str) -> Value {
    json!({"op": "add", "path": ENV, "value": {"name": name, "value": value}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_looked_over_and_every_obstacle_can_be_removed() -> anyhow::Result<()> {
    let Some(mut server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    let rest = server.rest();
    let admin = server.kubeconfig("admin");

    // Without Typha.
    let run = preflight(&admin, &[]).await?;
    run.only_obstacle("calico", "ClusterInformation")?;
    ensure!(run.document["facts"]["install"] == "none", "{:#}", run.document);

    install(&server).await?;
    let run = preflight(&admin, &[]).await?;
    ensure!(run.status == 0, "{:#}", run.document);
    let facts = &run.document["facts"];
    let expected = [
        ("release", json!("v3.31")),
        ("install", json!("manifest")),
        ("typha", json!("kube-system/calico-typha")),
        ("agent_versions", json!({"v3.31.7": 1})),
        ("nodes", json!(SMALL.nodes)),
        ("rights_missing", json!([])),
        ("tls", json!(false)),
    ];
    for (name, value) in expected {
        ensure!(facts[name] == value, "{name}: {facts:#}");
    }
    ensure!(facts["objects"]["pods"] == json!(SMALL.pods + 1), "the agent's pod is one more: {facts:#}");

    settings(&rest, &admin).await?;
    with_etcd(&server, &admin).await?;
    certificates(&rest, &admin).await?;
    agents(&rest, &admin).await?;
    rights(&rest, &admin).await?;

    // A plain user may read almost nothing.
    let run = preflight(&server.kubeconfig("bulrush"), &[]).await?;
    run.only_obstacle("rights", "this account may not list, watch")?;
    for topic in ["calico", "install", "agents"] {
        ensure!(run.findings(topic, "unknown").len() == 1, "{topic}: {:#}", run.document);
    }
    // Without the API server.
    server.kill();
    let run = preflight(&admin, &[]).await?;
    ensure!(run.status == 2 && !run.findings("kubernetes", "unknown").is_empty(), "{:#}", run.document);
    Ok(())
}

/// Checks options, ports, probes, owner and memory.
async fn settings(rest: &Rest, admin: &Path) -> anyhow::Result<()> {
    let limit = json!([{"op": "add", "path": "/spec/template/spec/containers/0/resources", "value": {"limits": {"memory": "8Mi"}}}]);
    let owner = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [
        {"apiVersion": "operator.tigera.io/v1", "kind": "Installation", "name": "default", "uid": "11111111-2222-4333-8444-555555555555"},
    ]}]);
    for (operations, topic, words, remedy) in [
        (
            json!([variable("TYPHA_MAXCONNECTIONSUPPERLIMIT", "many")]),
            "options",
            "MaxConnectionsUpperLimit",
            "edit deployment",
        ),
        (json!([variable("TYPHA_SERVERPORT", "5474")]), "ports", "5474", "edit deployment"),
        (json!([variable("TYPHA_HEALTHPORT", "9099")]), "probes", "9099", "edit deployment"),
        (
            json!([{"op": "replace", "path": "/spec/replicas", "value": 0}]),
            "replicas",
            "switched off",
            "scale deployment calico-typha",
        ),
        (limit, "memory", "limit is 8 MiB", "set resources"),
        (owner, "install", "operator", "unsupported.operator.tigera.io/ignore=true"),
    ] {
        let run = changed(rest, admin, operations).await?;
        let told = run.only_obstacle(topic, words)?;
        ensure!(told.contains(remedy), "{remedy} is not in {told}");
    }
    // An unknown variable is reported, and does no harm.
    let run = changed(rest, admin, json!([variable("TYPHA_PODNAME", "x")])).await?;
    ensure!(run.status == 0 && run.findings("options", "note").len() == 1, "{:#}", run.document);
    Ok(())
}

/// With the data in etcd, the release is read there, and the API server is needed only to count replicas.
async fn with_etcd(server: &ApiServer, admin: &Path) -> anyhow::Result<()> {
    let rest = server.rest();
    let url = server.etcd.url();
    let etcd = |url: &str| {
        json!([
            {"op": "replace", "path": "/spec/template/spec/containers/0/env/0/value", "value": "etcdv3"},
            variable("TYPHA_ETCDENDPOINTS", url),
        ])
    };
    changed(&rest, admin, etcd(&url)).await?.only_obstacle("calico", "no ClusterInformation default")?;
    let key = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    let information = r#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"calicoVersion":"v3.29.7"}}"#;
    server.etcd.client().await.put(key, information, None).await?;
    let run = changed(&rest, admin, etcd(&url)).await?;
    ensure!(run.status == 0, "{:#}", run.document);
    let facts = &run.document["facts"];
    ensure!(facts["datastore"] == "etcdv3" && facts["release"] == "v3.29", "{facts:#}");
    ensure!(
        run.findings("rights", "ok")[0]["text"].as_str().is_some_and(|text| text.contains("2 of 2")),
        "{:#}",
        run.document
    );
    let away = changed(&rest, admin, etcd("http://127.0.0.1:1")).await?;
    ensure!(away.status == 2 && away.findings("datastore", "unknown").len() == 1, "{:#}", away.document);
    Ok(())
}

/// Checks TLS from a Secret and a ConfigMap.
async fn certificates(rest: &Rest, admin: &Path) -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let files = issue_certificates(folder.path());
    let read = |path: &Path| std::fs::read_to_string(path);
    let certificate = |name: &str, path: &Path| -> anyhow::Result<Value> {
        Ok(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"tls.crt": STANDARD.encode(read(path)?)}}),
        )
    };
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    rest.create(secrets, &certificate("typha-certs", &files.server_cert)?).await?;
    rest.create(secrets, &certificate("node-certs", &files.client_cert)?).await?;
    let bundle = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bundle"}, "data": {"ca.pem": read(&files.ca)?}});
    rest.create("/api/v1/namespaces/kube-system/configmaps", &bundle).await?;
    let mounted = |name: &str| {
        vec![
            json!({"op": "add", "path": "/spec/template/spec/volumes", "value": [
                {"name": "certs", "secret": {"secretName": "typha-certs"}}, {"name": "ca", "configMap": {"name": "bundle"}},
            ]}),
            json!({"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts", "value": [
                {"name": "certs", "mountPath": "/certs"}, {"name": "ca", "mountPath": "/ca"},
            ]}),
            variable("TYPHA_CAFILE", "/ca/ca.pem"),
            variable("TYPHA_SERVERCERTFILE", "/certs/tls.crt"),
            variable("TYPHA_SERVERKEYFILE", "/certs/tls.key"),
            variable("TYPHA_CLIENTCN", name),
        ]
    };
    // rcgen's default subject, which these certificates have.
    let good = changed(rest, admin, json!(mounted("rcgen self signed cert"))).await?;
    ensure!(good.status == 0 && good.findings("certificates", "ok").len() == 3, "{:#}", good.document);
    let wrong_name = changed(rest, admin, json!(mounted("typha-client"))).await?;
    wrong_name.only_obstacle("certificates", "TYPHA_CLIENTCN")?;
    let mut wrong_key = mounted("rcgen self signed cert");
    wrong_key[2] = variable("TYPHA_CAFILE", "/ca/other.pem");
    let wrong_key = changed(rest, admin, json!(wrong_key)).await?;
    wrong_key.only_obstacle("certificates", "ConfigMap bundle has no key other.pem")?;
    Ok(())
}

async fn agents(rest: &Rest, admin: &Path) -> anyhow::Result<()> {
    agent(rest, "calico-node-old", "v3.20.6").await?;
    preflight(admin, &[]).await?.only_obstacle("agents", "1 agents of v3.20.6")?;
    rest.delete("/api/v1/namespaces/kube-system/pods/calico-node-old").await?;
    agent(rest, "calico-node-next", "v3.32.1").await?;
    let run = preflight(admin, &[]).await?;
    ensure!(run.status == 0 && run.findings("agents", "ok").len() == 2, "{:#}", run.document);
    Ok(())
}

/// A missing right is named, and the shown command grants it.
async fn rights(rest: &Rest, admin: &Path) -> anyhow::Result<()> {
    let subject = json!({"kind": "ServiceAccount", "name": "calico-node", "namespace": "kube-system"});
    let mut rules = role::rules()?;
    for rule in &mut rules {
        if let Some(resources) = rule["resources"].as_array_mut() {
            resources
                .retain(|resource| !["ippools", "pods", "clusternetworkpolicies"].iter().any(|name| resource == name));
        }
    }
    rules.retain(|rule| rule["resources"].as_array().is_some_and(|resources| !resources.is_empty()));
    role::grant_to(rest, "calico-node", &subject, &rules).await?;
    let run = super::eventually("the API server has noticed the role", async || {
        preflight(admin, &[]).await.ok().filter(|run| run.status == 1)
    });
    let run = run.await?;
    let remedy = run
        .only_obstacle("rights", "list, watch pods, ippools.crd.projectcalico.org")
        .or_else(|_| run.only_obstacle("rights", "list, watch ippools.crd.projectcalico.org, pods"))?;
    ensure!(
        run.findings("rights", "note")
            .iter()
            .any(|note| note["text"].as_str().is_some_and(|text| text.contains("clusternetworkpolicies")))
    );
    let operations =
        remedy.strip_prefix("kubectl patch clusterrole calico-node --type=json -p '").context("a patch")?;
    let operations: Value = serde_json::from_str(operations.trim_end_matches('\''))?;
    rest.patch_by("/apis/rbac.authorization.k8s.io/v1/clusterroles/calico-node", &operations).await?;
    super::eventually("the remedy helps", async || preflight(admin, &[]).await.ok().filter(|run| run.status == 0))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_is_compared_key_by_key() -> anyhow::Result<()> {
    let Some(server) = populated(GROUP, SMALL).await? else { return Ok(()) };
    allow(&server).await?;
    let folder = TempDir::new()?;
    let kubeconfig = server.kubeconfig(USER);
    let daemon = start_daemon(&folder, kubeconfig.clone(), &[]).await?;
    let address = daemon.sync.to_string();
    for line in ["v3.28", "v3.31", "v3.32"] {
        let run = preflight(&kubeconfig, &["--compare", &address, "--dialect", line]).await?;
        ensure!(run.status == 0, "{line}: {:#}", run.document);
        let felix = &run.document["facts"]["felix"];
        ensure!(felix["theirs"] == felix["ours"] && felix["theirs"].as_u64() > Some(60), "{line}: {felix:#}");
    }
    // No release is given, and none can be found out.
    let run = preflight(&kubeconfig, &["--compare", &address]).await?;
    ensure!(run.status == 2, "{:#}", run.document);

    // A server with another prefix of workload interfaces.
    let folder = TempDir::new()?;
    let variables = [
        ("KUBECONFIG".to_owned(), kubeconfig.display().to_string()),
        ("FELIX_INTERFACEPREFIX".to_owned(), "eni".to_owned()),
    ];
    let other = tokio::task::spawn_blocking(move || {
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        crate::daemon::Daemon::start_in(folder.path(), &[("DatastoreType", "kubernetes")], &variables)
            .map(|daemon| (daemon, folder))
    });
    let (other, _folder) = other.await??;
    let run = preflight(&kubeconfig, &["--compare", &other.sync.to_string(), "--dialect", "v3.31"]).await?;
    ensure!(run.status == 1, "{:#}", run.document);
    let differences = run.document["facts"]["felix"]["differences"].as_array().context("differences")?;
    ensure!(!differences.is_empty(), "differing interface names are found");
    for difference in differences {
        let text = difference["difference"].as_str().unwrap_or_default();
        ensure!(text.contains("/name: \"eni") && text.contains("cali"), "{text}");
    }
    ensure!(run.document["facts"]["bgp"]["differences"] == json!([]), "{:#}", run.document);

    // No server at this address.
    let closed = ["--compare", "127.0.0.1:1", "--dialect", "v3.31", "--timeout", "5"];
    let run = preflight(&kubeconfig, &closed).await?;
    ensure!(run.status == 2 && !run.findings("compare", "unknown").is_empty(), "{:#}", run.document);
    Ok(())
}
