//! The pages over real sockets.

use std::time::Duration;

use prometheus::{IntCounter, Registry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::cli::{Output, status};
use crate::health::{REPORT_TIMEOUT, Reports};
use crate::logging::Logging;
use crate::status::{Listed, Snapshot};

struct Fixture {
    server: HttpServer,
    health: HealthAggregator,
    registry: Registry,
    tasks: TaskRegistry,
    logging: Logging,
}

fn local() -> Endpoint {
    Endpoint { host: "localhost".to_owned(), port: 0 }
}

/// Services of which nothing else is looked at.
pub(super) fn services() -> Services {
    Services {
        health: HealthAggregator::new(),
        registry: Registry::new(),
        tasks: TaskRegistry::new(),
        log: Logging::for_tests().handle(),
        status: Arc::new(|listed: Listed| Snapshot {
            version: "1.2.3".to_owned(),
            // Shows the number that was asked for.
            phase: format!("asked for {listed}"),
            ..Snapshot::default()
        }),
    }
}

fn serve(endpoints: Endpoints) -> Fixture {
    let logging = Logging::for_tests();
    let services = Services { log: logging.handle(), ..services() };
    let (health, registry, tasks) = (services.health.clone(), services.registry.clone(), services.tasks.clone());
    let server = start(endpoints, services).unwrap();
    Fixture { server, health, registry, tasks, logging }
}

fn everything() -> Endpoints {
    Endpoints {
        health: Some(local()),
        status: StatusFor::SameHost,
        metrics: Some(local()),
        metrics_tls: None,
        debug: Some(local()),
    }
}

/// Sends bytes and reads all that comes back until the server closes.
async fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // A reset after a refusal is as good as a close.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = exchange(address, request.as_bytes()).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, "GET", path, "").await
}

#[tokio::test]
async fn health_follows_the_reporters() {
    let fixture = serve(everything());
    let address = fixture.server.health_address().await.unwrap();
    assert_eq!(get(address, "/liveness").await, (204, String::new()), "no reporter yet");
    assert_eq!(get(address, "/readiness").await.0, 503);
    let reporter = fixture.health.register("felix-cache", Reports::LiveAndReady, REPORT_TIMEOUT);
    reporter.report_live(false);
    let (status, body) = get(address, "/liveness").await;
    assert_eq!(status, 200);
    assert!(body.contains("| felix-cache | 20s     | reporting live | reporting non-ready | -      |"), "{body}");
    assert_eq!(get(address, "/readiness").await, (503, body));
    reporter.report_live(true);
    assert_eq!(ask(address, "POST", "/readiness", "").await.0, 200, "any method will do");
    assert_eq!(get(address, "/metrics").await.0, 404);
    fixture.tasks.stopping();
    fixture.server.stop();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "current_thread")]
async fn health_answers_while_the_worker_is_stuck() {
    let fixture = serve(everything());
    let address = fixture.server.health_address().await.unwrap();
    // This blocks the only worker of this test's runtime until the page has answered.
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    io::Write::write_all(&mut stream, b"GET /readiness HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 503"), "{answer}");
}

#[tokio::test]
async fn metrics_come_in_the_text_format() {
    let fixture = serve(everything());
    let counter = IntCounter::new("typha_things", "Things.").unwrap();
    fixture.registry.register(Box::new(counter.clone())).unwrap();
    counter.inc();
    let address = fixture.server.metrics_address().await.unwrap();
    assert_eq!(
        get(address, "/metrics").await,
        (200, "# HELP typha_things Things.\n# TYPE typha_things counter\ntypha_things 1\n".to_owned())
    );
    assert_eq!(ask(address, "PUT", "/metrics", "x").await.0, 405);
}

#[tokio::test]
async fn metrics_over_tls() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = tokio_rustls::rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let tls: TlsSource = Arc::new(move || acceptor.clone());
    let fixture = serve(Endpoints { metrics_tls: Some(tls), ..everything() });
    fixture.registry.register(Box::new(IntCounter::new("typha_things", "Things.").unwrap())).unwrap();
    let address = fixture.server.metrics_address().await.unwrap();
    assert!(!exchange(address, b"GET /metrics HTTP/1.0\r\n\r\n").await.contains("typha"), "no answer without TLS");
    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let config = tokio_rustls::rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(String::from_utf8(answer).unwrap().ends_with("typha_things 0\n"));
}

#[tokio::test]
async fn status_is_on_the_health_port_if_wanted_and_on_the_debug_port() {
    let fixture = serve(everything());
    let health = fixture.server.health_address().await.unwrap();
    let debug = fixture.server.debug_address().await.unwrap();
    for address in [health, debug] {
        let mut args = status::StatusArgs {
            server: Some(address.to_string()),
            config_file: "no-such-file.cfg".into(),
            environment: Vec::new(),
            output: Output::Table,
            clients: Listed::All,
            timeout: 10,
        };
        let mut out = Vec::new();
        status::run(&args, &mut out).await.unwrap();
        assert!(String::from_utf8(out).unwrap().starts_with("bulrush 1.2.3, asked for all,"));
        args.output = Output::Json;
        let mut out = Vec::new();
        status::run(&args, &mut out).await.unwrap();
        let snapshot: Snapshot = serde_json::from_slice(&out).unwrap();
        assert_eq!(snapshot.version, "1.2.3");
    }
    for (query, answer) in [("", "asked for 10"), ("?clients=3", "asked for 3"), ("?x=1&clients=all", "asked for all")]
    {
        let (code, body) = get(health, &format!("/status{query}")).await;
        assert!(code == 200 && body.contains(answer), "{body}");
    }
    let wrong = (400, "clients must be a whole number or all, and not \"-1\"\n".to_owned());
    assert_eq!(get(health, "/status?clients=-1").await, wrong);
    let fixture = serve(Endpoints { status: StatusFor::Nobody, ..everything() });
    let address = fixture.server.health_address().await.unwrap().to_string();
    let args = status::StatusArgs {
        server: Some(address),
        config_file: "no-such-file.cfg".into(),
        environment: Vec::new(),
        output: Output::Table,
        clients: Listed::default(),
        timeout: 10,
    };
    let error = status::run(&args, &mut Vec::new()).await.unwrap_err().to_string();
    assert!(error.contains("it answers 404"), "{error}");
}

