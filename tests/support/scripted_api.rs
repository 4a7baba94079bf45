//! An API server whose answers all come from the test. It is a service below the client, without sockets: paused time works,
//! and nothing happens unless the test causes it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bulrush::calico::catalog::{CalicoGroup, catalog};
use bulrush::datastore::kubernetes::{KubernetesConfig, KubernetesStore};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Longest wait for a request, in paused time: longer than any pause of the client.
const PATIENCE: Duration = Duration::from_secs(700);

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// The server's end.
#[derive(Debug)]
pub(crate) struct ScriptedApi {
    requests: mpsc::UnboundedReceiver<Asked>,
}

/// A request that waits for its answer. If it is dropped, the connection breaks before an answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    /// Time at which it came.
    pub(crate) at: Instant,
    reply: oneshot::Sender<Answer>,
}

/// The open body of an answer, which ends when this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Feed(mpsc::UnboundedSender<io::Result<Frame<Bytes>>>);

/// Path of the definitions of kinds.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Answers to requests for definitions of kinds, so that a test need not answer them itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions(Arc<Mutex<Defined>>);

#[derive(Debug, Default)]
enum Defined {
    /// Reading them is forbidden.
    #[default]
    Forbidden,
    /// The server does not know them: 404.
    NotFound,
    /// There is no answer.
    Silent(Vec<Asked>),
    Served {
        names: Vec<String>,
        watches: Vec<Feed>,
    },
}

impl Definitions {
    /// Definitions with these names, until a test changes them.
    pub(crate) fn of(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self(Arc::new(Mutex::new(Defined::Served { names, watches: Vec::new() })))
    }

    /// No answers, until a test changes that.
    pub(crate) fn silent() -> Self {
        Self(Arc::new(Mutex::new(Defined::Silent(Vec::new()))))
    }

    /// From now on the server has these. Requests that wait for an answer go on waiting.
    pub(crate) fn serve(&self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let served = Defined::Served { names, watches: Vec::new() };
        std::mem::forget(std::mem::replace(&mut *self.0.lock().expect("no panic before"), served));
    }

    /// The server answers 404.
    pub(crate) fn not_found() -> Self {
        Self(Arc::new(Mutex::new(Defined::NotFound)))
    }

    /// Adds a definition.
    pub(crate) fn add(&self, name: &str) {
        let Defined::Served { names, watches } = &mut *self.0.lock().expect("no panic before") else { return };
        names.push(name.to_owned());
        for watch in watches {
            watch.event("ADDED", &definition(name));
        }
    }

    /// Removes a definition.
    pub(crate) fn remove(&self, name: &str) {
        let Defined::Served { names, watches } = &mut *self.0.lock().expect("no panic before") else { return };
        names.retain(|known| known != name);
        for watch in watches {
            watch.event("DELETED", &definition(name));
        }
    }

    fn answer(&self, asked: Asked) {
        match &mut *self.0.lock().expect("no panic before") {
            Defined::Forbidden => asked.refuse(403, "Forbidden", "customresourcedefinitions is forbidden"),
            Defined::Silent(waiting) => waiting.push(asked),
            Defined::NotFound => asked.answer(404, &[], "404 page not found\n"),
            Defined::Served { watches, .. } if asked.is_watch() => watches.push(asked.stream()),
            Defined::Served { names, .. } => asked.json(&json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"},
                "items": names.iter().map(|name| definition(name)).collect::<Vec<_>>(),
            })),
        }
    }
}

fn definition(name: &str) -> Json {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": name, "resourceVersion": "6"},
    })
}

/// A store and its server. Calico's kinds are in `crd.projectcalico.org/v1`, reading their definitions is forbidden, and
/// the rate is not limited, unless `change` alters that.
pub(crate) fn start(change: impl FnOnce(&mut KubernetesConfig)) -> (KubernetesStore, ScriptedApi) {
    start_with(&Definitions::default(), change)
}

