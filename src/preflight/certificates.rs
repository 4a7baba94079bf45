//! TLS between agents and Typha: whether Bulrush and the agents accept the files that Typha's Deployment mounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::json::text;
use super::options::Settings;
use super::report::Report;
use super::typha::Installed;
use crate::datastore::kubernetes::lookup::{Answer, Lookup};
use crate::tls::{PeerIdentity, Purpose, review};

const TOPIC: &str = "certificates";
/// Names of the Secrets that hold the agents' certificate: the operator's, and that of Calico's guide for manifests.
const OF_AGENTS: [&str; 2] = ["node-certs", "calico-node-certs"];

pub(super) async fn check(lookup: &Lookup, installed: &Installed, settings: &Settings, report: &mut Report) {
    report.fact("tls", settings.uses_tls());
    if !settings.uses_tls() {
        if settings.config.is_some() {
            report.note(TOPIC, "agents connect without TLS: port and network are all that protects it");
        }
        return;
    }
    let own = file(lookup, installed, settings, "SERVERCERTFILE", report).await;
    let ca = file(lookup, installed, settings, "CAFILE", report).await;
    let (Some(own), Some(ca)) = (own, ca) else { return };
    judge("the server's certificate", review::server(&own), report);
    judge("the CA file", review::authorities(&ca), report);
    agents(lookup, installed, settings, &ca, report).await;
}

fn judge(what: &str, judged: Result<String, String>, report: &mut Report) {
    match judged {
        Ok(seen) => report.ok(TOPIC, format!("{what} is usable: {seen}")),
        Err(reason) => report
            .obstacle(TOPIC, format!("{what} is not accepted: {reason}"))
            .remedy("issue it again; with the operator, delete its Secret and the operator makes another"),
    };
}

/// Whether the agents' certificate would be taken.
async fn agents(lookup: &Lookup, installed: &Installed, settings: &Settings, ca: &[u8], report: &mut Report) {
    let given = |option| settings.given(option).map(str::to_owned);
    let Some(identity) = PeerIdentity::new(given("CLIENTCN"), given("CLIENTURISAN")) else { return };
    for name in OF_AGENTS {
        let secret = match lookup.get(&format!("/api/v1/namespaces/{}/secrets/{name}", installed.namespace)).await {
            Answer::Found(secret) => secret,
            Answer::Missing(_) => continue,
            other => {
                report.note(
                    TOPIC,
                    format!("the agents' certificate was not looked at: Secret {name}: {}", other.reason()),
                );
                return;
            }
        };
        let certificate =
            ["tls.crt", "cert.crt", "calico-node.crt"].iter().find_map(|key| decoded(&secret["data"][*key]));
        let Some(certificate) = certificate else { continue };
        match review::peer(&certificate, ca, &identity, Purpose::Client) {
            Ok(seen) => report.ok(TOPIC, format!("the agents' certificate (Secret {name}) is accepted: {seen}")),
            Err(reason) => report
                .obstacle(TOPIC, format!("the agents' certificate (Secret {name}) is refused: {reason}"))
                .remedy("TYPHA_CLIENTCN or TYPHA_CLIENTURISAN must name it, and its authority be in TYPHA_CAFILE"),
        };
        return;
    }
    report.note(TOPIC, format!("the agents' certificate was not found (Secret {})", OF_AGENTS.join(" or ")));
}

/// The content of a certificate file of Typha's, from the Secret or ConfigMap that its volume is made of.
async fn file(
    lookup: &Lookup,
    installed: &Installed,
    settings: &Settings,
    option: &str,
    report: &mut Report,
) -> Option<Vec<u8>> {
    let path = settings.given(option)?;
    let Some((volume, rest)) = installed.volume(path) else {
        report
            .obstacle(TOPIC, format!("TYPHA_{option} is {path}, and no volume is mounted there"))
            .remedy(installed.edit());
        return None;
    };
    let namespace = &installed.namespace;
    let (secret, map) = (text(volume, "/secret/secretName"), text(volume, "/configMap/name"));
    let (what, path_of, items) = if !secret.is_empty() {
        (
            format!("Secret {secret}"),
            format!("/api/v1/namespaces/{namespace}/secrets/{secret}"),
            &volume["secret"]["items"],
        )
    } else if !map.is_empty() {
        (
            format!("ConfigMap {map}"),
            format!("/api/v1/namespaces/{namespace}/configmaps/{map}"),
            &volume["configMap"]["items"],
        )
    } else {
        report.note(
            TOPIC,
            format!(
                "TYPHA_{option} is in the volume {}, which is made when a pod starts and cannot be looked at",
                volume["name"]
            ),
        );
        return None;
    };
    let object = match lookup.get(&path_of).await {
        Answer::Found(object) => object,
        other => {
            report.unknown(TOPIC, format!("TYPHA_{option} is in {what}, which cannot be read: {}", other.reason()));
            return None;
        }
    };
    let item = items.as_array().into_iter().flatten().find(|item| text(item, "/path") == rest);
    let key = item.map_or(rest, |item| text(item, "/key"));
    let content = if secret.is_empty() {
        object["data"][key].as_str().map(|text| text.as_bytes().to_vec())
    } else {
        decoded(&object["data"][key])
    };
    if content.is_none() {
        report
            .obstacle(TOPIC, format!("TYPHA_{option} is {path}, and {what} has no key {key}"))
            .remedy(format!("kubectl -n {namespace} describe {}", what.to_lowercase().replacen(' ', "/", 1)));
    }
    content
}

fn decoded(data: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(data.as_str()?).ok()
}
