//! The rights that Bulrush needs at the API server, asked for one by one.

use std::fmt;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};

use super::json::text;
use super::report::Report;
use crate::calico::kinds;
use crate::calico::release::Release;
use crate::datastore::Kind;
use crate::datastore::kubernetes::lookup::{Answer, Lookup, Place};

/// Questions that are put at the same time.
const AT_ONCE: usize = 8;

/// The account whose rights are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Our own: in a pod, those of its service account.
    Own,
    /// Those of a service account, which takes the right to ask about others.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("this account"),
            Self::Service { namespace, name } => write!(f, "service account {namespace}/{name}"),
        }
    }
}

/// The reason for a right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To follow a kind.
    Watch(Kind),
    /// To create the objects that Calico's components expect in a fresh datastore.
    Initialise,
    /// To notice at once that a kind is installed.
    Definitions,
}

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// API group; empty for the core group.
    pub group: String,
    /// Lower-case plural.
    pub resource: String,
    /// `list`, `watch`, `get`, `create`, `update`.
    pub verb: &'static str,
    /// The reason for it.
    pub purpose: Purpose,
}

/// The rights to follow kinds at their places.
pub(super) fn watching<'a>(watched: impl IntoIterator<Item = &'a (Kind, Place)>) -> Vec<Right> {
    let of = |(kind, place): &'a (Kind, Place)| rights(place, &["list", "watch"], &Purpose::Watch(kind.clone()));
    watched.into_iter().flat_map(of).collect()
}

fn rights(place: &Place, verbs: &[&'static str], purpose: &Purpose) -> Vec<Right> {
    let right = |verb: &&'static str| Right {
        group: place.group.clone(),
        resource: place.plural.clone(),
        verb,
        purpose: purpose.clone(),
    };
    verbs.iter().map(right).collect()
}

/// Everything that Bulrush asks an API server for: each kind at its place, the writes at start, the definitions.
#[must_use]
pub fn needed(watched: &[(Kind, Place)]) -> Vec<Right> {
    let mut all = watching(watched);
    for (kind, place) in watched {
        if *kind == kinds::CLUSTER_INFORMATION {
            all.extend(rights(place, &["get", "create", "update"], &Purpose::Initialise));
        } else if *kind == kinds::TIER {
            all.extend(rights(place, &["get", "create"], &Purpose::Initialise));
        }
    }
    all.extend(["list", "watch"].map(|verb| Right {
        group: "apiextensions.k8s.io".to_owned(),
        resource: "customresourcedefinitions".to_owned(),
        verb,
        purpose: Purpose::Definitions,
    }));
    all
}

