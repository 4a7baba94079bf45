//! Real sockets, and listeners that fail.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use prometheus::Registry;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::harness::*;
use crate::calico::syncers::FELIX;
use crate::metrics::{ServerMetrics, SyncerMetrics};
use crate::model::{SyncStatus, SyncerEvent};
use crate::outlet::Outlet as _;
use crate::snapcache::SnapCache;
use crate::syncserver::{Bound, Config, Listener, Metrics, Server, TcpInlet};

async fn bind(config: Config) -> io::Result<(Bound<TcpInlet>, SnapCache)> {
    let felix_metrics = SyncerMetrics::unregistered();
    let (felix, reader) = SnapCache::new(100, felix_metrics.clone());
    let metrics =
        Metrics { server: ServerMetrics::new(&Registry::new()), syncers: BTreeMap::from([(FELIX, felix_metrics)]) };
    let bound = Server::bind(config, BTreeMap::from([(FELIX, reader)]), metrics, None).await?;
    Ok((bound, felix))
}

#[tokio::test]
async fn tcp_clients_of_both_families_get_the_content() {
    let (bound, mut felix) = bind(Config { port: 0, ..config() }).await.expect("a free port");
    let port = bound.local_addr().expect("bound").port();
    assert_ne!(port, 0);
    let handle = bound.handle();
    let run = tokio::spawn(bound.run(|| {}));
    let entries = (0..5000).map(|n| update(&format!("/k/{n}"), Some(&[b'x'; 500]))).collect();
    felix.apply(vec![SyncerEvent::Updates(entries), SyncerEvent::Status(SyncStatus::InSync)]);
    let mut clients = Vec::new();
    for speech in Speech::all() {
        for host in ["127.0.0.1", "::1"] {
            // Where there is no IPv6, the server listens on IPv4 alone.
            let Ok(stream) = TcpStream::connect((host, port)).await else { continue };
            let mut client = Client::new(stream, speech.clone());
            client.hello("felix").await;
            client.until("in sync", |client| client.status == SyncStatus::InSync).await;
            assert_eq!(client.map.len(), 5000);
            clients.push(client);
        }
    }
    assert!(clients.len() >= 5);
    felix.apply(vec![SyncerEvent::Updates(vec![update("/new", Some(b"1"))])]);
    for client in &mut clients {
        client.until("the change", |client| client.map.contains_key("/new")).await;
    }
    handle.stop();
    run.await.expect("no panic").expect("it ends well");
    for client in &mut clients {
        client.until_closed().await;
    }
}

#[tokio::test]
async fn connected_clients_get_changes_while_the_threads_of_connections_are_busy() {
    let agents = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (bound, mut felix) = bind(Config { port: 0, ..config() }).await.expect("a free port");
    let (port, handle) = (bound.local_addr().expect("bound").port(), bound.handle());
    let run = agents.spawn(bound.run(|| {}));
    felix.apply(vec![SyncerEvent::Status(SyncStatus::InSync)]);
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let mut client = Client::new(stream, Speech::GobSnappy);
    client.hello("felix").await;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    // A task that blocks the only thread of the connections, as thousands of new clients would. The client rests.
    let ((busy, is_busy), (free, may_end)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    agents.spawn(async move {
        busy.send(()).expect("the test waits");
        may_end.recv().expect("the test ends it");
    });
    is_busy.recv().expect("it runs");
    for key in ["/a", "/b"] {
        felix.apply(vec![SyncerEvent::Updates(vec![update(key, Some(b"1"))])]);
        let change = client.until("the change", |client| client.map.contains_key(key));
        timeout(Duration::from_secs(30), change).await.expect("it comes while the other threads are busy");
    }
    free.send(()).expect("it waits");
    handle.stop();
    run.await.expect("no panic").expect("it ends well");
    agents.shutdown_background();
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_it() {
    let (first, _felix) = bind(Config { host: "127.0.0.1".to_owned(), port: 0, ..config() }).await.expect("free");
    let port = first.local_addr().expect("bound").port();
    let second = bind(Config { host: "127.0.0.1".to_owned(), port, ..config() }).await;
    let error = second.map(|_| ()).expect_err("taken").to_string();
    assert!(error.contains(&format!("listen on 127.0.0.1:{port}")), "{error}");
}

/// Fails a number of times before each connection.
struct Failing {
    inlet: Inlet,
    failures: u32,
    left: u32,
}

impl Listener for Failing {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        if self.left > 0 {
            self.left -= 1;
            // The error when file descriptors have run out.
            return Err(io::Error::from_raw_os_error(24));
        }
        let accepted = self.inlet.accept().await;
        self.left = self.failures;
        accepted
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inlet.local_addr()
    }
}

#[tokio::test(start_paused = true)]
async fn accept_is_tried_again_after_pauses_and_present_clients_do_not_notice() {
    let mut world = World::with(config(), None, |inlet| Failing { inlet, failures: 10, left: 0 });
    let mut first = world.connect(Speech::GobSnappy).await;
    first.until("hello", |client| client.greeted).await;
    let began = Instant::now();
    let mut second = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    second.hello("felix").await;
    world.put(&[("/a", "1")]);
    first.until("the key", |client| client.map.len() == 1).await;
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    second.until("the key", |client| client.map.len() == 1).await;
    // 5 + 10 + … + 640 + 1000 + 1000 ms of pauses.
    let took = began.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    assert!(world.server_metrics.accept_errors.get() >= 10);
}
