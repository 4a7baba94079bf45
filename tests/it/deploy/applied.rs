//! Renderings applied to a real API server; then the binary with its container's arguments and variables, as the applied
//! service account.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use bulrush::calico::kinds::{CLUSTER_INFORMATION, IP_POOL, K8S_NODE, TIER, VM_INSTANCE_MIGRATION};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};

use super::pod::Pod;
use super::render::{Rendered, kustomization, variants};
use crate::apiserver::crds::{CrdGroup, DEFINITIONS, custom_kinds, definition, served_at, watched_kinds};
use crate::apiserver::rest::Rest;
use crate::apiserver::{ApiServer, Auth};
use crate::daemon::{Running, eventually, http_get};
use crate::real_etcd::free_port;

/// Namespaces of the renderings that a fresh API server does not have.
const NAMESPACES: [&str; 2] = ["calico-system", "calico-helm"];
/// Plural of every rendered kind.
const PLURALS: [(&str, &str); 14] = [
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("ConfigMap", "configmaps"),
    ("Deployment", "deployments"),
    ("HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("NetworkPolicy", "networkpolicies"),
    ("Pod", "pods"),
    ("PodDisruptionBudget", "poddisruptionbudgets"),
    ("PodMonitor", "podmonitors"),
    ("PrometheusRule", "prometheusrules"),
    ("Service", "services"),
    ("ServiceAccount", "serviceaccounts"),
    ("ServiceMonitor", "servicemonitors"),
    ("Namespace", "namespaces"),
];

/// Collection and path of an object in the API.
fn path(object: &Value) -> anyhow::Result<(String, String)> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (_, plural) =
        PLURALS.iter().find(|(known, _)| *known == kind).with_context(|| format!("the plural of {kind}"))?;
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    let collection = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Ok((collection.clone(), format!("{collection}/{name}")))
}

async fn apply(rest: &Rest, rendered: &Rendered) -> anyhow::Result<()> {
    for object in &rendered.objects {
        let (_, path) = path(object)?;
        if object["kind"] == "Pod" {
            // Most of a pod cannot be changed: helm deletes the pod of an earlier test, if there is one.
            let _ = rest.delete(&path).await;
        }
        rest.apply_strictly(&path, object).await.with_context(|| rendered.name.clone())?;
    }
    Ok(())
}

async fn prepare(rest: &Rest) -> anyhow::Result<()> {
    for namespace in NAMESPACES {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        rest.create("/api/v1/namespaces", &object).await?;
    }
    Ok(())
}

/// A definition of a kind of the Prometheus operator, with names only.
fn monitoring_definition(kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// Variables of Typha in Calico's published manifests; calico-policy-only.yaml has `USE_POD_CIDR` besides.
const PUBLISHED: [(&str, &str); 7] = [
    ("TYPHA_LOGSEVERITYSCREEN", "info"),
    ("TYPHA_LOGFILEPATH", "none"),
    ("TYPHA_LOGSEVERITYSYS", "none"),
    ("TYPHA_CONNECTIONREBALANCINGMODE", "kubernetes"),
    ("TYPHA_DATASTORETYPE", "kubernetes"),
    ("TYPHA_HEALTHENABLED", "true"),
    ("TYPHA_SHUTDOWNTIMEOUTSECS", "300"),
];

/// The overlay promises the published variables: applying it must not take any away.
#[test]
fn the_overlay_has_every_variable_of_the_published_manifests() -> anyhow::Result<()> {
    let overlay = "deploy/overlays/calico-manifest";
    let mut expected = PUBLISHED.to_vec();
    for components in [&[][..], &["deploy/components/pod-cidr"]] {
        let Some(rendered) = kustomization(overlay, components)? else { return Ok(()) };
        let env = rendered.deployment()?["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let published: Vec<Value> =
            expected.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        ensure!(env == json!(published), "{env:#}");
        expected.push(("USE_POD_CIDR", "true"));
    }
    Ok(())
}

/// The number of Typhas before Bulrush takes their place; the operator's autoscaler has set it.
const REPLICAS: u32 = 5;

/// Typha's objects, with the fields that matter for taking its place: as installed by the manifest in kube-system, and by the operator,
/// with mounts, in calico-system.
fn typha(namespace: &str) -> [Value; 3] {
    let probe =
        |path: &str| json!({"httpGet": {"host": "localhost", "path": path, "port": 9098}, "timeoutSeconds": 10});
    let labels = json!({"k8s-app": "calico-typha"});
    let metadata = json!({"name": "calico-typha", "namespace": namespace, "labels": labels});
    let mut spec = json!({
        "hostNetwork": true,
        "serviceAccountName": "calico-node",
        "containers": [{
            "name": "calico-typha",
            "image": "calico/calico:v3.33.0",
            "args": ["component", "typha"],
            "ports": [{"name": "calico-typha", "containerPort": 5473, "protocol": "TCP"}],
            "env": PUBLISHED.map(|(name, value)| json!({"name": name, "value": value})),
            "livenessProbe": probe("/liveness"),
            "readinessProbe": probe("/readiness"),
        }],
    });
    if namespace == "calico-system" {
        spec["serviceAccountName"] = "calico-typha".into();
        let container = &mut spec["containers"][0];
        container.as_object_mut().map(|container| container.remove("args"));
        container["command"] = json!(["/usr/bin/calico", "component", "typha"]);
        container["volumeMounts"] = json!([
            {"name": "tigera-ca-bundle", "mountPath": "/etc/pki/tls/certs", "readOnly": true},
            {"name": "typha-certs", "mountPath": "/typha-certs", "readOnly": true},
        ]);
        spec["volumes"] = json!([
            {"name": "tigera-ca-bundle", "configMap": {"name": "tigera-ca-bundle"}},
            {"name": "typha-certs", "secret": {"secretName": "typha-certs", "defaultMode": 420}},
        ]);
    }
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    });
    let ports = json!([{"name": "calico-typha", "port": 5473, "targetPort": "calico-typha", "protocol": "TCP"}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": ports},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata,
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
    });
    [deployment, service, budget]
}

