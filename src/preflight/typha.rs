//! The installed Typha: its place, its owner, its variables.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;

use super::json::text;
use crate::datastore::kubernetes::lookup::{Answer, Lookup};

/// Namespaces of Calico's own installs, which are looked at first.
const NAMESPACES: [&str; 2] = ["calico-system", "kube-system"];
/// Name of Typha's Deployment and of its container, in the manifests, the chart and the operator.
pub(super) const NAME: &str = "calico-typha";

/// The tool that installed Typha, and that undoes changes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The Tigera operator, which owns the Deployment.
    Operator,
    /// Helm.
    Chart,
    /// `kubectl apply` of one of Calico's manifests, or something like it.
    Manifest,
}

impl Method {
    /// One word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Chart => "chart",
            Self::Manifest => "manifest",
        }
    }
}

/// A variable of the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    /// Its value.
    Text(String),
    /// It comes from elsewhere (a Secret, a field of the pod, a ConfigMap that cannot be read); this says from where.
    Elsewhere(String),
}

/// Typha's Deployment.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The tool that installed it.
    pub method: Method,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// All of it.
    pub(super) deployment: Value,
}

impl Installed {
    /// Looks for Typha's Deployment: the named one, or else where Calico's installs put it, or else anywhere by its label.
    ///
    /// # Errors
    /// The search failed.
    pub async fn find(lookup: &Lookup, named: Option<&(String, String)>) -> Result<Option<Self>, String> {
        let places: Vec<(&str, &str)> = match named {
            Some((namespace, name)) => vec![(namespace, name)],
            None => NAMESPACES.map(|namespace| (namespace, NAME)).to_vec(),
        };
        let mut failed = None;
        for (namespace, name) in places {
            match lookup.get(&format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}")).await {
                Answer::Found(deployment) => return Ok(Some(Self::of(deployment))),
                Answer::Missing(_) => {}
                Answer::Forbidden(reason) | Answer::Failed(reason) => failed = Some(reason),
            }
        }
        if named.is_none() {
            match lookup.get(&format!("/apis/apps/v1/deployments?labelSelector=k8s-app%3D{NAME}")).await {
                Answer::Found(list) => {
                    if let Some(first) = list["items"].as_array().and_then(|items| items.first()) {
                        return Ok(Some(Self::of(first.clone())));
                    }
                    failed = None;
                }
                Answer::Missing(_) => {}
                Answer::Forbidden(reason) | Answer::Failed(reason) => failed = Some(reason),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    fn of(deployment: Value) -> Self {
        let metadata = &deployment["metadata"];
        let owned = metadata["ownerReferences"].as_array().into_iter().flatten();
        let mut operators = owned.filter(|owner| text(owner, "/apiVersion").starts_with("operator.tigera.io/"));
        let by_helm = text(&metadata["labels"], "/app.kubernetes.io~1managed-by") == "Helm"
            || !text(&metadata["annotations"], "/meta.helm.sh~1release-name").is_empty();
        let method = if operators.next().is_some() {
            Method::Operator
        } else if by_helm {
            Method::Chart
        } else {
            Method::Manifest
        };
        let (namespace, name) = (text(metadata, "/namespace").to_owned(), text(metadata, "/name").to_owned());
        Self { method, namespace, name, deployment }
    }

    /// The specification of its pods.
    pub(super) fn pod(&self) -> &Value {
        &self.deployment["spec"]["template"]["spec"]
    }

    /// The container that Typha runs in: the one of its name, or else the first.
    pub(super) fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array();
        let named = containers.and_then(|all| all.iter().find(|container| text(container, "/name") == NAME));
        named.or_else(|| containers.and_then(|all| all.first())).unwrap_or(&Value::Null)
    }

    /// Its image.
    #[must_use]
    pub fn image(&self) -> &str {
        text(self.container(), "/image")
    }

    /// The service account of its pods.
    #[must_use]
    pub fn account(&self) -> &str {
        match text(self.pod(), "/serviceAccountName") {
            "" => "default",
            name => name,
        }
    }

    /// The command that edits its Deployment.
    pub(super) fn edit(&self) -> String {
        format!("kubectl -n {} edit deployment {}", self.namespace, self.name)
    }

    /// The operator is told to leave the Deployment alone.
    pub(super) fn is_let_alone(&self) -> bool {
        text(&self.deployment["metadata"]["annotations"], "/unsupported.operator.tigera.io~1ignore") == "true"
    }

    /// The variables of its container, ConfigMaps included.
    pub(super) async fn variables(&self, lookup: &Lookup) -> BTreeMap<String, Variable> {
        variables(lookup, &self.namespace, self.container()).await
    }

    /// The volume that a path of the container is in, and the rest of the path.
    pub(super) fn volume<'a>(&'a self, path: &'a str) -> Option<(&'a Value, &'a str)> {
        let mounts = self.container()["volumeMounts"].as_array()?;
        let inside = |mount: &'a Value| {
            let rest = path.strip_prefix(text(mount, "/mountPath").trim_end_matches('/'))?;
            rest.is_empty().then_some("").or_else(|| rest.strip_prefix('/')).map(|rest| (mount, rest))
        };
        // The deepest mount counts.
        let (mount, rest) = mounts.iter().filter_map(inside).min_by_key(|(_, rest)| rest.len())?;
        let rest = if rest.is_empty() { text(mount, "/subPath") } else { rest };
        let volumes = self.pod()["volumes"].as_array()?;
        let volume = volumes.iter().find(|volume| text(volume, "/name") == text(mount, "/name"))?;
        Some((volume, rest))
    }
}

