//! TLS under the protocol: handshakes that stall, fail, or succeed. Other tests check which certificates are accepted.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::harness::*;
use crate::model::SyncStatus;
use crate::syncserver::{Config, TlsSource};

fn both_ends() -> (TlsSource, TlsConnector) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["typha-server".to_owned()]).expect("made");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("they belong together");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a certificate");
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    (Arc::new(move || acceptor.clone()), TlsConnector::from(Arc::new(client)))
}

async fn connect(world: &World, connector: &TlsConnector, speech: Speech) -> Client<TlsStream<DuplexStream>> {
    let name = ServerName::try_from("typha-server").expect("a name");
    let stream = connector.connect(name, world.dial(8192).await).await.expect("handshake");
    let mut client = Client::new(stream, speech);
    client.hello("felix").await;
    client
}

#[tokio::test(start_paused = true)]
async fn the_stream_is_the_same_under_tls() {
    let (tls, connector) = both_ends();
    for speech in Speech::all() {
        let mut world = World::with(config(), Some(tls.clone()), |inlet| inlet);
        let keys: Vec<String> = (0..2000).map(|n| format!("/k/{n}")).collect();
        world.put(&keys.iter().map(|key| (key.as_str(), "some value")).collect::<Vec<_>>());
        world.status(SyncStatus::InSync);
        let mut client = connect(&world, &connector, speech).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        assert_eq!(client.map.len(), 2000);
        world.put(&[("/new", "1")]);
        client.until("the change", |client| client.map.contains_key("/new")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_half_open_handshake_ends_in_time_and_hinders_nobody() {
    let (tls, connector) = both_ends();
    let mut world = World::with(config(), Some(tls), |inlet| inlet);
    world.status(SyncStatus::InSync);
    let mut half_open = world.dial(8192).await;
    half_open.write_all(&[0x16, 0x03, 0x01]).await.expect("sent");
    let began = Instant::now();
    let mut client = connect(&world, &connector, Speech::GobSnappy).await;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(world.server_metrics.connections_active.get(), 2, "the half-open one counts");
    let mut rest = Vec::new();
    let _end = timeout(PATIENCE, half_open.read_to_end(&mut rest)).await.expect("closed");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(8) && took <= Duration::from_secs(12), "{took:?}");
    eventually("counted", || world.closed("handshake-timeout") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_tls_is_refused() {
    let (tls, _) = both_ends();
    let world = World::with(config(), Some(tls), |inlet| inlet);
    let mut client = world.connect(Speech::GobSnappy).await;
    let mut rest = Vec::new();
    let _end = timeout(PATIENCE, client.io.read_to_end(&mut rest)).await.expect("closed");
    eventually("counted", || world.closed("tls-failed") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_cut_under_tls_as_well() {
    let (tls, connector) = both_ends();
    let short = Config { write_timeout: Duration::from_millis(250), ..config() };
    let mut world = World::with(short, Some(tls), |inlet| inlet);
    let value = "x".repeat(1_000_000);
    world.put(&[("/a", &value)]);
    let mut client = connect(&world, &connector, Speech::GobPlain).await;
    client.until("hello", |client| client.greeted).await;
    let began = Instant::now();
    eventually("it is cut", || world.closed("write-timeout") == 1).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
