//! A plain HTTP proxy in front of the API server, which records requests, and refuses and cuts them for a test.
//!
//! Requests go on over TLS with their own token. Bodies of answers stream through, so that watches work.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{HeaderName, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::USER;
use crate::apiserver::{ApiServer, Auth, token};

/// Headers of a single hop, which are not passed on.
const HOP: [HeaderName; 3] = [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING];

/// A request that has passed.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Time of the request.
    pub(super) at: Instant,
    /// Method, path and query.
    pub(super) what: String,
    /// HTTP status of the answer, from the server or the proxy.
    pub(super) code: u16,
}

impl Seen {
    /// Whether it is a watch.
    pub(super) fn is_watch(&self) -> bool {
        self.what.contains("watch=true") || self.what.contains("watch=1")
    }
}

/// Answers of the proxy instead of the server.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    /// The refused requests: their method, path and query contain this.
    pub(super) containing: String,
    /// HTTP status.
    pub(super) code: u16,
    /// Seconds that the client is told to wait.
    pub(super) retry_after: Option<u64>,
    /// Number of requests to refuse.
    pub(super) times: usize,
}

type Error = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, Error>>;

#[derive(Debug)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    refusals: Mutex<Vec<Refusal>>,
    /// Number of cuts: open answers from before the last cut end.
    cuts: watch::Sender<u64>,
}

/// A running proxy. Ends when it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// A kubeconfig of the daemon's user that leads through the proxy.
    pub(super) fn kubeconfig(&self, server: &ApiServer) -> PathBuf {
        server.kubeconfig_at(USER, &self.url(), &Auth::Token(token(USER)))
    }

    /// Starts a proxy in front of a server.
    pub(super) async fn start(server: &ApiServer) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { seen: Mutex::default(), refusals: Mutex::default(), cuts: watch::channel(0).0 });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server.client_as(None), shared.clone()));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// Its base URL.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests since [`Proxy::begin`].
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Forgets the requests so far.
    pub(super) fn begin(&self) {
        lock(&self.shared.seen).clear();
    }

    /// Refuses the next requests as described.
    pub(super) fn refuse(&self, refusal: Refusal) {
        lock(&self.shared.refusals).push(refusal);
    }

    /// Ends all refusals.
    pub(super) fn let_through(&self) {
        lock(&self.shared.refusals).clear();
    }

    /// Cuts every open answer, watches included, in the middle.
    pub(super) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, server: kube::Client, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (server, shared) = (server.clone(), shared.clone());
        connections.spawn(async move {
            let service = service_fn(|request| {
                let (server, shared) = (server.clone(), shared.clone());
                async move { Ok::<_, Infallible>(answer(request, &server, &shared).await) }
            });
            let http = hyper::server::conn::http1::Builder::new().timer(TokioTimer::new()).to_owned();
            // After a cut this returns an intended error.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, server: &kube::Client, shared: &Arc<Shared>) -> Answer {
    let what = format!("{} {}", request.method(), request.uri());
    let at = Instant::now();
    let answer = match refused(&what, shared) {
        Some(refusal) => refusal,
        None => forward(request, server, shared).await.unwrap_or_else(|error| {
            let mut answer = Response::new(full(error.to_string()));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }),
    };
    lock(&shared.seen).push(Seen { at, what, code: answer.status().as_u16() });
    answer
}

fn refused(what: &str, shared: &Shared) -> Option<Answer> {
    let mut refusals = lock(&shared.refusals);
    let refusal = refusals.iter_mut().find(|refusal| refusal.times > 0 && what.contains(&refusal.containing))?;
    refusal.times -= 1;
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": refusal.code,
        "message": "refused by the test",
    });
    let mut answer = Response::builder().status(refusal.code).header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = refusal.retry_after {
        answer = answer.header(header::RETRY_AFTER, seconds);
    }
    answer.body(full(status.to_string())).ok()
}

async fn forward(request: Request<Incoming>, server: &kube::Client, shared: &Arc<Shared>) -> Result<Answer, Error> {
    let mut cuts = shared.cuts.subscribe();
    let (mut parts, body) = request.into_parts();
    for name in HOP {
        parts.headers.remove(name);
    }
    let body = body.collect().await?.to_bytes();
    let answer = server.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
    let (mut parts, body) = answer.into_parts();
    for name in HOP {
        parts.headers.remove(name);
    }
    let cut = async move {
        // The sender lives as long as the proxy.
        let _ = cuts.changed().await;
        Err(Error::from("cut by the test"))
    };
    let frames = BodyStream::new(body).map(|frame| frame.map_err(Error::from));
    // Ends with the body, or with the error at a cut.
    let frames =
        futures_util::stream::unfold((frames, Box::pin(cut), false), |(mut frames, mut cut, is_over)| async move {
            if is_over {
                return None;
            }
            tokio::select! {
                frame = frames.next() => frame.map(|frame| (frame, (frames, cut, false))),
                error = &mut cut => Some((error, (frames, cut, true))),
            }
        });
    Ok(Response::from_parts(parts, StreamBody::new(frames).boxed_unsync()))
}

fn full(text: String) -> UnsyncBoxBody<Bytes, Error> {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}
