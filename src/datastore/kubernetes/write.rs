//! Single objects in the Kubernetes API: reads, and writes that the server refuses if the object changed in between.

use futures_util::future::BoxFuture;
use http::Method;
use serde_json::{Map, Value, json};

use super::failure::{Failure, Resource};
use super::shared::Shared;
use super::store::KubernetesStore;
use crate::datastore::catalog::Place;
use crate::datastore::inlet::Error;
use crate::datastore::write::{Change, Stored, Writable, Write, Written};
use crate::model::object::{Kind, ObjectId};
use crate::model::{Revision, no_revision};

impl Writable for KubernetesStore {
    fn read<'a>(&'a self, kind: &'a Kind, id: &'a ObjectId) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        Box::pin(async move {
            let resource = locate(&self.shared, "read", kind).await?;
            match self.shared.client.get(&path_of(&resource, id)).await {
                Ok(body) => {
                    let revision = revision_of(&body);
                    Ok(Some(Stored { body: body.into(), revision }))
                }
                // Without its definition the kind itself is not found, which the write that follows tells.
                Err(Failure::NotFound(_)) => Ok(None),
                Err(failure) => Err(failed(&self.shared, ("read", "get"), (kind, id), &resource, failure).await),
            }
        })
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<Written, Error>> {
        let Write { kind, id, change, dry_run } = write;
        Box::pin(async move {
            let resource = locate(&self.shared, "write", kind).await?;
            let Request { verb, method, path, body } =
                request(&resource, id, &change, self.shared.groups.place(kind), dry_run);
            let is_new = matches!(change, Change::Create { .. });
            match self.shared.client.write(method, &path, body).await {
                Ok(answer) => Ok(Written::Done(revision_of(&answer))),
                Err(Failure::Conflict(_)) => Ok(Written::Conflict),
                // It was there: the writer has seen it.
                Err(Failure::NotFound(_)) if !is_new => Ok(Written::Conflict),
                Err(failure) => Err(failed(&self.shared, ("write", verb), (kind, id), &resource, failure).await),
            }
        })
    }
}

async fn locate(shared: &Shared, doing: &str, kind: &Kind) -> Result<Resource, Error> {
    match shared.locate(&kind.clone().into()).await {
        Ok((resource, _)) => Ok(resource),
        Err(failure) => Err(shared.error(doing, &kind.clone().into(), None, failure, &no_revision()).await),
    }
}

/// The error of a single object's request; a permission that is missing is that of `verb`.
async fn failed(
    shared: &Shared,
    (doing, verb): (&str, &str),
    (kind, id): (&Kind, &ObjectId),
    resource: &Resource,
    failure: Failure,
) -> Error {
    let doing_all = || format!("{doing} {} {id} in the API server at {}", resource.name(), shared.client.server());
    match failure {
        Failure::Forbidden(reason) => Error::Forbidden {
            doing: doing_all(),
            reason: format!("{reason}; add to the ClusterRole: {}", resource.rule(&[verb])),
        },
        // It says nothing about the kind.
        Failure::NotFound(reason) if !id.namespace.is_empty() => {
            Error::Retry { doing: doing_all(), reason: format!("{reason}; check that the namespace is there") }
        }
        other => shared.error(doing, &kind.clone().into(), Some(resource), other, &no_revision()).await,
    }
}

/// The path of one object.
fn path_of(resource: &Resource, id: &ObjectId) -> String {
    let name: String = form_urlencoded::byte_serialize(id.name.as_bytes()).collect();
    format!("{}/{name}", collection_of(resource, id))
}

fn collection_of(resource: &Resource, id: &ObjectId) -> String {
    resource.path(Some(&*id.namespace).filter(|namespace| !namespace.is_empty()))
}

/// A change in the words of the API.
#[derive(Debug)]
struct Request {
    /// The verb of roles.
    verb: &'static str,
    method: Method,
    path: String,
    body: Vec<u8>,
}

fn request(resource: &Resource, id: &ObjectId, change: &Change<'_>, place: Option<&Place>, dry_run: bool) -> Request {
    let query = if dry_run { "?dryRun=All" } else { "" };
    match change {
        Change::Create { body } => Request {
            verb: "create",
            method: Method::POST,
            path: collection_of(resource, id) + query,
            body: for_server(body, resource, place, None),
        },
        Change::Update { body, before } => Request {
            verb: "update",
            method: Method::PUT,
            path: path_of(resource, id) + query,
            body: for_server(body, resource, place, Some(before)),
        },
        Change::Delete { before } => {
            let mut options = json!({
                "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": { "resourceVersion": &***before },
            });
            if dry_run {
                // With a body the server looks at no query.
                options["dryRun"] = json!(["All"]);
            }
            Request {
                verb: "delete",
                method: Method::DELETE,
                path: path_of(resource, id),
                body: options.to_string().into_bytes(),
            }
        }
    }
}

fn revision_of(body: &[u8]) -> Revision {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into()
}

