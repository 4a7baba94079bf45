//! Sends requests to the API server: within a rate, not before a pause that the server asked for is over, and with
//! credentials and authorities that are read again when one side refuses the other.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use rand::Rng as _;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::rustls;
use tracing::{debug, info, warn};

use super::config::{ConfigError, KubernetesConfig};
use super::failure::Failure;
use super::limit::RateLimit;
use super::load::Loaded;
use super::proxy;

/// The longest pause that a server may ask for: beyond it we would rather ask once in vain.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Over how long requests are spread that waited for the end of the same pause: a server that was too busy is not to get those
/// of all kinds in one instant. They are some thirty, so this makes one every 60 ms.
const SPREAD: Duration = Duration::from_secs(2);
/// How long the head of an answer may take. The API server gives up on ordinary requests after a minute.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(65);
/// How long a whole page or object may take from its head on.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest page or object that is accepted, in bytes: 500 objects of the largest size that etcd takes would be some 750 MB,
/// but a page of usual pods has 5 MB. A kind with larger pages gets smaller ones.
pub(super) const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;
/// Largest text of a failure that is read.
const MAX_FAILURE_BYTES: usize = 64 * 1024;
/// At most this often are credentials and authorities read again because one side refused the other.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// The API server, as we use it. Cheap to clone.
#[derive(Clone)]
pub(super) struct ApiClient {
    inner: Arc<Inner>,
}

struct Inner {
    client: ArcSwap<kube::Client>,
    /// Where the client comes from, to make it again; `None`: it was given to us.
    source: Option<KubernetesConfig>,
    server: String,
    rate: RateLimit,
    /// Until when the server asked all of us to wait.
    closed_until: Mutex<Option<Instant>>,
    reloaded: Mutex<Option<Instant>>,
}

impl ApiClient {
    /// A client from files and settings.
    pub(super) fn new(config: &KubernetesConfig) -> Result<Self, ConfigError> {
        let loaded = config.load()?;
        let server = loaded.config.cluster_url.to_string();
        let client = client_of(loaded)?;
        Ok(Self::build(client, Some(config.clone()), server, config))
    }

    /// Over a client that was made elsewhere.
    pub(super) fn fixed(client: kube::Client, config: &KubernetesConfig) -> Self {
        let server = config.endpoint.as_ref().map_or_else(|| "given client".to_owned(), ToString::to_string);
        Self::build(client, None, server, config)
    }

    fn build(
        client: kube::Client,
        source: Option<KubernetesConfig>,
        server: String,
        config: &KubernetesConfig,
    ) -> Self {
        let inner = Inner {
            client: ArcSwap::from_pointee(client),
            source,
            server: server.trim_end_matches('/').to_owned(),
            rate: RateLimit::new(config.qps, config.burst),
            closed_until: Mutex::new(None),
            reloaded: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The address, for people.
    pub(super) fn server(&self) -> &str {
        &self.inner.server
    }

    /// The library's client, for requests that do not go through here. Without our bounds.
    pub(super) fn library(&self) -> kube::Client {
        (**self.inner.client.load()).clone()
    }

    /// Reads something whole.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn get(&self, path_and_query: &str) -> Result<bytes::Bytes, Failure> {
        self.get_at_most(path_and_query, MAX_BODY_BYTES).await
    }

    /// The same, of at most so many bytes.
    pub(super) async fn get_at_most(&self, path_and_query: &str, bytes: usize) -> Result<bytes::Bytes, Failure> {
        let response = self.open(path_and_query).await?;
        whole(response.into_body(), bytes).await
    }

    /// Begins to read something; the body comes as it comes.
    pub(super) async fn open(&self, path_and_query: &str) -> Result<Response<Body>, Failure> {
        let request = Request::get(path_and_query).header(ACCEPT, "application/json").body(Body::empty());
        self.send(request).await
    }

    /// Writes an object.
    pub(super) async fn write(&self, method: Method, path: &str, body: Vec<u8>) -> Result<bytes::Bytes, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(body));
        let response = self.send(request).await?;
        whole(response.into_body(), MAX_BODY_BYTES).await
    }

    async fn send(&self, request: http::Result<Request<Body>>) -> Result<Response<Body>, Failure> {
        let request = request.map_err(|error| Failure::Refused(format!("this makes no request: {error}")))?;
        self.wait_until_open().await;
        self.inner.rate.turn().await;
        let client = self.library();
        let response = match timeout(ANSWER_TIMEOUT, client.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                // While the server is away, attempts must not use up what it can take when it is back.
                self.inner.rate.give_back();
                let failure = Failure::of_client(&error);
                if matches!(failure, Failure::Unauthorized(_)) || is_tls(&error) {
                    self.reload();
                }
                return Err(failure);
            }
            Err(_) => return Err(Failure::retry(format!("no answer within {ANSWER_TIMEOUT:?}"))),
        };
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        // A failure's text that cannot be read changes nothing about the failure.
        let body = whole(response.into_body(), MAX_FAILURE_BYTES).await.unwrap_or_default();
        let failure = Failure::of_answer(code, retry_after, &body);
        self.learn(code, &failure);
        Err(failure)
    }

    /// Waits until no pause is asked for any more, and a while of its own after each.
    async fn wait_until_open(&self) {
        let closed_until = || *self.inner.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(until) = closed_until().filter(|until| *until > Instant::now()) {
            sleep_until(until + spread()).await;
        }
    }

    /// Keeps in mind what a failure means for further requests.
    fn learn(&self, code: StatusCode, failure: &Failure) {
        match failure {
            Failure::Retry { after: Some(after), .. } if code == StatusCode::TOO_MANY_REQUESTS => {
                let until = Instant::now() + (*after).min(LONGEST_RETRY_AFTER);
                let mut closed = self.inner.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
                if closed.is_none_or(|already| already < until) {
                    *closed = Some(until);
                }
            }
            Failure::Unauthorized(_) => self.reload(),
            _ => {}
        }
    }

    /// Reads the configuration's files again: a token, a certificate or the authorities may have been replaced.
    fn reload(&self) {
        let Some(source) = &self.inner.source else { return };
        {
            let mut reloaded = self.inner.reloaded.lock().unwrap_or_else(PoisonError::into_inner);
            if reloaded.is_some_and(|at| at.elapsed() < RELOAD_INTERVAL) {
                return;
            }
            *reloaded = Some(Instant::now());
        }
        match source.load().and_then(client_of) {
            Ok(client) => {
                self.inner.client.store(Arc::new(client));
                debug!(server = self.server(), "credentials and authorities for the API server are read again");
            }
            Err(error) => {
                warn!(server = self.server(), %error, "credentials and authorities for the API server cannot be read again");
            }
        }
    }
}

