//! Plain REST for tests: JSON in, JSON out, by path.
//!
//! Bodies are [`Value`]s, so that a test can write objects that no typed client would. Many writes go over a few kept-alive
//! connections at once.

use std::fmt;

use anyhow::{Context as _, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

/// Writes under way at once. The server has two cores at best; more writes would only wait.
const PARALLEL: usize = 8;

/// A failed request, with the server's answer.
#[derive(Debug)]
pub(crate) struct Refused {
    /// HTTP status.
    pub(crate) code: u16,
    what: String,
    body: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.what, self.code, self.body)
    }
}

impl std::error::Error for Refused {}

/// A client of an API server, as one user.
#[derive(Clone)]
pub(crate) struct Rest {
    client: kube::Client,
}

impl Rest {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Vec<u8>> {
        let what = format!("{method} {path}");
        let bytes = body.map(ToString::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Body::from(bytes))?;
        let answer = self.client.send(request).await.with_context(|| what.clone())?;
        let code = answer.status();
        let bytes = answer.into_body().collect().await.with_context(|| what.clone())?.to_bytes();
        if !code.is_success() {
            bail!(Refused { code: code.as_u16(), what, body: String::from_utf8_lossy(&bytes).into_owned() });
        }
        Ok(bytes.to_vec())
    }

    async fn send_json(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let bytes = self.send(method, path, content_type, body).await?;
        serde_json::from_slice(&bytes).with_context(|| format!("{path} is answered with JSON"))
    }

    /// The text at a path, as `/metrics`.
    pub(crate) async fn get_text(&self, path: &str) -> anyhow::Result<String> {
        let request = Request::builder().uri(path).body(Body::empty())?;
        let answer = self.client.send(request).await?;
        let code = answer.status().as_u16();
        let body = String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?;
        if code != 200 {
            bail!(Refused { code, what: format!("GET {path}"), body });
        }
        Ok(body)
    }

    /// The bytes at a path.
    pub(crate) async fn get_bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// The object at a path.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send_json(Method::GET, path, "application/json", None).await
    }

    /// All objects of a collection.
    pub(crate) async fn list(&self, collection: &str) -> anyhow::Result<Vec<Value>> {
        let mut list = self.get(collection).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{collection} has no items but {other}"),
        }
    }

    /// Creates an object in a collection.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> anyhow::Result<Value> {
        self.send_json(Method::POST, collection, "application/json", Some(object)).await
    }

    /// Creates objects, each in its collection, several at once.
    pub(crate) async fn create_all(&self, objects: Vec<(String, Value)>) -> anyhow::Result<()> {
        let create = |(collection, object): (String, Value)| async move { self.create(&collection, &object).await };
        stream::iter(objects).map(create).buffer_unordered(PARALLEL).try_for_each(|_| async { Ok(()) }).await
    }

    /// Replaces an object.
    pub(crate) async fn replace(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.send_json(Method::PUT, path, "application/json", Some(object)).await
    }

    /// Merges changes into an object. A subresource is a longer path: `…/status`.
    pub(crate) async fn patch(&self, path: &str, changes: &Value) -> anyhow::Result<Value> {
        self.send_json(Method::PATCH, path, "application/merge-patch+json", Some(changes)).await
    }

    /// Changes an object by the operations of a JSON patch, as `kubectl patch --type=json` does.
    pub(crate) async fn patch_by(&self, path: &str, operations: &Value) -> anyhow::Result<Value> {
        self.send_json(Method::PATCH, path, "application/json-patch+json", Some(operations)).await
    }

    /// Merges changes into many objects, several at once.
    pub(crate) async fn patch_all(&self, changes: Vec<(String, Value)>) -> anyhow::Result<()> {
        let patch = |(path, changes): (String, Value)| async move { self.patch(&path, &changes).await };
        stream::iter(changes).map(patch).buffer_unordered(PARALLEL).try_for_each(|_| async { Ok(()) }).await
    }

    /// Applies an object, as `kubectl apply --server-side` does.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let path = format!("{path}?fieldManager=test&force=true");
        self.send_json(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// The same, but a field that the server does not know is an error.
    pub(crate) async fn apply_strictly(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let path = format!("{path}?fieldManager=test&force=true&fieldValidation=Strict");
        self.send_json(Method::PATCH, &path, "application/apply-patch+yaml", Some(object)).await
    }

    /// Deletes an object at once, without grace.
    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let options = serde_json::json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        self.send(Method::DELETE, path, "application/json", Some(&options)).await.map(drop)
    }

    /// Deletes many objects, several at once.
    pub(crate) async fn delete_all(&self, paths: Vec<String>) -> anyhow::Result<()> {
        let delete = |path: String| async move { self.delete(&path).await };
        stream::iter(paths).map(delete).buffer_unordered(PARALLEL).try_for_each(|()| async { Ok(()) }).await
    }
}