/// The object in the form that its place wants: what the server sets by itself is left to it.
fn for_server(body: &[u8], resource: &Resource, place: Option<&Place>, before: Option<&Revision>) -> Vec<u8> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else { return body.to_vec() };
    let version = if resource.group.is_empty() {
        resource.version.clone()
    } else {
        format!("{}/{}", resource.group, resource.version)
    };
    object.insert("apiVersion".to_owned(), version.into());
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        match before {
            Some(before) => {
                metadata.insert("resourceVersion".to_owned(), before.as_ref().into());
            }
            None => as_new(metadata, place),
        }
    }
    Value::Object(object).to_string().into_bytes()
}

/// Metadata that the server sets by itself, taken out of those of a new object; some are kept in an annotation where the place
/// has one for that.
fn as_new(metadata: &mut Map<String, Value>, place: Option<&Place>) {
    metadata.remove("uid");
    metadata.remove("resourceVersion");
    let created = metadata.remove("creationTimestamp");
    if let (Some(created), Some(annotation)) = (created, place.and_then(|place| place.kept_metadata.as_ref())) {
        let mut annotations = match metadata.remove("annotations") {
            Some(Value::Object(annotations)) => annotations,
            _ => Map::new(),
        };
        annotations.insert(annotation.to_string(), json!({ "creationTimestamp": created }).to_string().into());
        metadata.insert("annotations".to_owned(), annotations.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::catalog::{CalicoGroup, catalog};
    use crate::calico::kinds;

    fn id(namespace: &str, name: &str) -> ObjectId {
        ObjectId { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn changes_in_the_words_of_the_api() {
        let body = || br#"{"metadata":{"name":"x"}}"#.to_vec();
        let before: Revision = "7".into();
        let tiers = Resource::new(&kinds::TIER, "projectcalico.org", "v3");
        let pods = Resource::new(&kinds::POD, "", "v1");
        let (here, there) = ("/apis/projectcalico.org/v3/tiers", "/api/v1/namespaces/n/pods");
        let update = || Change::Update { body: body(), before: &before };
        for (resource, id, change, dry_run, verb, line) in [
            (&tiers, id("", "x"), Change::Create { body: body() }, false, "create", format!("POST {here}")),
            (&tiers, id("", "x"), update(), false, "update", format!("PUT {here}/x")),
            (&tiers, id("", "x"), Change::Delete { before: &before }, false, "delete", format!("DELETE {here}/x")),
            (&pods, id("n", "x"), Change::Create { body: body() }, true, "create", format!("POST {there}?dryRun=All")),
            (&pods, id("n", "x"), update(), true, "update", format!("PUT {there}/x?dryRun=All")),
            (
                &pods,
                id("n", "a/b?c"),
                Change::Delete { before: &before },
                true,
                "delete",
                format!("DELETE {there}/a%2Fb%3Fc"),
            ),
        ] {
            let request = request(resource, &id, &change, None, dry_run);
            let sent: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!((request.verb, format!("{} {}", request.method, request.path)), (verb, line));
            match change {
                Change::Create { .. } => assert_eq!(sent["metadata"], json!({"name": "x"})),
                Change::Update { .. } => assert_eq!(sent["metadata"], json!({"name": "x", "resourceVersion": "7"})),
                Change::Delete { .. } => {
                    let dry = if dry_run { json!(["All"]) } else { Value::Null };
                    assert_eq!((&sent["preconditions"], &sent["dryRun"]), (&json!({"resourceVersion": "7"}), &dry));
                }
            }
        }
        let sent = request(&pods, &id("n", "x"), &update(), None, false).body;
        assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap()["apiVersion"], "v1");
    }

    #[test]
    fn new_objects_have_what_the_server_does_not_set() {
        let resource = Resource::new(&kinds::TIER, "crd.projectcalico.org", "v1");
        let catalog = catalog(Some(CalicoGroup::CrdV1));
        let place = catalog.families[0].places.first();
        let body = json!({
            "kind": "Tier", "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": "default", "uid": "u", "creationTimestamp": "t", "resourceVersion": "3", "annotations": {"a": "b"},
            },
            "spec": {"order": 1},
        });
        let sent: Value =
            serde_json::from_slice(&for_server(body.to_string().as_bytes(), &resource, place, None)).unwrap();
        let kept = r#"{"creationTimestamp":"t"}"#;
        let expected = json!({
            "kind": "Tier", "apiVersion": "crd.projectcalico.org/v1",
            "metadata": {"name": "default", "annotations": {"a": "b", "projectcalico.org/metadata": kept}},
            "spec": {"order": 1},
        });
        assert_eq!(sent, expected);
    }

    #[test]
    fn changed_objects_keep_everything_and_name_the_version_that_was_read() {
        let resource = Resource::new(&kinds::TIER, "projectcalico.org", "v3");
        let body =
            json!({"metadata": {"name": "default", "uid": "u", "labels": {"a": "b"}, "resourceVersion": "1"}, "x": 1});
        let before: Revision = "1".into();
        let sent = for_server(body.to_string().as_bytes(), &resource, None, Some(&before));
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!((&sent["metadata"]["uid"], &sent["metadata"]["resourceVersion"]), (&json!("u"), &json!("1")));
        assert_eq!((&sent["x"], &sent["metadata"]["labels"]["a"]), (&json!(1), &json!("b")));
    }
}
