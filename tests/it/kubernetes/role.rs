//! Roles of plain users such as the daemon's.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::apiserver::rest::Rest;
use crate::wait::eventually;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// Longest time until the API server notices a role.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// File of the role that operators are told to give.
const ROLE: &str = "deploy/base/rbac.yaml";

/// The rules of the daemon's ClusterRole.
pub(super) fn rules() -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(ROLE)).context(ROLE)?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let role = objects.into_iter().find(|object| object["kind"] == "ClusterRole").context("there is a ClusterRole")?;
    role["rules"].as_array().cloned().context("it has rules")
}

/// Gives a user a role with these rules, and waits until the server applies it.
pub(super) async fn grant(rest: &Rest, user: &str, rules: &[Value]) -> anyhow::Result<()> {
    grant_to(rest, user, &json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}), rules).await
}

/// The same for any subject; `name` is the name of role and binding.
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

/// Waits until the server allows the user the requests of a rule.
async fn noticed(rest: &Rest, user: &str, rule: &Value) -> anyhow::Result<()> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {
            "group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": rule["verbs"][0],
        }},
    });
    let allowed = async || {
        let answer = rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
        answer.map(|answer| (answer["status"]["allowed"] == true).then_some(())).transpose()
    };
    eventually(&format!("{user} is allowed {rule}"), NOTICED_WITHIN, allowed).await?
}
