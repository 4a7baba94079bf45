//! The client against the real server, over every protocol: through memory with connections that are cut, and over TCP with
//! TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use prometheus::Registry;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::*;
use crate::calico::syncers::FELIX;
use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::SyncerEvent;
use crate::outlet::Outlet as _;
use crate::snapcache::{Reader, SnapCache};
use crate::syncserver::{Config, Handle as ServerHandle, Listener, Metrics, Server as RealServer, TlsSource};

/// Connections through memory.
struct Inlet(mpsc::Receiver<DuplexStream>);

impl Listener for Inlet {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((stream, ([10, 0, 0, 1], 1).into())),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(([127, 0, 0, 1], 5473).into())
    }
}

/// A cache, and the parts of a server for it.
fn cache() -> (SnapCache, BTreeMap<SyncerName, Reader>, Metrics) {
    let syncer_metrics = SyncerMetrics::unregistered();
    let (cache, reader) = SnapCache::new(100, syncer_metrics.clone());
    let metrics =
        Metrics { server: ServerMetrics::new(&Registry::new()), syncers: BTreeMap::from([(FELIX, syncer_metrics)]) };
    (cache, BTreeMap::from([(FELIX, reader)]), metrics)
}

/// Servers by address; all connections can be cut at once.
#[derive(Clone, Default)]
struct Network {
    servers: Arc<Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>>>,
    /// Tasks that carry bytes.
    lines: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Network {
    /// Starts a server at an address.
    fn start(&self, address: &str) -> (SnapCache, ServerHandle, Reader) {
        let (cache, caches, metrics) = cache();
        let reader = caches[&FELIX].clone();
        let (dial, inlet) = mpsc::channel(16);
        let config = Config { seed: 7, ..Config::default() };
        let bound = RealServer::with_listener(Inlet(inlet), config, caches, metrics, None);
        let handle = bound.handle();
        tokio::spawn(bound.run(|| {}));
        self.servers.lock().unwrap().insert(address.to_owned(), dial);
        (cache, handle, reader)
    }

    fn remove(&self, address: &str) {
        self.servers.lock().unwrap().remove(address);
        self.cut();
    }

    fn cut(&self) {
        for line in self.lines.lock().unwrap().drain(..) {
            line.abort();
        }
    }
}

impl Connector for Network {
    type Stream = DuplexStream;

