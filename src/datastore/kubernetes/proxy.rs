//! Through which proxy the API server is reached, decided as Kubernetes' own clients do: what the kubeconfig's cluster names
//! (`proxy-url`) is always used, what the environment names (`HTTPS_PROXY`, `HTTP_PROXY`) is not for the hosts of `NO_PROXY`
//! and never for this machine.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use tower::timeout::Timeout;
use tower::{BoxError, Service, ServiceBuilder};

use super::config::{CONNECT_TIMEOUT, ConfigError, Proxies};

/// The proxy to `server`: the one that the kubeconfig names, or one of the environment's.
///
/// # Errors
/// An address that names no proxy that we can use.
pub(super) fn choose(
    named: Option<&str>,
    environment: &Proxies,
    server: &Uri,
) -> Result<Option<Intercept>, ConfigError> {
    if let Some(named) = named {
        return parsed("proxy-url of the kubeconfig", named, server).map(Some);
    }
    let (name, proxy) = match server.scheme_str() {
        Some("http") => ("HTTP_PROXY", &environment.http),
        _ => ("HTTPS_PROXY", &environment.https),
    };
    let Some(proxy) = proxy.as_deref().filter(|_| !is_this_machine(server)) else { return Ok(None) };
    let direct = Matcher::builder().all("http://any").no(environment.no.as_str()).build().intercept(server).is_none();
    if direct { Ok(None) } else { parsed(name, proxy, server).map(Some) }
}

fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Reads a proxy's address. It may contain a password, so that errors do not repeat it.
fn parsed(name: &str, proxy: &str, server: &Uri) -> Result<Intercept, ConfigError> {
    let known = Matcher::builder().all(proxy).build().intercept(server);
    known.filter(|proxy| matches!(proxy.uri().scheme_str(), Some("http" | "socks5" | "socks5h"))).ok_or_else(|| {
        let reason = format!(
            "{name} is no address of a proxy that can be used; expected http://HOST:PORT or socks5://HOST:PORT, with \
             USER:PASSWORD@ before the host where the proxy asks for it"
        );
        ConfigError::Settings { reason }
    })
}

/// A client that reaches its server through a proxy.
pub(super) fn client(config: kube::Config, proxy: &Intercept) -> kube::Result<kube::Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let address = proxy.uri().clone();
    if proxy.uri().scheme_str() == Some("http") {
        let tunnel = Tunnel::new(address, tcp);
        return over(
            config,
            match proxy.basic_auth() {
                Some(auth) => tunnel.with_auth(auth.clone()),
                None => tunnel,
            },
        );
    }
    let socks = SocksV5::new(address, tcp);
    over(
        config,
        match proxy.raw_auth() {
            Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
            None => socks,
        },
    )
}

/// The library's client over a connector of our own: its own layers, but for its log lines.
fn over<C>(config: kube::Config, connector: C) -> kube::Result<kube::Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    // The words with the proxy count as well: it may take the connection and never answer.
    let connector = Timeout::new(connector, CONNECT_TIMEOUT);
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let sender: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(sender);
    Ok(kube::Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(named: Option<&str>, environment: &Proxies, server: &str) -> Result<Option<String>, String> {
        let proxy = choose(named, environment, &server.parse().unwrap()).map_err(|error| error.to_string())?;
        Ok(proxy.map(|proxy| proxy.uri().to_string()))
    }

    #[test]
    fn the_environment_counts_unless_the_server_is_excepted() {
        let environment = Proxies {
            https: Some("http://secure:3128".to_owned()),
            http: Some("plain:3128".to_owned()),
            no: "10.96.0.0/12, .cluster.local,,internal".to_owned(),
        };
        for (server, proxy) in [
            ("https://api.example.com:6443", Some("http://secure:3128/")),
            ("http://api.example.com:8080", Some("http://plain:3128/")),
            ("https://192.168.1.1", Some("http://secure:3128/")),
            ("https://10.96.0.1:443", None),
            ("https://10.112.0.1:443", Some("http://secure:3128/")),
            ("https://kubernetes.default.svc.cluster.local", None),
            ("https://internal:6443", None),
            ("https://localhost:6443", None),
            ("https://127.0.0.2:6443", None),
            ("https://[::1]:6443", None),
        ] {
            assert_eq!(chosen(None, &environment, server), Ok(proxy.map(str::to_owned)), "{server}");
        }
        assert_eq!(chosen(None, &Proxies::default(), "https://api"), Ok(None));
        let all = Proxies { no: "*".to_owned(), ..environment };
        assert_eq!(chosen(None, &all, "https://api.example.com"), Ok(None));
    }

    #[test]
    fn the_kubeconfig_counts_more_and_without_exception() {
        let environment =
            Proxies { https: Some("http://other:1".to_owned()), no: "*".to_owned(), ..Proxies::default() };
        let named = Some("socks5://user:pa%40ss@mine:1080");
        assert_eq!(chosen(named, &environment, "https://localhost:6443"), Ok(Some("socks5://mine:1080/".to_owned())));
        let proxy = choose(named, &environment, &Uri::from_static("https://api")).unwrap().unwrap();
        assert_eq!(proxy.raw_auth(), Some(("user", "pa@ss")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_never_answers_is_given_up() {
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        for scheme in ["http", "socks5"] {
            let named = format!("{scheme}://{}", proxy.local_addr().unwrap());
            let server = Uri::from_static("https://api.test");
            let chosen = choose(Some(&named), &Proxies::default(), &server).unwrap().unwrap();
            let began = tokio::time::Instant::now();
            let client = client(kube::Config::new(server), &chosen).unwrap();
            let (answer, silent) = tokio::join!(client.apiserver_version(), proxy.accept());
            assert!(answer.is_err() && silent.is_ok());
            assert!(
                began.elapsed() >= CONNECT_TIMEOUT && began.elapsed() < CONNECT_TIMEOUT * 2,
                "{:?}",
                began.elapsed()
            );
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_named_without_its_password() {
        for (named, https) in [
            (Some("ftp://u:hush@proxy"), None),
            (Some("https://u:hush@proxy"), None),
            (Some("http://u:hush@:::"), None),
            (None, Some("quic://u:hush@proxy".to_owned())),
        ] {
            let environment = Proxies { https, ..Proxies::default() };
            let said = chosen(named, &environment, "https://api").unwrap_err();
            let name = if named.is_some() { "proxy-url of the kubeconfig" } else { "HTTPS_PROXY" };
            assert!(said.contains(name) && said.contains("http://HOST:PORT") && !said.contains("hush"), "{said}");
            assert!(!format!("{environment:?}").contains("hush"));
        }
    }
}