/// Asks for each right. `line` is the release of the cluster's own Calico.
pub(super) async fn check(
    lookup: &Lookup,
    account: &Account,
    rights: Vec<Right>,
    line: Option<Release>,
    report: &mut Report,
) {
    if rights.is_empty() {
        return;
    }
    let asked: Vec<(Right, Result<bool, String>)> = stream::iter(rights)
        .map(|right| async move {
            let allowed = ask(lookup, account, &right).await;
            (right, allowed)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let total = asked.len();
    if let Some(reason) = asked.iter().find_map(|(_, allowed)| allowed.as_ref().err()) {
        report
            .unknown(TOPIC, format!("the rights of {account} cannot be asked for: {reason}"))
            .remedy("ask as an administrator, or run this as a pod with Typha's service account");
        return;
    }
    let denied: Vec<Right> =
        asked.into_iter().filter_map(|(right, allowed)| (allowed == Ok(false)).then_some(right)).collect();
    report.fact("rights_missing", denied.iter().map(Right::to_string).collect::<Vec<_>>());
    report.ok(TOPIC, format!("{account} has {} of {total} rights", total - denied.len()));
    let read = |kind: &Kind| line.is_none_or(|line| kinds::read_by(kind).contain(line));
    let of = |wanted: &dyn Fn(&Purpose) -> bool| -> Vec<&Right> {
        denied.iter().filter(|right| wanted(&right.purpose)).collect()
    };
    let missing = of(&|purpose| matches!(purpose, Purpose::Watch(kind) if read(kind)));
    if !missing.is_empty() {
        let role = role_of(lookup, account).await;
        report
            .obstacle(
                TOPIC,
                format!(
                    "{account} may not {}, which this cluster's Calico reads: no replica gets ready",
                    words(&missing)
                ),
            )
            .remedy(grant(account, role.as_deref(), &missing));
    }
    let later = of(&|purpose| matches!(purpose, Purpose::Watch(kind) if !read(kind)));
    if !later.is_empty() {
        report.note(
            TOPIC,
            format!("{account} may not {}, which this cluster's Calico does not read: counts as absent", words(&later)),
        );
    }
    let initialise = of(&|purpose| *purpose == Purpose::Initialise);
    if !initialise.is_empty() {
        report.note(
            TOPIC,
            format!(
                "{account} may not {}: nothing is written at start, which only a fresh datastore needs; \
                 TYPHA_DATASTOREREADONLY=true keeps the log free of it",
                words(&initialise)
            ),
        );
    }
    if !of(&|purpose| *purpose == Purpose::Definitions).is_empty() {
        report.note(TOPIC, format!(
                "{account} may not watch definitions of kinds, as with Calico's own roles: a kind that is installed later \
                 is noticed within a minute, and objects of one that is deleted stay"
            ),
        );
    }
}

const TOPIC: &str = "rights";

async fn ask(lookup: &Lookup, account: &Account, right: &Right) -> Result<bool, String> {
    let attributes = json!({"group": right.group, "resource": right.resource, "verb": right.verb});
    let (kind, path, spec) = match account {
        Account::Own => {
            ("SelfSubjectAccessReview", "selfsubjectaccessreviews", json!({"resourceAttributes": attributes}))
        }
        Account::Service { namespace, name } => {
            let groups = [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ];
            let user = format!("system:serviceaccount:{namespace}:{name}");
            let spec = json!({"resourceAttributes": attributes, "user": user, "groups": groups});
            ("SubjectAccessReview", "subjectaccessreviews", spec)
        }
    };
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    match lookup.ask(&format!("/apis/authorization.k8s.io/v1/{path}"), &question).await {
        Answer::Found(answer) => Ok(answer["status"]["allowed"] == Value::Bool(true)),
        other => Err(other.reason().to_owned()),
    }
}

/// The cluster role that an account is bound to, if there is exactly one.
async fn role_of(lookup: &Lookup, account: &Account) -> Option<String> {
    let Account::Service { namespace, name } = account else { return None };
    let bindings = lookup.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings").await.found()?;
    let is_ours = |subject: &Value| {
        text(subject, "/kind") == "ServiceAccount"
            && text(subject, "/name") == name
            && text(subject, "/namespace") == namespace
    };
    let bound = |binding: &&Value| binding["subjects"].as_array().is_some_and(|all| all.iter().any(is_ours));
    let mut roles: Vec<&str> =
        bindings["items"].as_array()?.iter().filter(bound).map(|binding| text(binding, "/roleRef/name")).collect();
    roles.sort_unstable();
    roles.dedup();
    match roles[..] {
        [role] => Some(role.to_owned()),
        _ => None,
    }
}

/// The rights as resources with their verbs, in order: `list, watch tiers.crd.projectcalico.org`.
fn by_resource<'a>(rights: &[&'a Right]) -> Vec<(&'a str, &'a str, Vec<&'static str>)> {
    let mut resources: Vec<(&str, &str, Vec<&'static str>)> = Vec::new();
    for right in rights {
        match resources.iter_mut().find(|(group, name, _)| (*group, *name) == (&*right.group, &*right.resource)) {
            Some((_, _, verbs)) => verbs.push(right.verb),
            None => resources.push((&right.group, &right.resource, vec![right.verb])),
        }
    }
    resources
}

fn words(rights: &[&Right]) -> String {
    let mut by_verbs: Vec<(String, Vec<String>)> = Vec::new();
    for (group, name, verbs) in by_resource(rights) {
        let (verbs, name) =
            (verbs.join(", "), if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") });
        match by_verbs.iter_mut().find(|(known, _)| *known == verbs) {
            Some((_, names)) => names.push(name),
            None => by_verbs.push((verbs, vec![name])),
        }
    }
    by_verbs.into_iter().map(|(verbs, names)| format!("{verbs} {}", names.join(", "))).collect::<Vec<_>>().join("; ")
}

/// The command that grants rights.
fn grant(account: &Account, role: Option<&str>, rights: &[&Right]) -> String {
    let rules: Vec<Value> = by_resource(rights)
        .into_iter()
        .map(|(group, resource, verbs)| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs}))
        .collect();
    match (role, account) {
        (Some(role), _) => {
            let operations: Vec<Value> =
                rules.iter().map(|rule| json!({"op": "add", "path": "/rules/-", "value": rule})).collect();
            format!("kubectl patch clusterrole {role} --type=json -p '{}'", json!(operations))
        }
        (None, Account::Service { namespace, name }) => {
            let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bulrush"}, "rules": rules});
            format!(
                "kubectl apply -f - <<< '{role}' && kubectl create clusterrolebinding bulrush --clusterrole=bulrush \
                 --serviceaccount={namespace}:{name}"
            )
        }
        (None, Account::Own) => format!("add to the ClusterRole of this account: {}", json!(rules)),
    }
}

impl std::fmt::Display for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { group, resource, verb, .. } = self;
        if group.is_empty() { write!(f, "{verb} {resource}") } else { write!(f, "{verb} {resource}.{group}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(group: &str, resource: &str, verb: &'static str) -> Right {
        Right { group: group.to_owned(), resource: resource.to_owned(), verb, purpose: Purpose::Definitions }
    }

    #[test]
    fn rights_are_told_by_verbs_and_granted_by_resource() {
        let rights = [
            right("", "pods", "list"),
            right("", "pods", "watch"),
            right("g", "tiers", "list"),
            right("g", "tiers", "watch"),
            right("g", "x", "get"),
        ];
        let all: Vec<&Right> = rights.iter().collect();
        assert_eq!(words(&all), "list, watch pods, tiers.g; get x.g");
        let account = Account::Service { namespace: "ns".to_owned(), name: "calico-node".to_owned() };
        assert_eq!(
            grant(&account, Some("calico-node"), &all[4..]),
            r#"kubectl patch clusterrole calico-node --type=json -p '[{"op":"add","path":"/rules/-","value":{"apiGroups":["g"],"resources":["x"],"verbs":["get"]}}]'"#
        );
        let without = grant(&account, None, &all[4..]);
        assert!(without.contains("--serviceaccount=ns:calico-node"), "{without}");
    }
}