/// The manual's smallest change: only another image. If the Deployment names a program, the image has a program of that
/// path, and the binary understands the arguments after it.
async fn swap_image(server: &ApiServer, namespace: &str) -> anyhow::Result<()> {
    let command = format!("kubectl -n {namespace} set image deployment/calico-typha calico-typha=");
    ensure!(super::read("docs/operations.md")?.contains(&command), "the manual has the command of this test");
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "calico-typha", "image": "bulrush:1"}]}}}});
    let deployments: kube::Api<Deployment> = kube::Api::namespaced(server.client("admin"), namespace);
    let mut before = serde_json::to_value(deployments.get("calico-typha").await?)?["spec"].take();
    let after = deployments.patch("calico-typha", &PatchParams::default(), &Patch::Strategic(&patch)).await?;
    let after = serde_json::to_value(after)?["spec"].take();
    before["template"]["spec"]["containers"][0]["image"] = "bulrush:1".into();
    ensure!(after == before, "fields other than the image have changed: {after:#}");

    let mut container = after["template"]["spec"]["containers"][0].clone();
    understands(&container)?;
    // Calico 3.32's manifest and operator name no command and leave it to the image.
    container.as_object_mut().map(|container| (container.remove("command"), container.remove("args")));
    understands(&container)
}

/// Whether Bulrush's image would start with a container's command, arguments and variables.
fn understands(container: &Value) -> anyhow::Result<()> {
    let words = |field: &str| -> Vec<String> {
        container[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut started = words("command");
    if started.is_empty() {
        started.push("/usr/bin/bulrush".to_owned());
    }
    started.extend(words("args"));
    let path = started.remove(0);
    ensure!(super::image::has_program(&path)?, "the image has no {path}");

    // Only options are checked: the files of mounts are missing here.
    let variables = container["env"].as_array().into_iter().flatten();
    let variables =
        variables.map(|entry| [&entry["name"], &entry["value"]].map(|text| text.as_str().unwrap_or_default()));
    let folder = tempfile::tempdir()?;
    let program = folder.path().join(Path::new(&path).file_name().context("a name")?);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bulrush"), &program)?;
    let output = Command::new(program)
        .args(started)
        .args(["config", "--check", "-c"])
        .arg(super::project("deploy/image/typha.cfg"))
        .env_clear()
        .env("TYPHA_PODNAME", "x")
        .envs(variables.map(|[name, value]| (name, value)))
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.contains("the configuration is good"), "{said}");
    ensure!(said.contains("PODNAME"), "a useless variable is named: {said}");
    Ok(())
}

/// An applied object that leaves a field out does not remove it, because the operator owns it too. So leaving the node's network
/// has to be explicit.
async fn leaves_the_nodes_network(rest: &Rest, rendered: &Rendered) -> anyhow::Result<()> {
    apply(rest, rendered).await?;
    let spec = &rest.get(&path(rendered.deployment()?)?.1).await?["spec"]["template"]["spec"];
    ensure!(spec["hostNetwork"] != true, "it is on the node's network: {spec:#}");
    ensure!(spec["dnsPolicy"] == "ClusterFirst", "{spec:#}");
    for probe in ["livenessProbe", "readinessProbe"] {
        let host = &spec["containers"][0][probe]["httpGet"]["host"];
        ensure!(host.as_str().unwrap_or_default().is_empty(), "{probe} asks {host}");
    }
    Ok(())
}

/// With certificateManagement the operator's certificates are in a folder that an init container fills. The API server refuses the
/// overlay there; the manual quotes the refusal, and has another way.
async fn is_refused_beside_certificate_management(rest: &Rest, overlay: &Rendered) -> anyhow::Result<()> {
    let name = "with-certificate-management";
    let [mut typha, ..] = typha("calico-system");
    typha["metadata"]["name"] = name.into();
    typha["spec"]["template"]["spec"]["volumes"][1] = json!({"name": "typha-certs", "emptyDir": {"medium": "Memory"}});
    rest.create(&path(&typha)?.0, &typha).await?;
    let mut ours = overlay.deployment()?.clone();
    ours["metadata"]["name"] = name.into();
    let refused = rest.apply_strictly(&path(&ours)?.1, &ours).await.err().context("it was applied")?;
    let words = "may not specify more than 1 volume type";
    ensure!(format!("{refused:#}").contains(words), "{refused:#}");
    let manual = super::read("docs/operations.md")?;
    ensure!(manual.contains(words) && manual.contains("has `certificateManagement`, change only the image"));
    Ok(())
}

/// An overlay turns Typha's own objects into ours, and does not change the Service for agents.
async fn takes_typhas_place(server: &ApiServer, overlay: &Rendered) -> anyhow::Result<()> {
    let rest = server.rest();
    let namespace = overlay.deployment()?["metadata"]["namespace"].as_str().context("namespace")?;
    let mut before = BTreeMap::new();
    for object in typha(namespace) {
        let (collection, path) = path(&object)?;
        before.insert(path, rest.create(&collection, &object).await?);
    }
    swap_image(server, namespace).await?;

    apply(&rest, overlay).await?;
    for (path, before) in before {
        let after = rest.get(&path).await?;
        ensure!(after["metadata"]["uid"] == before["metadata"]["uid"], "{path} is the same object");
        ensure!(after["spec"]["selector"] == before["spec"]["selector"], "{path}: {after:#}");
        match after["kind"].as_str() {
            Some("Service") => ensure!(after["spec"] == before["spec"], "{after:#}"),
            Some("Deployment") => {
                // The operator's autoscaler owns the number; without the operator it is the applied number.
                let replicas = overlay.deployment()?["spec"]["replicas"].as_u64();
                ensure!((namespace == "calico-system") == replicas.is_none(), "{namespace}: {replicas:?}");
                let expected = replicas.unwrap_or(REPLICAS.into());
                ensure!(after["spec"]["replicas"] == expected, "{} replicas in {namespace}", after["spec"]["replicas"]);
                let spec = &after["spec"]["template"]["spec"];
                let count = |what: &Value| what.as_array().map_or(0, Vec::len);
                let container = &spec["containers"][0];
                ensure!(count(&spec["containers"]) == 1, "the container is Typha's: {spec:#}");
                ensure!(container["command"] == json!(["/usr/bin/bulrush"]), "{container:#}");
                ensure!(container["args"] == json!(["--config-file", "/etc/calico/typha.cfg"]), "{container:#}");
                ensure!(spec["serviceAccountName"] == "bulrush");
                let rendered = &overlay.deployment()?["spec"]["template"]["spec"];
                ensure!(count(&spec["volumes"]) == count(&rendered["volumes"]), "the volumes are Typha's: {spec:#}");
            }
            _ => {}
        }
    }
    Ok(())
}

/// The overlays take the place of an installed Typha. All other renderings are accepted too, without unknown fields and over the
/// objects of an earlier rendering.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_everything_in_place_of_typha() -> anyhow::Result<()> {
    let Some(all) = variants()? else { return Ok(()) };
    let Some(manifest) = kustomization("deploy/overlays/calico-manifest", &[])? else { return Ok(()) };
    let Some(operator) = kustomization("deploy/overlays/operator-tls", &[])? else { return Ok(()) };
    let pod_network = ["deploy/components/pod-network"];
    let Some(off_node) = kustomization("deploy/overlays/operator-tls", &pod_network)? else { return Ok(()) };
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    prepare(&rest).await?;
    takes_typhas_place(&server, &manifest).await?;
    takes_typhas_place(&server, &operator).await?;
    leaves_the_nodes_network(&rest, &off_node).await?;
    is_refused_beside_certificate_management(&rest, &operator).await?;
    for kind in ["PodMonitor", "ServiceMonitor", "PrometheusRule"] {
        rest.create(DEFINITIONS, &monitoring_definition(kind)).await?;
        let collection = format!("/apis/monitoring.coreos.com/v1/{}s", kind.to_lowercase());
        served_at(&rest, &collection).await?;
    }
    for rendered in &all {
        apply(&rest, rendered).await?;
    }
    Ok(())
}