/// The same, with these definitions of kinds.
pub(crate) fn start_with(
    definitions: &Definitions,
    change: impl FnOnce(&mut KubernetesConfig),
) -> (KubernetesStore, ScriptedApi) {
    let (sender, requests) = mpsc::unbounded_channel();
    let definitions = definitions.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (sender, definitions) = (sender.clone(), definitions.clone());
        async move {
            let (reply, answer) = oneshot::channel();
            let query = request.uri().query().unwrap_or_default();
            let asked = Asked {
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
                at: Instant::now(),
                reply,
            };
            let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
            if asked.path == DEFINITIONS {
                definitions.answer(asked);
            } else {
                sender.send(asked).map_err(|_| broken())?;
            }
            answer.await.map_err(|_| broken())
        }
    });
    let mut config =
        KubernetesConfig { catalog: catalog(Some(CalicoGroup::CrdV1)), qps: 0.0, ..KubernetesConfig::default() };
    change(&mut config);
    (KubernetesStore::with_client(kube::Client::new(service, "default"), &config), ScriptedApi { requests })
}

impl ScriptedApi {
    /// The next request.
    pub(crate) async fn next(&mut self) -> Asked {
        let asked = tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("a request comes in time");
        let asked = asked.expect("the client lives");
        assert_eq!(asked.method, Method::GET, "nothing is written here: {asked:?}");
        asked
    }

    /// The next request, which must be a watch of this path.
    pub(crate) async fn watch(&mut self, path: &str) -> Asked {
        let asked = self.next().await;
        assert!(asked.path == path && asked.is_watch(), "not a watch of {path}: {asked:?}");
        asked
    }

    /// The next request, which must be a page of a list of this path.
    pub(crate) async fn page(&mut self, path: &str) -> Asked {
        let asked = self.next().await;
        assert!(asked.path == path && !asked.is_watch(), "not a page of {path}: {asked:?}");
        asked
    }

    /// Fails if there is a further request.
    pub(crate) fn assert_idle(&mut self) {
        if let Ok(asked) = self.requests.try_recv() {
            panic!("one request too many: {asked:?}");
        }
    }

    /// The next request, or `None` once the client is gone.
    pub(crate) async fn recv(&mut self) -> Option<Asked> {
        self.requests.recv().await
    }
}

impl Asked {
    pub(crate) fn is_watch(&self) -> bool {
        self.query("watch") == "true"
    }

    /// Whether it is a streaming list.
    pub(crate) fn wants_initial_events(&self) -> bool {
        self.query("sendInitialEvents") == "true"
    }

    /// A query parameter; empty if missing.
    pub(crate) fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Answers with bytes.
    pub(crate) fn answer(self, code: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        let full = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::builder().status(code);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        // The client may have given up meanwhile.
        let _ = self.reply.send(response.body(full).expect("a well-formed answer"));
    }

    /// Answers with JSON.
    pub(crate) fn json(self, body: &Json) {
        self.answer(200, &[("content-type", "application/json")], body.to_string());
    }

    /// Answers with a `Status`.
    pub(crate) fn refuse(self, code: u16, reason: &str, message: &str) {
        self.answer(code, &[("content-type", "application/json")], status(code, reason, message).to_string());
    }

    /// Answers with a body that the returned feed sends.
    pub(crate) fn stream(self) -> Feed {
        let (feed, pieces) = mpsc::unbounded_channel();
        let pieces = stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) });
        let _ = self.reply.send(Response::new(StreamBody::new(pieces).boxed_unsync()));
        Feed(feed)
    }
}

impl Feed {
    /// Sends one event.
    pub(crate) fn event(&self, what: &str, object: &Json) {
        self.raw(format!("{}\n", json!({"type": what, "object": object})));
    }

    /// Sends a bookmark; `end`: it ends the initial events.
    pub(crate) fn bookmark(&self, revision: &str, end: bool) {
        let annotations = if end { json!({"k8s.io/initial-events-end": "true"}) } else { Json::Null };
        let metadata = json!({"resourceVersion": revision, "annotations": annotations, "creationTimestamp": null});
        self.event("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata}));
    }

    /// Sends bytes as they are.
    pub(crate) fn raw(&self, bytes: impl Into<Bytes>) {
        // The client may have gone meanwhile.
        let _ = self.0.send(Ok(Frame::data(bytes.into())));
    }

    /// Breaks the connection.
    pub(crate) fn cut(self) {
        let _ = self.0.send(Err(io::ErrorKind::ConnectionReset.into()));
    }

    /// Whether the client still reads.
    pub(crate) fn is_read(&self) -> bool {
        !self.0.is_closed()
    }
}

/// A `Status`, the body of an API server's errors.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Json {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}
