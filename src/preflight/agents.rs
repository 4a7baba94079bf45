//! The agents: which there are, of which releases, and whether they look for Typha.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::json::text;
use super::options::Settings;
use super::report::Report;
use super::typha::{Installed, NAME, Variable, variables};
use crate::calico::release::{Release, Version};
use crate::datastore::kubernetes::lookup::{Answer, Lookup};

const TOPIC: &str = "agents";
/// Labels of Calico's agents' pods, on Linux and on Windows.
const LABELS: &str = "k8s-app%20in%20(calico-node,calico-node-windows,canal)";
/// Pods per page: a page is some megabytes.
const PAGE: usize = 500;
/// Pages that are read; more agents than that are told apart well enough.
const MOST_PAGES: usize = 20;

pub(super) async fn check(lookup: &Lookup, installed: Option<&Installed>, settings: &Settings, report: &mut Report) {
    let versions = match images(lookup).await {
        Ok(versions) => versions,
        Err(reason) => {
            report.unknown(TOPIC, format!("the agents' pods cannot be listed: {reason}"));
            return;
        }
    };
    let total: usize = versions.values().sum();
    report.fact("agents", total);
    report.fact("agent_versions", json!(versions));
    if total == 0 {
        report.note(TOPIC, "no pod of calico-node was found");
    }
    for (version, count) in &versions {
        match Version::of(version) {
            Version::Release(line) => report.ok(TOPIC, format!("{count} agents of {version}, served as {line}")),
            Version::TooOld => {
                let oldest = Release::ALL[0];
                let text =
                    format!("{count} agents of {version} would be refused: {oldest} is the oldest that is served");
                report.obstacle(TOPIC, text).remedy("upgrade calico-node first")
            }
            Version::Unknown => report.note(
                TOPIC,
                format!("{count} agents of {version:?}, which names no release: served by what their hello says"),
            ),
        };
    }
    if let Some(installed) = installed {
        finding(lookup, installed, settings, report).await;
    }
}

/// Pods by the version of their image.
async fn images(lookup: &Lookup) -> Result<BTreeMap<String, usize>, String> {
    let mut versions = BTreeMap::new();
    let mut next = String::new();
    for _ in 0..MOST_PAGES {
        let query = form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        let page = match lookup.get(&format!("/api/v1/pods?labelSelector={LABELS}&limit={PAGE}&continue={query}")).await
        {
            Answer::Found(page) => page,
            other => return Err(other.reason().to_owned()),
        };
        for pod in page["items"].as_array().into_iter().flatten() {
            let image = pod["spec"]["containers"].as_array().into_iter().flatten().find_map(node_image);
            *versions.entry(image.unwrap_or_default().to_owned()).or_default() += 1;
        }
        text(&page, "/metadata/continue").clone_into(&mut next);
        if next.is_empty() {
            break;
        }
    }
    Ok(versions)
}

/// The version of a container's image, if it runs Felix.
fn node_image(container: &Value) -> Option<&str> {
    let name = text(container, "/name");
    (name == "calico-node" || name == "felix").then(|| tag(text(container, "/image")))
}

/// The tag of an image; empty if it has none. A port of its registry is none.
fn tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    last.split_once(':').map_or("", |(_, tag)| tag)
}

/// Whether agents are told of Typha's Service, and want the certificate that it has.
async fn finding(lookup: &Lookup, installed: &Installed, settings: &Settings, report: &mut Report) {
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/calico-node", installed.namespace);
    let agents = match lookup.get(&path).await {
        Answer::Found(agents) => agents,
        other => {
            report.note(TOPIC, format!("DaemonSet calico-node was not looked at: {}", other.reason()));
            return;
        }
    };
    let containers = agents["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
    for container in containers.filter(|container| node_image(container).is_some()) {
        let variables = variables(lookup, &installed.namespace, container).await;
        let value = |name: &str| match variables.get(name) {
            Some(Variable::Text(value)) => value.as_str(),
            _ => "",
        };
        match (value("FELIX_TYPHAK8SSERVICENAME"), value("FELIX_TYPHAADDR")) {
            ("" | "none", "") => report
                .note(TOPIC, "calico-node is not told of a Typha and watches the API server itself")
                .remedy("FELIX_TYPHAK8SSERVICENAME=calico-typha in calico-node; typha_service_name in ConfigMap calico-config"),
            (service, "") if service != installed.name && service != NAME => {
                report.note(TOPIC, format!("calico-node looks for the Service {service}"))
            }
            (service, "") => report.ok(TOPIC, format!("calico-node looks for the Service {service}")),
            (_, address) => report.note(TOPIC, format!("calico-node connects to {address} (FELIX_TYPHAADDR)")),
        };
        let wants_tls = !value("FELIX_TYPHACAFILE").is_empty();
        if settings.config.is_some() && wants_tls != settings.uses_tls() {
            let (agents, typha) = if wants_tls { ("wants TLS", "does not") } else { ("does not want TLS", "does") };
            report.obstacle(TOPIC, format!("calico-node {agents}, and Typha's Deployment {typha}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_tag_is_its_version() {
        for (image, expected) in [
            ("docker.io/calico/node:v3.31.7", "v3.31.7"),
            ("registry:5000/calico/node", ""),
            ("registry:5000/calico/node:v3.26.5@sha256:00", "v3.26.5"),
            ("calico/node@sha256:00", ""),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
