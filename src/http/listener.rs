//! One listener: opens it (again and again if need be), accepts, and bounds what a peer can take.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::routes::{self, Site};
use super::{Endpoint, Services, TlsSource};
use crate::listen;
use crate::tls::{Purpose, handshake_error};

/// Pause before a listener is opened again, and after an error of accept; Typha's.
const RETRY: Duration = Duration::from_secs(1);
/// Connections of a listener at once; further ones wait in the backlog. Probes and scrapers are few.
const MAX_CONNECTIONS: usize = 64;
/// Connections that wait in the system.
const BACKLOG: i32 = 128;
/// Time for a TLS handshake, and for the head of a request, counted from the end of the request before.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a request's head: far more than any probe sends. Also hyper's least buffer.
const MAX_HEAD: usize = 8 << 10;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// How long a connection may last, so that peers that neither read nor close do not take all places. Scrapers reconnect.
const LIFETIME: Duration = Duration::from_secs(120);
/// Time for the request that is being answered at the end of that time.
const LAST_REQUEST: Duration = Duration::from_secs(30);
/// How long a connection may last at the debug port: the longest profile and the time to fetch it.
const DEBUG_LIFETIME: Duration = Duration::from_secs(600);

/// A listener and what it serves.
pub(super) struct Listener {
    pub(super) name: &'static str,
    pub(super) endpoint: Endpoint,
    pub(super) site: Site,
    pub(super) tls: Option<TlsSource>,
    pub(super) services: Arc<Services>,
    pub(super) bound: watch::Sender<Option<SocketAddr>>,
}

impl Listener {
    /// Listens until cancelled.
    pub(super) async fn run(self, cancel: CancellationToken) {
        let serving = async {
            let listener = self.open().await;
            self.accept(listener).await;
        };
        cancel.run_until_cancelled(serving).await;
    }

    /// Opens the listener, however long it takes. An error is logged when it is a new one.
    async fn open(&self) -> TcpListener {
        let Endpoint { host, port } = &self.endpoint;
        let mut last_error = String::new();
        loop {
            let opened =
                listen::bind(host, *port, BACKLOG).await.and_then(|listener| Ok((listener.local_addr()?, listener)));
            match opened {
                Ok((address, listener)) => {
                    tracing::info!(listener = self.name, %address, "listening");
                    self.bound.send_replace(Some(address));
                    return listener;
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != last_error {
                        tracing::warn!(listener = self.name, host, port, error, "cannot listen; trying every second");
                        last_error = error;
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn accept(&self, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await.expect("nobody closes this semaphore");
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (services, site, tls) = (self.services.clone(), self.site, self.tls.clone());
                    tokio::spawn(async move {
                        connection(stream, tls, site, services).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: what is open now will be closed.
                    tracing::warn!(listener = self.name, %error, "cannot accept a connection; trying again in a second");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Serves a connection to its end.
async fn connection(stream: TcpStream, tls: Option<TlsSource>, site: Site, services: Arc<Services>) {
    match tls {
        None => requests(stream, site, services).await,
        Some(tls) => match tokio::time::timeout(HEAD_TIMEOUT, tls().accept(stream)).await {
            Ok(Ok(stream)) => requests(stream, site, services).await,
            Ok(Err(error)) => {
                let error = handshake_error(&error, Purpose::Client, &[]);
                tracing::debug!(error, "TLS handshake of a scraper failed");
            }
            Err(_) => tracing::debug!("TLS handshake of a scraper took too long"),
        },
    }
}

async fn requests(stream: impl AsyncRead + AsyncWrite + Unpin, site: Site, services: Arc<Services>) {
    let service = service_fn(|request| routes::answer(site, services.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let lifetime = if matches!(site, Site::Debug) { DEBUG_LIFETIME } else { LIFETIME };
    let mut connection = pin!(connection);
    let mut ended = tokio::time::timeout(lifetime, connection.as_mut()).await;
    if ended.is_err() {
        connection.as_mut().graceful_shutdown();
        ended = tokio::time::timeout(LAST_REQUEST, connection).await;
    }
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "HTTP connection failed"),
        Err(_) => tracing::debug!("HTTP connection cut because its peer does not read"),
    }
}