/// A token of the rendered pods' service account, and the account's name.
async fn token(rest: &Rest, rendered: &Rendered) -> anyhow::Result<(String, String)> {
    let deployment = rendered.deployment()?;
    let namespace = deployment["metadata"]["namespace"].as_str().context("namespace")?;
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().context("account")?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer =
        rest.create(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"), &request).await?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    Ok((token.to_owned(), format!("system:serviceaccount:{namespace}:{account}")))
}

/// Certificates as the operator makes them, by their paths in the container, and a folder with an agent's.
pub(super) struct Certificates {
    pub(super) mounted: BTreeMap<String, String>,
    pub(super) agents: tempfile::TempDir,
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let issue = |name: &str| -> anyhow::Result<(String, String)> {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate()?;
            Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
        };
        let ((server, server_key), (client, client_key)) = (issue("typha-server")?, issue("typha-client")?);
        let agents = tempfile::tempdir()?;
        for (name, text) in [("ca.crt", &issuer.pem()), ("tls.crt", &client), ("tls.key", &client_key)] {
            fs::write(agents.path().join(name), text)?;
        }
        let mounted = [
            ("/etc/pki/tls/certs/tigera-ca-bundle.crt", issuer.pem()),
            ("/typha-certs/tls.crt", server),
            ("/typha-certs/tls.key", server_key),
        ];
        Ok(Self { mounted: mounted.map(|(path, text)| (path.to_owned(), text)).into(), agents })
    }

    fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.agents.path().join(name).display().to_string();
        let files = [("--ca-file", path("ca.crt")), ("--cert-file", path("tls.crt")), ("--key-file", path("tls.key"))];
        let mut arguments: Vec<String> = files.into_iter().flat_map(|(name, path)| [name.to_owned(), path]).collect();
        arguments.extend(["--server-cn".to_owned(), "typha-server".to_owned()]);
        arguments
    }
}

