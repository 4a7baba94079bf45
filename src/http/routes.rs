//! The pages: from a request to a response.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use prometheus::{TEXT_FORMAT, TextEncoder};
use serde::Serialize;
use serde_json::json;

use super::{Services, StatusFor};
use crate::config::Severity;
use crate::debug::{cpu, heap};
use crate::status::Listed;

/// Most bytes of a request's body: the only body with a meaning has a word or two.
const MAX_BODY: usize = 1024;
/// Time for a request's body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// The pages of a listener.
#[derive(Clone, Copy, Debug)]
pub(super) enum Site {
    /// Probes.
    Health {
        /// The callers that get the status.
        status: StatusFor,
    },
    /// Scrapes.
    Metrics,
    /// Pages for looking into the process.
    Debug,
}

impl Site {
    /// The list of pages, for callers that ask for an unknown one.
    fn pages(self) -> &'static str {
        match self {
            Self::Health { status: StatusFor::Nobody } => "/liveness\n/readiness\n",
            Self::Health { .. } => "/liveness\n/readiness\n/status\n",
            Self::Metrics => "/metrics\n",
            Self::Debug => {
                "/debug/pprof/profile?seconds=30   CPU profile\n\
                 /debug/pprof/heap                 heap profile\n\
                 /debug/tasks                      long-lived tasks and what they do\n\
                 /debug/log-level                  GET: severities; PUT: SEVERITY, or DESTINATION=SEVERITY\n\
                 /status?clients=10                syncers and the slowest clients; clients=all: every one\n"
            }
        }
    }
}

/// The answer to a caller from another host or pod that asks for a page that only callers from here get.
const NOT_FROM_THERE: &str = "/status is told only to callers from the same host or pod (kubectl exec, kubectl port-forward), \
                              unless StatusRemoteEnabled is set\n";

type Answer = Response<Full<Bytes>>;

/// Answers a request. `near` is true if it comes from this host or pod.
pub(super) async fn answer<B>(
    site: Site,
    near: bool,
    services: Arc<Services>,
    request: Request<B>,
) -> Result<Answer, Infallible>
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let path = request.uri().path().to_owned();
    let answer = match (site, path.as_str()) {
        // Probes may use any method, as with Typha.
        (Site::Health { .. }, "/liveness") => health(&services, |summary| summary.live),
        (Site::Health { .. }, "/readiness") => health(&services, |summary| summary.ready),
        (Site::Health { status: StatusFor::SameHost }, "/status") if !near => {
            page(StatusCode::FORBIDDEN, TEXT, NOT_FROM_THERE)
        }
        (Site::Health { status: StatusFor::SameHost | StatusFor::Everybody } | Site::Debug, "/status") => {
            reading(&request).unwrap_or_else(|| status(&services, request.uri().query().unwrap_or_default()))
        }
        (Site::Metrics, "/metrics") => reading(&request).unwrap_or_else(|| metrics(&services)),
        (Site::Debug, "/debug/tasks") => reading(&request).unwrap_or_else(|| as_json(&services.tasks.dump())),
        (Site::Debug, "/debug/log-level") => log_level(&services, request).await,
        (Site::Debug, "/debug/pprof/profile" | "/debug/pprof/heap") => match reading(&request) {
            Some(refused) => refused,
            None if path.ends_with("/heap") => heap_profile().await,
            None => cpu_profile(request.uri().query().unwrap_or_default()).await,
        },
        (Site::Debug, "/" | "/debug" | "/debug/" | "/debug/pprof" | "/debug/pprof/") => {
            page(StatusCode::OK, TEXT, site.pages())
        }
        _ => page(StatusCode::NOT_FOUND, TEXT, format!("there is no such page; there are\n{}", site.pages())),
    };
    Ok(answer)
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The refusal of a method that does not read.
fn reading<B>(request: &Request<B>) -> Option<Answer> {
    let allowed = matches!(*request.method(), Method::GET | Method::HEAD);
    (!allowed).then(|| method_not_allowed("GET, HEAD"))
}

fn method_not_allowed(allowed: &'static str) -> Answer {
    let mut answer = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("this page takes {allowed}\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn as_json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => page(StatusCode::OK, JSON, body),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("write JSON: {error}\n")),
    }
}

