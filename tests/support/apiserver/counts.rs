//! Requests to the API server, from its own counters, and from its audit log, which also has the user and the form.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use serde_json::Value;

use super::ApiServer;

/// The labels of a line of `apiserver_request_total`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey {
    /// `LIST`, `WATCH`, `GET`, …; watches are counted when they end.
    pub(crate) verb: String,
    /// `group/resource`; the core group has no slash.
    pub(crate) resource: String,
    /// HTTP status.
    pub(crate) code: u16,
}

/// An audited request, of a plain user or a service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Audited {
    /// The user's name.
    pub(crate) user: String,
    /// `list`, `watch`, `get`, `create`, …
    pub(crate) verb: String,
    /// `group/resource`; the core group has no slash. Empty for paths that are no resources.
    pub(crate) resource: String,
    /// Path and query.
    pub(crate) uri: String,
    /// HTTP status.
    pub(crate) code: u16,
    /// The client's user agent.
    pub(crate) agent: String,
}

impl Audited {
    /// Whether it reads a whole collection: the first page of a list, or a watch that begins with a list.
    pub(crate) fn is_list(&self) -> bool {
        match self.verb.as_str() {
            "list" => !self.uri.contains("continue="),
            "watch" => self.uri.contains("sendInitialEvents=true"),
            _ => false,
        }
    }
}

impl ApiServer {
    /// The server's own counts of requests since its start.
    pub(crate) async fn request_counts(&self) -> anyhow::Result<BTreeMap<RequestKey, u64>> {
        let page = self.rest().get_text("/metrics").await?;
        let mut counts = BTreeMap::new();
        for line in page.lines() {
            let Some((labels, value)) =
                line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.split_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let rest = labels.split_once(&format!("{name}=\"")).map(|(_, rest)| rest);
                rest.and_then(|rest| rest.split_once('"')).map_or("", |(value, _)| value)
            };
            let key = RequestKey {
                verb: label("verb").to_owned(),
                resource: resource_of(label("group"), label("resource")),
                code: label("code").parse().context("a code is a number")?,
            };
            let value: f64 = value.trim().parse().context("a count is a number")?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count is a small whole number"
            )]
            let value = value as u64;
            *counts.entry(key).or_default() += value;
        }
        Ok(counts)
    }

    /// Number of lists of each resource that the server has answered since its start.
    pub(crate) async fn lists_answered(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut lists = BTreeMap::new();
        for (key, count) in self.request_counts().await? {
            if key.verb == "LIST" && key.code == 200 {
                *lists.entry(key.resource).or_default() += count;
            }
        }
        Ok(lists)
    }

    /// The audited requests of a user, in order: watches when they were accepted or refused, others when they were answered.
    pub(crate) fn audited(&self, user: &str) -> Vec<Audited> {
        let log = fs::read_to_string(self.folder().join("audit.log")).unwrap_or_default();
        let mut requests = Vec::new();
        for line in log.lines() {
            // The last line may be half written.
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            let is_end = event["stage"] == "ResponseComplete";
            // An accepted watch is there twice: when it starts and when it ends.
            let is_once = if event["verb"] == "watch" && code == 200 { !is_end } else { is_end };
            if event["user"]["username"] != user || !is_once {
                continue;
            }
            let object = &event["objectRef"];
            requests.push(Audited {
                user: user.to_owned(),
                verb: text(&event["verb"]),
                resource: resource_of(
                    object["apiGroup"].as_str().unwrap_or_default(),
                    object["resource"].as_str().unwrap_or_default(),
                ),
                uri: text(&event["requestURI"]),
                code: u16::try_from(code).unwrap_or_default(),
                agent: text(&event["userAgent"]),
            });
        }
        requests
    }

    /// Number of whole collections that a user read with success, by resource: plain lists, and watches that begin with a list.
    pub(crate) fn collections_read(&self, user: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for request in self.audited(user) {
            if request.is_list() && request.code == 200 {
                *counts.entry(request.resource).or_default() += 1;
            }
        }
        counts
    }
}

fn resource_of(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") }
}
