//! Typha's own settings, read as Bulrush would read them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::json::text;
use super::report::Report;
use super::typha::{Installed, Variable, environment};
use crate::calico::kinds::CLUSTER_INFORMATION;
use crate::config::spec::Kind;
use crate::config::table::OPTIONS;
use crate::config::{self, Config, DatastoreType};
use crate::datastore::Datastore as _;
use crate::datastore::etcd::{EtcdConfig, EtcdStore};
use crate::datastore::kubernetes::lookup::{Answer, Lookup};

const TOPIC: &str = "options";
/// Stands for files that are there in the pod and not here.
const SOME_FILE: &str = "/dev/null";
/// Longest time for an answer of etcd.
const ETCD_LIMIT: Duration = Duration::from_secs(10);

/// The settings of the installed Typha.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// By the names of variables, as given.
    pub(super) variables: BTreeMap<String, Variable>,
    /// As Bulrush takes them, but for the files' names; `None` if it does not.
    pub(super) config: Option<Config>,
}

impl Settings {
    /// An option's text, if it is given by a variable.
    pub(super) fn given(&self, option: &str) -> Option<&str> {
        let wanted = format!("TYPHA_{option}");
        self.variables.iter().find_map(|(name, variable)| match variable {
            Variable::Text(value) if name.eq_ignore_ascii_case(&wanted) && !value.is_empty() => Some(value.as_str()),
            _ => None,
        })
    }

    pub(super) fn uses_etcd(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.of_calico().datastore_type == DatastoreType::Etcdv3)
    }

    pub(super) fn rebalances(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.connections.rebalancing.is_some())
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.tls.is_some())
    }
}

/// Reads the variables and `typha.cfg`.
pub(super) async fn check(
    lookup: &Lookup,
    installed: &Installed,
    variables: &BTreeMap<String, Variable>,
    report: &mut Report,
) -> Settings {
    let file = file(lookup, installed, report).await;
    let mut given = environment(variables);
    for (name, value) in &mut given {
        let name = name.to_string_lossy().to_ascii_lowercase();
        let option = OPTIONS.iter().find(|spec| name == format!("typha_{}", spec.name.to_ascii_lowercase()));
        if option.is_some_and(|spec| spec.kind == Kind::File { must_exist: true }) && !value.is_empty() {
            *value = SOME_FILE.into();
        }
    }
    let loaded = config::load_text(Path::new("typha.cfg"), &file, given);
    let config = match loaded.config {
        Ok(config) => {
            let count = variables.keys().filter(|name| name.to_ascii_uppercase().starts_with("TYPHA_")).count();
            report.fact("datastore", config.of_calico().datastore_type.to_string());
            let text = format!(
                "{count} of Typha's variables are understood; the datastore is {}",
                config.of_calico().datastore_type
            );
            report.ok(TOPIC, text);
            Some(config)
        }
        Err(mistakes) => {
            for mistake in mistakes.0 {
                report.obstacle(TOPIC, format!("Bulrush does not start with this: {mistake}")).remedy(installed.edit());
            }
            None
        }
    };
    for notice in loaded.notices.into_iter().filter(|notice| notice.warning) {
        report.note(TOPIC, notice.text);
    }
    for (name, variable) in variables {
        if let Variable::Elsewhere(source) = variable
            && name.to_ascii_uppercase().starts_with("TYPHA_")
        {
            report.note(TOPIC, format!("{name} comes from {source} and was not looked at"));
        }
    }
    Settings { variables: variables.clone(), config }
}

/// The text of a `typha.cfg` that a ConfigMap puts in the place of the image's.
async fn file(lookup: &Lookup, installed: &Installed, report: &mut Report) -> String {
    let Some((volume, rest)) = installed.volume(config::table::DEFAULT_FILE) else { return String::new() };
    let name = text(volume, "/configMap/name");
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", installed.namespace);
    match lookup.get(&path).await {
        Answer::Found(map) if !name.is_empty() => map["data"][rest].as_str().unwrap_or_default().to_owned(),
        other => {
            let text = format!(
                "{} of volume {} was not looked at: {}",
                config::table::DEFAULT_FILE,
                volume["name"],
                other.reason()
            );
            report.unknown(TOPIC, text);
            String::new()
        }
    }
}

/// ClusterInformation `default` of etcd, where that can be reached from here without files that only the pod has.
pub(super) async fn etcd(settings: &Settings, report: &mut Report) -> Option<Value> {
    let etcd = &settings.config.as_ref()?.of_calico().etcd;
    let endpoints = etcd.endpoints.join(",");
    let file = |option: &str| settings.given(option).filter(|path| Path::new(path).exists()).map(Into::into);
    let store = EtcdStore::connect(EtcdConfig {
        ca_file: file("ETCDCAFILE"),
        cert_file: file("ETCDCERTFILE"),
        key_file: file("ETCDKEYFILE"),
        ..EtcdConfig::new(etcd.endpoints.iter().cloned())
    });
    let answered = match store {
        Ok(store) => match timeout(ETCD_LIMIT, store.list(&CLUSTER_INFORMATION.into()).next()).await {
            Ok(Some(Ok(page))) => Ok(page.objects),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Ok(None) => Err("the list ended without an answer".to_owned()),
            Err(_) => Err(format!("no answer within {ETCD_LIMIT:?}")),
        },
        Err(error) => Err(error.to_string()),
    };
    let objects = match answered {
        Ok(objects) => objects,
        Err(reason) => {
            report
                .unknown("datastore", format!("etcd at {endpoints} does not answer from here: {reason}"))
                .remedy("run this as a pod with Typha's network, variables and volumes");
            return None;
        }
    };
    report.ok("datastore", format!("etcd at {endpoints} answers from here"));
    let default = objects.into_iter().find(|object| &*object.id.name == "default");
    let information = default.and_then(|object| serde_json::from_slice(&object.body).ok());
    if information.is_none() {
        let text = format!("etcd at {endpoints} has no ClusterInformation default: no Calico has used it");
        report.obstacle("calico", text);
    }
    information
}