fn health(services: &Services, good: impl Fn(&crate::health::Summary) -> bool) -> Answer {
    let summary = services.health.summary();
    let status = match (good(&summary), summary.table.is_empty()) {
        (false, _) => StatusCode::SERVICE_UNAVAILABLE,
        (true, true) => StatusCode::NO_CONTENT,
        (true, false) => StatusCode::OK,
    };
    page(status, TEXT, summary.table)
}

fn status(services: &Services, query: &str) -> Answer {
    let listed = parameter(query, "clients").map_or(Ok(Listed::default()), str::parse);
    match listed {
        Ok(listed) => as_json(&(services.status)(listed)),
        Err(reason) => page(StatusCode::BAD_REQUEST, TEXT, format!("{reason}\n")),
    }
}

/// A parameter of a query.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find_map(|(key, value)| (key == name).then_some(value))
}

fn metrics(services: &Services) -> Answer {
    match TextEncoder::new().encode_to_string(&services.registry.gather()) {
        Ok(text) => page(StatusCode::OK, TEXT_FORMAT, text),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("write metrics: {error}\n")),
    }
}

async fn cpu_profile(query: &str) -> Answer {
    let duration = match parameter(query, "seconds").map(str::parse::<u64>) {
        None => cpu::DEFAULT_DURATION,
        Some(Ok(seconds)) if (1..=cpu::MAX_DURATION.as_secs()).contains(&seconds) => Duration::from_secs(seconds),
        Some(_) => {
            let most = cpu::MAX_DURATION.as_secs();
            return page(StatusCode::BAD_REQUEST, TEXT, format!("seconds must be a whole number from 1 to {most}\n"));
        }
    };
    match cpu::profile(duration).await {
        Ok(profile) => download(profile, "attachment; filename=\"profile.pb\""),
        Err(error @ cpu::Error::Busy) => page(StatusCode::CONFLICT, TEXT, format!("{error}\n")),
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

async fn heap_profile() -> Answer {
    match heap::profile().await {
        Ok(profile) => download(profile, "attachment; filename=\"heap.pb.gz\""),
        Err(error @ (heap::Error::Off | heap::Error::NotBuilt)) => {
            page(StatusCode::NOT_IMPLEMENTED, TEXT, format!("{error}\n"))
        }
        Err(error) => page(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

fn download(body: Vec<u8>, disposition: &'static str) -> Answer {
    let mut answer = page(StatusCode::OK, BINARY, body);
    answer.headers_mut().insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
    answer
}

async fn log_level<B>(services: &Services, request: Request<B>) -> Answer
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::PUT | Method::POST => {
            let body = Limited::new(request.into_body(), MAX_BODY).collect();
            let Ok(Ok(body)) = tokio::time::timeout(BODY_TIMEOUT, body).await else {
                let text = format!("the body must come in {BODY_TIMEOUT:?} and have at most {MAX_BODY} bytes\n");
                return page(StatusCode::BAD_REQUEST, TEXT, text);
            };
            let body = body.to_bytes();
            let text = String::from_utf8_lossy(&body);
            if let Err(reason) = set_log_level(services, text.trim()) {
                return page(StatusCode::BAD_REQUEST, TEXT, format!("{reason}\n"));
            }
        }
        _ => return method_not_allowed("GET, HEAD, PUT, POST"),
    }
    let severities = services.log.severities().into_iter();
    let severities: serde_json::Map<String, serde_json::Value> = severities
        .map(|(name, severity)| (name.to_owned(), json!(severity.map_or("none", Severity::as_str))))
        .collect();
    as_json(&severities)
}

/// Sets severities from `SEVERITY` or `DESTINATION=SEVERITY`. `none` switches a destination off.
fn set_log_level(services: &Services, text: &str) -> Result<(), String> {
    let (destination, word) = match text.split_once('=') {
        Some((destination, word)) => (Some(destination.trim()), word.trim()),
        None => (None, text),
    };
    let severity = Severity::from_name(word);
    let names = || services.log.severities().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    match (destination, severity) {
        (Some(name), _) if severity.is_some() || word.eq_ignore_ascii_case("none") => {
            if !services.log.set_one(name, severity) {
                return Err(format!("there is no log destination {name:?}; there are {}", names()));
            }
        }
        (None, Some(severity)) => {
            services.log.set_all(severity);
        }
        _ => {
            let words = Severity::ALL.map(Severity::as_str).join(", ");
            return Err(format!("{word:?} is not a severity; there are {words} (and none, for one destination)"));
        }
    }
    tracing::info!(setting = text, "log severity changed at run time");
    Ok(())
}
