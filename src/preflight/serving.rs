//! Ports, probes and replicas of Typha's Deployment and its Service.

use serde_json::Value;

use super::json::text;
use super::options::Settings;
use super::report::Report;
use super::typha::Installed;
use crate::datastore::kubernetes::lookup::{Answer, Lookup};

/// Name of the port that agents look for, unless they are told another.
const PORT_NAME: &str = "calico-typha";
/// Nodes that a release of Typha is recommended to serve with one replica: the manifests' figure.
const NODES_PER_TYPHA: usize = 200;

pub(super) async fn check(lookup: &Lookup, installed: &Installed, settings: &Settings, report: &mut Report) {
    let Some(config) = &settings.config else { return };
    ports(installed, config.server.port, report);
    service(lookup, installed, config.server.port, report).await;
    probes(installed, config, report);
    replicas(lookup, installed, report).await;
}

/// Compares the container's port with the port of the options.
fn ports(installed: &Installed, listens: u16, report: &mut Report) {
    let ports = installed.container()["ports"].as_array().into_iter().flatten();
    let declared: Vec<u64> = ports
        .filter(|port| text(port, "/name") == PORT_NAME)
        .filter_map(|port| port["containerPort"].as_u64())
        .collect();
    let network =
        if installed.pod()["hostNetwork"] == Value::Bool(true) { "the host's network" } else { "the pods' network" };
    report.fact("port", listens);
    if declared.iter().all(|port| *port == u64::from(listens)) {
        report.ok("ports", format!("agents connect to port {listens} on {network}"));
    } else {
        let text = format!(
            "the container's port {PORT_NAME} is {declared:?}, and Typha is told to listen on {listens}: agents of the \
             Service find nothing"
        );
        report.obstacle("ports", text).remedy(installed.edit());
    }
}

/// The Service by which agents find Typha.
async fn service(lookup: &Lookup, installed: &Installed, listens: u16, report: &mut Report) {
    let Installed { namespace, name, .. } = installed;
    let service = match lookup.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")).await {
        Answer::Found(service) => service,
        Answer::Missing(_) => {
            let text = "agents have to be told addresses (FELIX_TYPHAADDR)";
            report.note("ports", format!("there is no Service {namespace}/{name}: {text}"));
            return;
        }
        other => {
            report.unknown("ports", format!("Service {namespace}/{name}: {}", other.reason()));
            return;
        }
    };
    let ports = service["spec"]["ports"].as_array();
    let port = ports.and_then(|all| all.iter().find(|port| text(port, "/name") == PORT_NAME));
    let leads_there = |port: &Value| {
        let target = &port["targetPort"];
        target.as_str().map_or_else(|| target.as_u64() == Some(u64::from(listens)), |name| name == PORT_NAME)
    };
    match port {
        Some(port) if leads_there(port) => {
            let text = format!("Service {namespace}/{name} has the port {PORT_NAME} ({})", port["port"]);
            report.ok("ports", text);
        }
        Some(port) => {
            let target = &port["targetPort"];
            let text =
                format!("Service {namespace}/{name} leads to port {target}, and Typha is told to listen on {listens}");
            report.obstacle("ports", text).remedy(format!("kubectl -n {namespace} edit service {name}"));
        }
        None => {
            let text = format!(
                "Service {namespace}/{name} has no port named {PORT_NAME}: agents need FELIX_TYPHAK8SSERVICEPORT or the like"
            );
            report.note("ports", text);
        }
    }
}

/// Whether the kubelet asks where health is told.
fn probes(installed: &Installed, config: &crate::config::Config, report: &mut Report) {
    let health = &config.health;
    let mut wrong = Vec::new();
    let mut asked = 0;
    for (probe, path) in [("livenessProbe", "/liveness"), ("readinessProbe", "/readiness")] {
        let http = &installed.container()[probe]["httpGet"];
        if http.is_null() {
            continue;
        }
        asked += 1;
        let port = &http["port"];
        // By number, or by the name of one of the container's ports.
        let named = installed.container()["ports"].as_array().into_iter().flatten();
        let number = port
            .as_u64()
            .or_else(|| named.filter(|named| named["name"] == *port).find_map(|named| named["containerPort"].as_u64()));
        if !health.enabled {
            wrong.push(format!("{probe} asks, but TYPHA_HEALTHENABLED is not true"));
        } else if number != Some(u64::from(health.port)) {
            wrong.push(format!("{probe} asks port {port}, and health is told on {} (TYPHA_HEALTHPORT)", health.port));
        } else if text(http, "/path") != path {
            wrong.push(format!("{probe} asks {:?}, and not {path}", text(http, "/path")));
        }
    }
    if !wrong.is_empty() {
        report.obstacle("probes", wrong.join("; ")).remedy(installed.edit());
    } else if asked == 0 {
        report.note("probes", "there are no probes: a replica that is not in sync gets agents all the same");
    } else {
        report.ok("probes", format!("health is asked on port {}", health.port));
    }
}

async fn replicas(lookup: &Lookup, installed: &Installed, report: &mut Report) {
    let (spec, status) = (&installed.deployment["spec"], &installed.deployment["status"]);
    let wanted = spec["replicas"].as_u64().unwrap_or(1);
    let ready = status["readyReplicas"].as_u64().unwrap_or(0);
    report.fact("replicas", wanted);
    report.fact("replicas_ready", ready);
    let nodes = count(lookup, "/api/v1/nodes").await;
    if let Ok(nodes) = nodes {
        report.fact("nodes", nodes);
    }
    let for_nodes = nodes.as_ref().map_or_else(|_| String::new(), |nodes| format!(" for {nodes} nodes"));
    let text = format!("{ready} of {wanted} replicas are ready{for_nodes}");
    if wanted == 0 {
        report
            .obstacle("replicas", format!("{text}: Typha is switched off"))
            .remedy(format!("kubectl -n {} scale deployment {} --replicas=1", installed.namespace, installed.name));
    } else if ready < wanted {
        report.note("replicas", format!("{text}: find out why before changing anything"));
    } else {
        let enough = nodes.is_ok_and(|nodes| nodes > NODES_PER_TYPHA && wanted > 3);
        let hint = if enough { "; three of Bulrush's are enough, see docs/operations.md under \"Sizing\"" } else { "" };
        report.ok("replicas", format!("{text}{hint}"));
    }
}

/// The number of objects at a path of the API.
pub(super) async fn count(lookup: &Lookup, path: &str) -> Result<usize, Answer> {
    match lookup.get(&format!("{path}?limit=1")).await {
        Answer::Found(list) => {
            let here = list["items"].as_array().map_or(0, Vec::len);
            let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
            Ok(here + usize::try_from(more).unwrap_or(usize::MAX / 2))
        }
        other => Err(other),
    }
}
