//! Initialisation in the Kubernetes API: reads, and writes that the server refuses if the object changed in between.

use futures_util::future::BoxFuture;
use http::Method;
use serde_json::{Map, Value, json};

use super::super::init::{Stored, Writable, Write, Written};
use super::super::{Error, Kind};
use super::failure::{Failure, Resource};
use super::{KubernetesStore, Shared, groups};
use crate::model::{Revision, no_revision};

impl Writable for KubernetesStore {
    fn read<'a>(&'a self, kind: &'a Kind, name: &'a str) -> BoxFuture<'a, Result<Option<Stored>, Error>> {
        Box::pin(async move {
            let resource = locate(&self.shared, "read", kind).await?;
            match self.shared.client.get(&format!("{}/{name}", resource.path(None))).await {
                Ok(body) => {
                    let revision = revision_of(&body);
                    Ok(Some(Stored { body: body.into(), revision }))
                }
                // Without its definition the kind itself is not found, which the write that follows tells.
                Err(Failure::NotFound(_)) => Ok(None),
                Err(failure) => Err(write_error(&self.shared, "read", "get", kind, &resource, name, failure).await),
            }
        })
    }

    fn write<'a>(&'a self, write: Write<'a>) -> BoxFuture<'a, Result<Written, Error>> {
        let Write { kind, name, body, before } = write;
        Box::pin(async move {
            let resource = locate(&self.shared, "write", kind).await?;
            let body = for_server(&body, &resource, before);
            let path = resource.path(None);
            let (verb, written) = match before {
                None => ("create", self.shared.client.write(Method::POST, &path, body).await),
                Some(_) => ("update", self.shared.client.write(Method::PUT, &format!("{path}/{name}"), body).await),
            };
            match written {
                Ok(_) => Ok(Written::Done),
                Err(Failure::Conflict(_)) => Ok(Written::Conflict),
                Err(failure) => Err(write_error(&self.shared, "write", verb, kind, &resource, name, failure).await),
            }
        })
    }
}

async fn locate(shared: &Shared, doing: &str, kind: &Kind) -> Result<Resource, Error> {
    match shared.locate(kind).await {
        Ok((resource, _)) => Ok(resource),
        Err(failure) => Err(shared.error(doing, kind, None, failure, &no_revision()).await),
    }
}

/// The error of a single object's request; a permission that is missing is that of `verb`.
async fn write_error(
    shared: &Shared,
    doing: &str,
    verb: &str,
    kind: &Kind,
    resource: &Resource,
    name: &str,
    failure: Failure,
) -> Error {
    match failure {
        Failure::Forbidden(reason) => Error::Forbidden {
            doing: format!("{doing} {} {name} in the API server at {}", resource.name(), shared.client.server()),
            reason: format!("{reason}; add to the ClusterRole: {}", resource.rule(&[verb])),
        },
        other => shared.error(doing, kind, Some(resource), other, &no_revision()).await,
    }
}

fn revision_of(body: &[u8]) -> Revision {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().into()
}

/// The object in the form that the server's group wants: what the server sets by itself is left to it.
fn for_server(body: &[u8], resource: &Resource, before: Option<&Revision>) -> Vec<u8> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else { return body.to_vec() };
    object.insert("apiVersion".to_owned(), format!("{}/{}", resource.group, resource.version).into());
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        if before.is_none() {
            metadata.remove("uid");
            let created = metadata.remove("creationTimestamp");
            if let Some(created) = created.filter(|_| resource.group == groups::CRD) {
                // Where this group keeps the metadata of Calico's own API.
                let calico = json!({ "creationTimestamp": created }).to_string();
                metadata.insert("annotations".to_owned(), json!({ "projectcalico.org/metadata": calico }));
            }
        }
        if let Some(before) = before {
            metadata.insert("resourceVersion".to_owned(), before.as_ref().into());
        }
    }
    Value::Object(object).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kinds;

    #[test]
    fn new_objects_have_what_the_server_does_not_set() {
        let resource = Resource::new(&kinds::TIER, "crd.projectcalico.org", "v1");
        let body = json!({
            "kind": "Tier", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "default", "uid": "u", "creationTimestamp": "t"}, "spec": {"order": 1},
        });
        let sent: Value = serde_json::from_slice(&for_server(body.to_string().as_bytes(), &resource, None)).unwrap();
        let expected = json!({
            "kind": "Tier", "apiVersion": "crd.projectcalico.org/v1", "metadata": {"name": "default", "annotations": {"projectcalico.org/metadata": r#"{"creationTimestamp":"t"}"#}},
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
        let sent = for_server(body.to_string().as_bytes(), &resource, Some(&before));
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!((&sent["metadata"]["uid"], &sent["metadata"]["resourceVersion"]), (&json!("u"), &json!("1")));
        assert_eq!((&sent["x"], &sent["metadata"]["labels"]["a"]), (&json!(1), &json!("b")));
    }
}