/// A rendered pod that runs on this machine, on ports of its own.
struct Started {
    process: Running,
    log: PathBuf,
    sync: u16,
    health: u16,
    _pod: Pod,
}

impl Started {
    fn new(rendered: &Rendered, mounted: &BTreeMap<String, String>, kubeconfig: &Path) -> anyhow::Result<Self> {
        let pod = Pod::new(rendered, mounted)?;
        let (sync, health, metrics) = (free_port(), free_port(), free_port());
        let (process, log) = pod.start(&[
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("TYPHA_SERVERPORT", sync.to_string()),
            ("TYPHA_HEALTHPORT", health.to_string()),
            ("TYPHA_PROMETHEUSMETRICSPORT", metrics.to_string()),
        ])?;
        Ok(Self { process, log, sync, health, _pod: pod })
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks a probe of the rendered Deployment until it answers 200, as the kubelet would.
    fn probe(&mut self, rendered: &Rendered, probe: &str) -> anyhow::Result<()> {
        let get = rendered.deployment()?["spec"]["template"]["spec"]["containers"][0][probe]["httpGet"].clone();
        let host = get["host"].as_str().unwrap_or("127.0.0.1");
        let addresses: Vec<SocketAddr> = (host, self.health).to_socket_addrs()?.collect();
        let path = get["path"].as_str().context("path")?.to_owned();
        let good = || {
            if let Some(status) = self.process.ended() {
                return Some(Err(anyhow::anyhow!("it ended with {status}")));
            }
            let answered = addresses.iter().find_map(|address| http_get(*address, &path).ok());
            answered.filter(|(code, _)| *code == 200).map(|_| Ok(()))
        };
        eventually(probe, good).and_then(|outcome| outcome).with_context(|| self.log())
    }
}

/// An agent's data from it, as `bulrush dump` prints them within the time-out.
fn dump(port: u16, arguments: &[String], timeout: &str) -> anyhow::Result<String> {
    let server = format!("localhost:{port}");
    let output = Command::new(env!("CARGO_BIN_EXE_bulrush"))
        .args(["dump", "--timeout", timeout, "--server", &server])
        .args(arguments)
        .env_clear()
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The applied account, with only the applied role, is enough for the rendered pod: every request is permitted, and
/// every resource of the role is used. Probes answer, agents get their data, the end is clean.
async fn run_as_applied(
    rendered: &Rendered,
    group: CrdGroup,
    mounted: &BTreeMap<String, String>,
    arguments: &[String],
) -> anyhow::Result<()> {
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    prepare(&rest).await?;
    // One kind is missing, so that definitions are watched.
    for kind in custom_kinds().into_iter().filter(|kind| *kind != VM_INSTANCE_MIGRATION) {
        rest.create(DEFINITIONS, &definition(&kind, group)).await?;
    }
    let pool = json!({
        "apiVersion": group.api_version(), "kind": "IPPool", "metadata": {"name": "p"}, "spec": {"cidr": "10.1.0.0/16"},
    });
    let pools = group.collection(&IP_POOL, "");
    served_at(&rest, &pools).await?;
    rest.create(&pools, &pool).await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    rest.create(&group.collection(&K8S_NODE, ""), &node).await?;

    apply(&rest, rendered).await?;
    let (token, user) = token(&rest, rendered).await?;
    let file = server.folder().join("token");
    fs::write(&file, token)?;
    let kubeconfig = server.kubeconfig_at("pod", &server.url(), &Auth::TokenFile(file));
    let mut started = Started::new(rendered, mounted, &kubeconfig)?;
    started.probe(rendered, "livenessProbe")?;
    started.probe(rendered, "readinessProbe")?;
    let held = dump(started.sync, arguments, "30").with_context(|| started.log())?;
    ensure!(held.contains("/calico/v1/ipam/v4/pool/10.1.0.0-16") && held.contains("node-1"), "{held}");
    if !arguments.is_empty() {
        ensure!(dump(started.sync, &[], "1").is_err(), "an agent without a certificate was let in");
    }
    // The objects that Typha writes at start were written with the same account.
    rest.get(&group.path(&CLUSTER_INFORMATION, "", "default")).await?;
    rest.get(&group.path(&TIER, "", "kube-baseline")).await?;
    ensure!(started.process.end()? == Some(0), "{}", started.log());

    let requests = server.audited(&user);
    let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
    ensure!(refused.is_empty(), "{refused:?}\n{}", started.log());
    let asked: BTreeSet<&str> =
        requests.iter().map(|request| request.resource.rsplit('/').next().unwrap_or_default()).collect();
    for kind in watched_kinds() {
        ensure!(asked.contains(&*kind.plural), "{} is in the role and was not asked for: {asked:?}", kind.plural);
    }
    ensure!(asked.contains("customresourcedefinitions"), "{asked:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_base_runs_as_the_applied_account() -> anyhow::Result<()> {
    let Some(base) = kustomization("deploy/base", &[])? else { return Ok(()) };
    run_as_applied(&base, CrdGroup::V1, &BTreeMap::new(), &[]).await
}

/// With the operator's certificates, and in the newer of Calico's groups.
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_overlay_runs_as_the_applied_account_and_takes_only_agents() -> anyhow::Result<()> {
    let Some(overlay) = kustomization("deploy/overlays/operator-tls", &[])? else { return Ok(()) };
    let certificates = Certificates::new()?;
    run_as_applied(&overlay, CrdGroup::V3, &certificates.mounted, &certificates.arguments()).await
}