/// When to ask again after a server asked for a pause.
pub(super) fn end_of_pause(asked_for: Duration) -> Instant {
    Instant::now() + asked_for.min(LONGEST_RETRY_AFTER) + spread()
}

fn spread() -> Duration {
    rand::rng().random_range(Duration::ZERO..SPREAD)
}

fn client_of(Loaded { config, proxy }: Loaded) -> Result<kube::Client, ConfigError> {
    let client = match proxy {
        Some(proxy) => {
            info!(proxy = %proxy.uri(), server = %config.cluster_url, "the API server is reached through a proxy");
            proxy::client(config, &proxy)
        }
        None => kube::Client::try_from(config),
    };
    client.map_err(|error| ConfigError::Settings { reason: error.to_string() })
}

/// Whether a connection failed because one side does not accept the other's certificate, or for another reason within TLS.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<rustls::Error>() {
            return true;
        }
        // An error in there is none of its sources, but that one's sources are.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if wrapped.is_some_and(|wrapped| is_tls(wrapped)) {
            return true;
        }
        cause = error.source();
    }
    false
}

async fn whole(body: Body, limit: usize) -> Result<bytes::Bytes, Failure> {
    match timeout(BODY_TIMEOUT, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Failure::TooLarge(format!("the answer has more than {limit} bytes")))
        }
        Ok(Err(error)) => Err(Failure::retry(format!("the answer broke off: {error}"))),
        Err(_) => Err(Failure::retry(format!("the answer was not complete within {BODY_TIMEOUT:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server with a certificate of an authority of its own, whose certificate is written to the file.
    fn acceptor(ca_file: &Path) -> TlsAcceptor {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(ca_file, ca.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Takes one connection, and answers one request if it comes to that.
    async fn serve_once(listener: &TcpListener, acceptor: &TlsAcceptor) {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        let mut request = [0; 4096];
        if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_user_in_the_servers_address_is_not_shown() {
        let endpoint = "https://someone:hush@api.test:6443/path".to_owned();
        let config = KubernetesConfig { endpoint: Some(endpoint.into()), ..KubernetesConfig::default() };
        let loaded = config.load().unwrap();
        // The library logs the address that it makes of this.
        assert_eq!(loaded.config.cluster_url.to_string(), "https://api.test:6443/path");
        let client = ApiClient::new(&config).unwrap();
        assert_eq!(client.server(), "https://api.test:6443/path");
        let given = ApiClient::fixed((**client.inner.client.load()).clone(), &config);
        assert_eq!(given.server(), "https://***@api.test:6443/path");
        assert!(!format!("{config:?}").contains("hush"), "{config:?}");
    }

    #[tokio::test]
    async fn authorities_that_were_replaced_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.crt");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut server = acceptor(&ca_file);
        let config = KubernetesConfig {
            endpoint: Some(format!("https://localhost:{port}").into()),
            ca_file: Some(ca_file.clone()),
            ..KubernetesConfig::default()
        };
        let client = ApiClient::new(&config).unwrap();
        let ask = async |server: &TlsAcceptor| tokio::join!(client.get("/"), serve_once(&listener, server)).0;
        assert_eq!(ask(&server).await.unwrap(), "{}");
        // With the authority and the server's certificate, both at once.
        server = acceptor(&ca_file);
        let Err(Failure::Retry { reason, .. }) = ask(&server).await else { panic!("the authority is another one") };
        assert!(reason.contains("certificate"), "{reason}");
        assert_eq!(ask(&server).await.unwrap(), "{}", "read again");
    }
}