/// The variables of a container.
pub(super) async fn variables(lookup: &Lookup, namespace: &str, container: &Value) -> BTreeMap<String, Variable> {
    let mut found = BTreeMap::new();
    let mut maps: BTreeMap<String, Answer> = BTreeMap::new();
    for from in container["envFrom"].as_array().into_iter().flatten() {
        let (name, prefix) = (text(from, "/configMapRef/name"), text(from, "/prefix"));
        if name.is_empty() {
            continue;
        }
        let map = config_map(lookup, namespace, name, &mut maps).await;
        if let Answer::Found(map) = map {
            for (key, value) in map["data"].as_object().into_iter().flatten() {
                found.insert(format!("{prefix}{key}"), Variable::Text(value.as_str().unwrap_or_default().to_owned()));
            }
        }
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        let reference = &variable["valueFrom"]["configMapKeyRef"];
        let value = if variable["valueFrom"].is_null() {
            Variable::Text(text(variable, "/value").to_owned())
        } else if reference.is_null() {
            let source = variable["valueFrom"].as_object().and_then(|source| source.keys().next());
            Variable::Elsewhere(source.map_or_else(|| "elsewhere".to_owned(), |source| format!("a {source}")))
        } else {
            let (name, key) = (text(reference, "/name"), text(reference, "/key"));
            match config_map(lookup, namespace, name, &mut maps).await {
                Answer::Found(map) => match map["data"][key].as_str() {
                    Some(value) => Variable::Text(value.to_owned()),
                    None => continue,
                },
                // Without it the container would not have started, unless it may be missing.
                Answer::Missing(_) => continue,
                Answer::Forbidden(reason) | Answer::Failed(reason) => {
                    Variable::Elsewhere(format!("key {key} of ConfigMap {name}: {reason}"))
                }
            }
        };
        found.insert(text(variable, "/name").to_owned(), value);
    }
    found
}

async fn config_map<'a>(
    lookup: &Lookup,
    namespace: &str,
    name: &str,
    known: &'a mut BTreeMap<String, Answer>,
) -> &'a Answer {
    if !known.contains_key(name) {
        let answer = lookup.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await;
        known.insert(name.to_owned(), answer);
    }
    &known[name]
}

/// The variables as an environment, without those of an unknown value.
pub(super) fn environment(variables: &BTreeMap<String, Variable>) -> Vec<(OsString, OsString)> {
    let known = variables.iter().filter_map(|(name, variable)| match variable {
        Variable::Text(value) => Some((name.into(), value.into())),
        Variable::Elsewhere(_) => None,
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_owner_is_told_by_what_it_leaves() {
        let of = |metadata: Value| Installed::of(json!({ "metadata": metadata })).method;
        assert_eq!(of(json!({})), Method::Manifest);
        assert_eq!(of(json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}})), Method::Chart);
        assert_eq!(of(json!({"annotations": {"meta.helm.sh/release-name": "calico"}})), Method::Chart);
        let operator = json!({"ownerReferences": [{"apiVersion": "operator.tigera.io/v1", "kind": "Installation"}]});
        assert_eq!(of(operator), Method::Operator);
        assert_eq!(of(json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Other"}]})), Method::Manifest);
    }

    #[test]
    fn a_path_is_in_the_deepest_mount() {
        let pod = json!({
            "containers": [{"name": "calico-typha", "volumeMounts": [
                {"name": "root", "mountPath": "/etc"},
                {"name": "certs", "mountPath": "/etc/certs/"},
                {"name": "file", "mountPath": "/etc/calico/typha.cfg", "subPath": "typha.cfg"},
            ]}],
            "volumes": [{"name": "certs", "secret": {"secretName": "s"}}, {"name": "root"}, {"name": "file"}],
        });
        let installed = Installed::of(json!({"spec": {"template": {"spec": pod}}}));
        let volume = |path| installed.volume(path).map(|(volume, rest)| (text(volume, "/name"), rest.to_owned()));
        assert_eq!(volume("/etc/certs/tls.crt"), Some(("certs", "tls.crt".to_owned())));
        assert_eq!(volume("/etc/other"), Some(("root", "other".to_owned())));
        assert_eq!(volume("/etc/calico/typha.cfg"), Some(("file", "typha.cfg".to_owned())));
        assert_eq!(volume("/etcetera"), None);
    }
}