#[tokio::test]
async fn the_status_is_told_elsewhere_only_if_wanted() {
    let services = Arc::new(services());
    for (status, near, code) in [
        (StatusFor::SameHost, true, 200),
        (StatusFor::SameHost, false, 403),
        (StatusFor::Everybody, false, 200),
        (StatusFor::Nobody, true, 404),
    ] {
        let request = hyper::Request::get("/status").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let answer = routes::answer(Site::Health { status }, near, services.clone(), request).await.unwrap();
        assert_eq!(answer.status(), code, "{status:?}, near: {near}");
        let probe = hyper::Request::get("/liveness").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
        let answer = routes::answer(Site::Health { status }, near, services.clone(), probe).await.unwrap();
        assert_eq!(answer.status(), 204, "everybody may ask");
    }
}

#[tokio::test]
async fn the_log_level_changes_over_the_debug_port() {
    let fixture = serve(everything());
    let address = fixture.server.debug_address().await.unwrap();
    assert_eq!(get(address, "/debug/log-level").await, (200, r#"{"screen":"INFO"}"#.to_owned()));
    assert_eq!(ask(address, "PUT", "/debug/log-level", "debug\n").await.1, r#"{"screen":"DEBUG"}"#);
    assert_eq!(ask(address, "PUT", "/debug/log-level", "screen = none").await.1, r#"{"screen":"none"}"#);
    for bad in ["loud", "none", "file=INFO", "", &"x".repeat(2000)] {
        assert_eq!(ask(address, "PUT", "/debug/log-level", bad).await.0, 400, "{bad}");
    }
    assert_eq!(ask(address, "DELETE", "/debug/log-level", "").await.0, 405);
    assert_eq!(fixture.logging.handle().severities(), [("screen", None)]);
}

#[tokio::test]
async fn tasks_and_profiles() {
    let _one = crate::debug::cpu::ONE_AT_A_TIME.lock().await;
    let fixture = serve(everything());
    let address = fixture.server.debug_address().await.unwrap();
    let (status, body) = get(address, "/debug/tasks").await;
    assert_eq!(status, 200);
    let tasks: serde_json::Value = serde_json::from_str(&body).unwrap();
    let names: Vec<_> = tasks.as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["http-health", "http-metrics", "http-debug"]);
    for bad in ["0", "301", "-1", "x", ""] {
        assert_eq!(get(address, &format!("/debug/pprof/profile?seconds={bad}")).await.0, 400);
    }
    // jemalloc is not asked to sample in tests.
    let (status, body) = get(address, "/debug/pprof/heap").await;
    assert_eq!(status, 501);
    assert!(body.contains("heap profiling is off") || body.contains("without the feature"), "{body}");
    let (status, body) = get(address, "/debug/pprof/").await;
    assert_eq!(status, 200);
    assert!(body.contains("/debug/pprof/heap"));
    let (first, second) =
        tokio::join!(get(address, "/debug/pprof/profile?seconds=1"), get(address, "/debug/pprof/profile?seconds=1"));
    let mut statuses = [first.0, second.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "one at a time");
}

#[tokio::test]
async fn bad_requests_end_only_themselves() {
    let fixture = serve(everything());
    let address = fixture.server.health_address().await.unwrap();
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000));
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
    for request in [b"\x16\x03\x01\x02".as_slice(), b"GET\r\n\r\n", long.as_bytes(), headers.as_bytes()] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(get(address, "/liveness").await.0, 204);
}

#[tokio::test]
async fn a_probe_is_answered_while_silent_connections_hold_all_places() {
    let fixture = serve(everything());
    let address = fixture.server.health_address().await.unwrap();
    let mut silent = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Some of them begin a request.
        stream.write_all(&b"GET "[..n % 3]).await.unwrap();
        silent.push(stream);
    }
    let probe = tokio::time::timeout(Duration::from_secs(2), get(address, "/liveness")).await;
    assert_eq!(probe.expect("sooner than the kubelet gives up").0, 204);
}

#[tokio::test]
async fn a_port_that_is_taken_is_tried_again() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let health = Some(Endpoint { host: "127.0.0.1".to_owned(), port: address.port() });
    let fixture = serve(Endpoints { health, ..everything() });
    fixture.server.debug_address().await.unwrap();
    drop(taken);
    assert_eq!(fixture.server.health_address().await, Some(address));
    assert_eq!(get(address, "/liveness").await.0, 204);
}

#[tokio::test]
async fn what_is_not_configured_is_not_served() {
    let fixture = serve(Endpoints { health: Some(Endpoint { host: String::new(), port: 0 }), ..Endpoints::default() });
    let address = fixture.server.health_address().await.unwrap();
    assert!(address.ip().is_unspecified());
    assert_eq!(fixture.server.metrics_address().await, None);
    assert_eq!(fixture.server.debug_address().await, None);
}
