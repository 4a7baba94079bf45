//! One listener: opens its port (again and again if necessary), accepts connections, and limits the resources of a peer.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::places::{Place, Places, Seen};
use super::routes::{self, Site};
use super::{Endpoint, Services, TlsSource};
use crate::listen;
use crate::tls::{Purpose, handshake_error};

/// Pause before a listener is opened again, and after an error of accept; Typha's.
const RETRY: Duration = Duration::from_secs(1);
/// Most connections of a listener at once; further ones take the places of silent ones. Probes and scrapers are few.
const MAX_CONNECTIONS: usize = 64;
/// Connections that may wait in the system.
const BACKLOG: i32 = 128;
/// Most bytes of a request's head: far more than any probe sends. Also hyper's smallest buffer.
const MAX_HEAD: usize = 8 << 10;
/// Most header lines of a request.
const MAX_HEADERS: usize = 64;
/// Longest life of a connection, so that peers that neither read nor close do not take all places. Scrapers reconnect.
const LIFETIME: Duration = Duration::from_secs(120);
/// Extra time for a request that is being answered at the end of that time.
const LAST_REQUEST: Duration = Duration::from_secs(30);
/// Longest life of a connection at the debug port: the longest profile and the time to fetch it.
const DEBUG_LIFETIME: Duration = Duration::from_secs(600);

/// A listener and its pages.
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

    /// Opens the listener, and tries until that works. An error is logged if it is a new one.
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
        let mut places = Places::new(MAX_CONNECTIONS);
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let near = stream.local_addr().is_ok_and(|here| is_near(peer.ip(), here.ip()));
                    let visit = Visit { site: self.site, near, services: self.services.clone() };
                    tokio::spawn(connection(stream, self.tls.clone(), visit, places.take().await));
                }
                Err(error) => {
                    // Most likely there are no file descriptors left. Open ones will be closed.
                    tracing::warn!(listener = self.name, %error, "cannot accept a connection; trying again in a second");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// Whether a connection comes from this host or pod: over loopback, or from the same address that it goes to, which the system
/// accepts from no other host.
pub(super) fn is_near(peer: IpAddr, here: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || peer == here.to_canonical()
}

/// The pages that a connection may see.
pub(super) struct Visit {
    pub(super) site: Site,
    /// Whether it comes from this host or pod.
    pub(super) near: bool,
    pub(super) services: Arc<Services>,
}

/// Serves a connection to its end.
async fn connection(stream: TcpStream, tls: Option<TlsSource>, visit: Visit, place: Place) {
    let serve = async {
        match tls {
            None => requests(stream, visit, &place).await,
            Some(tls) => match tls().accept(stream).await {
                Ok(stream) => {
                    place.ready();
                    requests(stream, visit, &place).await;
                }
                Err(error) => {
                    let error = handshake_error(&error, Purpose::Client, &[]);
                    tracing::debug!(error, "TLS handshake of a scraper failed");
                }
            },
        }
    };
    tokio::select! {
        () = serve => {}
        reason = place.over() => tracing::debug!(reason, "HTTP connection ended"),
    }
}

/// Answers requests until the peer sends no more, or its time is over.
async fn requests(stream: impl AsyncRead + AsyncWrite + Unpin, visit: Visit, place: &Place) {
    let Visit { site, near, services } = visit;
    let service = service_fn(|request| {
        place.busy();
        let answer = routes::answer(site, near, services.clone(), request);
        async move {
            let answer = answer.await;
            place.answered();
            answer
        }
    });
    let connection = http1::Builder::new()
        // The place has this time-out.
        .header_read_timeout(None::<Duration>)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Seen::new(stream, place.clone())), service);
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::super::places::{HEAD_TIMEOUT, IDLE_TIMEOUT};
    use super::super::{StatusFor, tests};
    use super::*;

    /// A connection to a health endpoint.
    async fn connected() -> DuplexStream {
        let (near, far) = duplex(1024);
        let services = Arc::new(tests::services());
        let visit = Visit { site: Site::Health { status: StatusFor::Nobody }, near: true, services };
        let place = Places::new(1).take().await;
        tokio::spawn(async move {
            tokio::select! {
                () = requests(far, visit, &place) => {}
                _ = place.over() => {}
            }
        });
        near
    }

    /// Waits until the server closes, and says how long that took.
    async fn until_closed(stream: &mut DuplexStream) -> Duration {
        let began = Instant::now();
        assert_eq!(stream.read(&mut [0; 1]).await.expect("nothing fails in memory"), 0, "nothing more is said");
        began.elapsed()
    }

    async fn request(stream: &mut DuplexStream) {
        stream.write_all(b"GET /liveness HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("it is read");
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).await.expect("it is answered");
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with("HTTP/1.1 204") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_head_of_a_request_has_to_come_soon_and_rest_between_requests_may_be_longer() {
        let mut silent = connected().await;
        assert_eq!(until_closed(&mut silent).await, HEAD_TIMEOUT);
        let mut slow = connected().await;
        slow.write_all(b"GET ").await.expect("it is read");
        tokio::time::sleep(Duration::from_secs(3)).await;
        slow.write_all(b"/live").await.expect("it is read");
        assert_eq!(until_closed(&mut slow).await, HEAD_TIMEOUT.saturating_sub(Duration::from_secs(3)));
        let mut scraper = connected().await;
        for pause in [4, 25, 29] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            request(&mut scraper).await;
        }
        assert_eq!(until_closed(&mut scraper).await, IDLE_TIMEOUT);
        let mut begun = connected().await;
        request(&mut begun).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        begun.write_all(b"G").await.expect("it is read");
        assert_eq!(until_closed(&mut begun).await, HEAD_TIMEOUT);
    }

    #[test]
    fn near_is_loopback_or_the_very_same_address() {
        for (peer, here, near) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("::ffff:127.0.0.2", "::ffff:127.0.0.1", true),
            ("::1", "::1", true),
            ("10.0.0.5", "10.0.0.5", true),
            ("::ffff:10.0.0.5", "10.0.0.5", true),
            ("10.0.0.6", "10.0.0.5", false),
            ("fd00::2", "fd00::1", false),
            // A peer from outside that a route lets in to a loopback address.
            ("10.0.0.6", "127.0.0.1", false),
        ] {
            let address = |text: &str| text.parse().expect("an address");
            assert_eq!(is_near(address(peer), address(here)), near, "{peer} to {here}");
        }
    }
}