    async fn connect(&self, address: &str) -> io::Result<DuplexStream> {
        let dial = self.servers.lock().unwrap().get(address).cloned();
        let dial = dial.ok_or_else(|| io::Error::other("nobody is there"))?;
        let (near, mut middle) = duplex(4 << 10);
        let (mut behind, far) = duplex(4 << 10);
        let line = tokio::spawn(async move {
            let _ = tokio::io::copy_bidirectional(&mut middle, &mut behind).await;
        });
        self.lines.lock().unwrap().push(line);
        dial.send(far).await.map_err(|_| io::Error::other("the server is gone"))?;
        Ok(near)
    }
}

fn protocols() -> Vec<Protocol> {
    let native = |compression| Protocol::Native { compressions: vec![compression] };
    vec![
        Protocol::Calico { compression: true },
        Protocol::Calico { compression: false },
        native(Compression::None),
        native(Compression::Snappy),
        native(Compression::Zstd),
    ]
}

fn put(cache: &mut SnapCache, content: &[(&str, &str)]) {
    let updates = updates(content).into_iter().map(|update| (*update).clone()).collect();
    cache.apply(vec![SyncerEvent::Updates(updates)]);
}

fn status(cache: &mut SnapCache, status: SyncStatus) {
    cache.apply(vec![SyncerEvent::Status(status)]);
}

/// Row TestReconnection of Calico's suite, with real servers on both sides.
#[tokio::test(start_paused = true)]
async fn reconnection_follows_the_current_server() {
    for protocol in protocols() {
        let network = Network::default();
        let (mut first, ..) = network.start("a");
        put(&mut first, &[("/a", "1"), ("/b", "1"), ("/c", "1")]);
        status(&mut first, SyncStatus::InSync);
        let (mut second, ..) = network.start("b");
        put(&mut second, &[("/b", "2"), ("/c", "1"), ("/d", "2")]);
        status(&mut second, SyncStatus::InSync);

        let mut client = builder(&["a", "b"]).protocol(protocol.clone()).start_with(network.clone()).unwrap();
        let heard = hear(&mut client, "in-sync").await;
        assert_eq!(heard, ["connected a", "resync", "+/a +/b +/c", "in-sync"], "{protocol:?}");
        network.cut();
        let heard = hear(&mut client, "in-sync").await;
        assert_eq!(heard[1..], ["resync", "connected b", "~/b +/d", "-/a", "in-sync"], "{protocol:?}");
        put(&mut second, &[("/e", "1"), ("/b", "")]);
        assert_eq!(hear(&mut client, "+/e").await, ["+/e -/b"], "{protocol:?}");
        network.cut();
        let heard = hear(&mut client, "in-sync").await;
        assert_eq!(heard[1..], ["resync", "connected a", "+/a +/b", "-/d -/e", "in-sync"], "{protocol:?}");
    }
}

/// Row TestReconnectionNewServerNotInSync, likewise.
#[tokio::test(start_paused = true)]
async fn reconnection_to_a_server_that_is_not_in_sync_keeps_the_union() {
    for protocol in protocols() {
        let network = Network::default();
        let (mut first, ..) = network.start("a");
        put(&mut first, &[("/a", "1"), ("/b", "1")]);
        status(&mut first, SyncStatus::InSync);
        let (mut second, ..) = network.start("b");
        put(&mut second, &[("/b", "2")]);
        status(&mut second, SyncStatus::ResyncInProgress);
        let mut client = builder(&["a", "b"]).protocol(protocol.clone()).start_with(network.clone()).unwrap();
        hear(&mut client, "in-sync").await;
        network.cut();
        let heard = hear(&mut client, "~/b").await;
        assert_eq!(heard[1..], ["resync", "connected b", "~/b"], "{protocol:?}");
        put(&mut second, &[("/c", "2")]);
        assert_eq!(hear(&mut client, "+/c").await, ["+/c"], "{protocol:?}");
        status(&mut second, SyncStatus::InSync);
        assert_eq!(hear(&mut client, "in-sync").await, ["-/a", "in-sync"], "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_stays_and_acknowledges() {
    const IDLE: Duration = Duration::from_secs(600);
    // A client that did not answer pings would be cut.
    assert!(Config::default().pong_timeout < IDLE);
    for protocol in protocols() {
        let network = Network::default();
        let (mut cache, handle, _) = network.start("a");
        put(&mut cache, &[("/a", "1")]);
        status(&mut cache, SyncStatus::InSync);
        let mut client = builder(&["a"]).protocol(protocol.clone()).start_with(network).unwrap();
        hear(&mut client, "in-sync").await;
        let next = tokio::time::timeout(IDLE, client.next()).await;
        assert!(next.is_err(), "{protocol:?}: {next:?}");
        let clients = handle.clients();
        let [there] = &clients[..] else { panic!("{protocol:?}: one client is connected: {clients:?}") };
        // Calico's protocol has no acknowledgement of updates.
        let applied = matches!(protocol, Protocol::Native { .. }).then_some(there.sequence);
        assert_eq!(there.applied, applied, "{protocol:?}");
        assert!(there.sequence > 0, "{protocol:?}: something was sent");
        client.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_prefix_filter_holds_from_end_to_end() {
    for protocol in protocols() {
        let network = Network::default();
        let (mut cache, ..) = network.start("a");
        put(&mut cache, &[("/a/1", "1"), ("/b/1", "1"), ("/c/1", "1")]);
        status(&mut cache, SyncStatus::InSync);
        let builder = builder(&["a"]).protocol(protocol.clone()).prefixes(["/a", "/c"]);
        let mut client = builder.start_with(network).unwrap();
        let heard = hear(&mut client, "in-sync").await;
        assert_eq!(heard, ["connected a", "resync", "+/a/1 +/c/1", "in-sync"], "{protocol:?}");
        put(&mut cache, &[("/b/1", "2")]);
        put(&mut cache, &[("/c/1", "2"), ("/b/1", "")]);
        assert_eq!(hear(&mut client, "~").await, ["~/c/1"], "{protocol:?}");
    }
}

/// A consumer's data and status. Refuses events that contradict them.
#[derive(Default)]
struct Consumer {
    content: BTreeMap<Key, Value>,
    status: Option<SyncStatus>,
}

impl Consumer {
    fn apply(&mut self, event: SyncEvent) {
        match event {
            SyncEvent::Status(status) => self.status = Some(status),
            SyncEvent::Updates(updates) => {
                for update in updates {
                    match update.value {
                        Some(value) => {
                            let before = self.content.insert(update.key.clone(), value.clone());
                            let new = update.update_type == UpdateType::New;
                            assert_eq!(new, before.is_none(), "{}", update.key);
                            assert_ne!(before, Some(value), "{}", update.key);
                        }
                        None => assert!(self.content.remove(&update.key).is_some(), "{}", update.key),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Many changes, cut connections, a second server that takes over, a consumer at its own pace: in the end it holds what the
/// last server holds.
#[expect(clippy::print_stdout, reason = "the seed of a run that fails")]
#[tokio::test(start_paused = true)]
async fn under_churn_and_cuts_the_consumer_ends_with_the_map() {
    const STEPS: usize = 300;
    let names: Vec<String> = (0..60).map(|n| format!("/k/{n:02}")).collect();
    for (seed, protocol) in protocols().into_iter().enumerate() {
        let seed = 11 + seed as u64;
        println!("seed {seed}, {protocol:?}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let network = Network::default();
        let (mut cache, _, mut reader) = network.start("a");
        status(&mut cache, SyncStatus::InSync);
        let builder = builder(&["a", "b"]).protocol(protocol.clone()).prefixes(["/k", "/end"]).seed(seed);
        let mut client = builder.start_with(network.clone()).unwrap();
        let mut consumer = Consumer::default();
        for step in 0..STEPS {
            if step == STEPS / 2 {
                // Another server with other content takes over.
                let (mut next, _, of_next) = network.start("b");
                put(&mut next, &[("/k/00", "other"), ("/k/99", "other")]);
                status(&mut next, SyncStatus::ResyncInProgress);
                (cache, reader) = (next, of_next);
                network.remove("a");
            }
            let mut batch: Vec<(&str, String)> = Vec::new();
            for _ in 0..rng.random_range(0..30) {
                let name = names.choose(&mut rng).unwrap();
                let size = if rng.random_bool(0.1) { 2000 } else { 10 };
                let value = if rng.random_bool(0.3) { String::new() } else { format!("{step}").repeat(size) };
                batch.push((name, value));
            }
            let batch: Vec<(&str, &str)> = batch.iter().map(|(name, value)| (*name, value.as_str())).collect();
            put(&mut cache, &batch);
            if rng.random_bool(0.05) {
                let to = *[SyncStatus::ResyncInProgress, SyncStatus::InSync].choose(&mut rng).unwrap();
                status(&mut cache, to);
            }
            if rng.random_bool(0.05) {
                network.cut();
            }
            for _ in 0..rng.random_range(0..4) {
                let wait = Duration::from_millis(rng.random_range(0..200));
                if let Ok(Some(event)) = tokio::time::timeout(wait, client.next()).await {
                    consumer.apply(event);
                }
            }
        }
        put(&mut cache, &[("/end", "1")]);
        status(&mut cache, SyncStatus::ResyncInProgress);
        status(&mut cache, SyncStatus::InSync);
        let ending = async {
            while !(consumer.content.contains_key("/end") && consumer.status == Some(SyncStatus::InSync)) {
                consumer.apply(client.next().await.expect("the client goes on"));
            }
        };
        tokio::time::timeout(Duration::from_secs(1000), ending).await.expect("the client gets in sync");
        let map = reader.newest().map.clone();
        let differ = |key: &&Key| map.get(*key).and_then(|update| update.value.as_ref()) != consumer.content.get(*key);
        let wrong: Vec<&Key> = map.keys().chain(consumer.content.keys()).filter(differ).collect();
        assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");
        assert!(map.len() > 10, "seed {seed}: a test of nothing");
    }
}

/// Writes keys and certificates of a fresh CA into a folder: `server.*`, `client.*`, `ca`.
fn certificates(folder: &std::path::Path) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join("ca"), ca.pem()).unwrap();
    for name in ["server", "client", "stranger"] {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("typha-{name}"));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
    }
}

#[tokio::test]
async fn over_tcp_with_tls_only_the_right_client_gets_data() {
    use crate::tls::{ClientTls, ClientTlsConfig, PeerIdentity, Policy, ServerTls, ServerTlsConfig};
    let folder = tempfile::TempDir::new().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name);
    let is = |name: &str| PeerIdentity::new(Some(name.to_owned()), None).unwrap();
    let config = ServerTlsConfig::mutual(file("server.key"), file("server.crt"), file("ca"), is("typha-client"));
    let tls = ServerTls::load(config).unwrap();
    let source: TlsSource = Arc::new(move || tls.acceptor());
    let (mut cache, caches, metrics) = cache();
    put(&mut cache, &[("/a", "1")]);
    status(&mut cache, SyncStatus::InSync);
    let config = Config { host: "127.0.0.1".to_owned(), port: 0, ..Config::default() };
    let bound = RealServer::bind(config, caches, metrics, Some(source)).await.unwrap();
    let address = bound.local_addr().unwrap().to_string();
    tokio::spawn(bound.run(|| {}));

    let tls = |name: &str| {
        ClientTls::load(ClientTlsConfig {
            key_file: file(&format!("{name}.key")),
            cert_file: file(&format!("{name}.crt")),
            ca_file: file("ca"),
            identity: is("typha-server"),
            policy: Policy::default(),
        })
        .unwrap()
    };
    for protocol in [Protocol::Calico { compression: true }, Protocol::Native { compressions: vec![] }] {
        let client = || Client::builder([address.clone()]).protocol(protocol.clone()).max_attempts(1);
        let mut good = client().tls(tls("client")).start().unwrap();
        assert_eq!(hear(&mut good, "in-sync").await[1..], ["resync", "+/a", "in-sync"]);
        for refused in [client().tls(tls("stranger")), client()] {
            let mut refused = refused.start().unwrap();
            let mut heard = Vec::new();
            while let Some(event) = refused.next().await {
                heard.push(short(&event));
            }
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert!(heard[0].ends_with(", giving up"), "{heard:?}");
        }
    }
}
