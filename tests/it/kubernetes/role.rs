//! Roles of plain users: what the daemon is allowed to do.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::apiserver::rest::Rest;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long the API server may take to notice a role.
const NOTICED_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);
const LOOK: std::time::Duration = std::time::Duration::from_millis(20);

/// What the daemon is allowed to do: verbs on resources of groups.
pub(super) fn rules() -> Vec<Value> {
    let calico = [
        "bgpconfigurations",
        "bgpfilters",
        "bgppeers",
        "blockaffinities",
        "caliconodestatuses",
        "clusterinformations",
        "felixconfigurations",
        "globalnetworkpolicies",
        "globalnetworksets",
        "hostendpoints",
        "ipamblocks",
        "ippools",
        "networkpolicies",
        "networksets",
        "stagedglobalnetworkpolicies",
        "stagedkubernetesnetworkpolicies",
        "stagednetworkpolicies",
        "tiers",
    ];
    let groups = ["crd.projectcalico.org", "projectcalico.org"];
    let read = ["list", "watch"];
    vec![
        json!({"apiGroups": [""], "resources": ["namespaces", "nodes", "pods", "serviceaccounts", "services"], "verbs": read}),
        json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read}),
        json!({"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": read}),
        json!({"apiGroups": ["policy.networking.k8s.io"], "resources": ["clusternetworkpolicies"], "verbs": read}),
        json!({"apiGroups": ["kubevirt.io"], "resources": ["virtualmachineinstancemigrations"], "verbs": read}),
        json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": read}),
        json!({"apiGroups": groups, "resources": calico, "verbs": read}),
        json!({"apiGroups": groups, "resources": ["clusterinformations"], "verbs": ["get", "create", "update"]}),
        json!({"apiGroups": groups, "resources": ["tiers"], "verbs": ["get", "create"]}),
    ]
}

/// Gives a user a role with these rules, and waits until the server knows.
pub(super) async fn grant(rest: &Rest, user: &str, rules: &[Value]) -> anyhow::Result<()> {
    grant_to(rest, user, &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}), rules).await
}

/// The same for any subject; `name` is that of role and binding.
pub(super) async fn grant_to(rest: &Rest, name: &str, subject: &Value, rules: &[Value]) -> anyhow::Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    });
    rest.apply(&format!("{RBAC}/clusterroles/{name}"), &role).await?;
    rest.apply(&format!("{RBAC}/clusterrolebindings/{name}"), &binding).await?;
    if subject["kind"] == "User"
        && let Some(first) = rules.first()
    {
        noticed(rest, name, first).await?;
    }
    Ok(())
}

/// Waits until the server allows the user what a rule says.
async fn noticed(rest: &Rest, user: &str, rule: &Value) -> anyhow::Result<()> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {
            "group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": rule["verbs"][0],
        }},
    });
    let allowed = async {
        loop {
            let answer = rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
            if answer["status"]["allowed"] == true {
                return anyhow::Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let allowed = tokio::time::timeout(NOTICED_WITHIN, allowed).await;
    ensure!(allowed.is_ok(), "{user} is not allowed {rule} after {NOTICED_WITHIN:?}");
    allowed.context("in time")?
}
