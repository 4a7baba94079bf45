//! The governor and the end of the server.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::harness::*;
use crate::model::SyncStatus;
use crate::outlet::Outlet as _;
use crate::outlet::peers::Peers;
use crate::syncserver::Config;

async fn connect_all(world: &World, n: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..n {
        let mut client = world.connect(Speech::native("none")).await;
        client.until("hello", |client| client.greeted).await;
        clients.push(client);
    }
    assert_eq!(world.handle.connections(), n);
    clients
}

#[tokio::test(start_paused = true)]
async fn the_governor_drops_the_newest_and_only_the_excess() {
    let world = World::new(Config { drop_interval: Duration::from_millis(50), ..config() });
    let mut clients = connect_all(&world, 100).await;
    world.handle.set_max_connections(60);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let dropped = &world.server_metrics.connections_dropped;
    assert!((10..=30).contains(&dropped.get()), "{} after a second", dropped.get());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(dropped.get(), 40);
    assert_eq!(world.handle.connections(), 60);
    assert_eq!(world.closed("rebalanced"), 40);
    let goodbye = clients.pop().expect("some").until_closed().await.expect("a goodbye");
    assert!(goodbye.contains("spread"), "{goodbye}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_clients_ends_at_once() {
    let world = World::new(config());
    let began = Instant::now();
    world.handle.drain();
    timeout(PATIENCE, world.run).await.expect("it ends").expect("no panic").expect("it ends well");
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
}

async fn drains_one_per(config: Config, within: Duration, steady: Duration) {
    let mut world = World::new(config);
    world.status(SyncStatus::InSync);
    let clients = connect_all(&world, 5).await;
    world.handle.drain();
    for left in (0..5).rev() {
        let began = Instant::now();
        eventually("one fewer", || world.handle.connections() == left).await;
        assert!(began.elapsed() <= within, "{left} left after {:?}", began.elapsed());
        if left > 0 {
            tokio::time::sleep(steady).await;
            assert_eq!(world.handle.connections(), left, "not more than one at a time");
        }
    }
    timeout(PATIENCE, world.run).await.expect("it ends").expect("no panic").expect("it ends well");
    drop(clients);
}

#[tokio::test(start_paused = true)]
async fn a_drain_closes_one_connection_per_second_when_there_is_time() {
    drains_one_per(config(), Duration::from_millis(1500), Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_goes_faster_when_there_is_little_time() {
    let config = Config { shutdown_timeout: Duration::from_millis(2500), ..config() };
    drains_one_per(config, Duration::from_millis(750), Duration::from_millis(250)).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_drains_present_clients_are_served_and_new_ones_are_not() {
    let mut world = World::new(config());
    let mut clients = connect_all(&world, 3).await;
    world.handle.drain();
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.put(&[("/a", "1")]);
    for client in &mut clients {
        client.until("the key", |client| client.map.len() == 1).await;
    }
    assert_eq!(world.server_metrics.connections_accepted.get(), 3);
    let goodbye = clients.pop().expect("some").until_closed().await.expect("a goodbye");
    assert!(goodbye.contains("shutting down"), "{goodbye}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_drain_even_when_clients_are_stuck() {
    let mut world = World::new(config());
    let value = "x".repeat(100_000);
    world.put(&[("/a", &value)]);
    // It never reads: its snapshot is stuck in the pipe.
    let mut stuck = Client::new(world.dial(512).await, Speech::GobPlain);
    stuck.hello("felix").await;
    let clients = connect_all_but_one(&world).await;
    world.handle.drain();
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.handle.stop();
    let began = Instant::now();
    timeout(PATIENCE, world.run).await.expect("it ends").expect("no panic").expect("it ends well");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    drop((stuck, clients));
}

async fn connect_all_but_one(world: &World) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = world.connect(Speech::GobSnappy).await;
        client.until("hello", |client| client.greeted).await;
        clients.push(client);
    }
    clients
}

/// Ten other servers, and this one as it is listed.
fn peers() -> Peers {
    let all = (0..=10_u8).map(|host| vec![([10, 1, 0, host], 5473).into()]);
    Peers::new(all, &[([10, 1, 0, 0], 5473).into()])
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_to_leave_is_told_where_to_go() {
    let world = World::new(Config { drop_interval: Duration::from_millis(50), ..config() });
    world.handle.set_peers(peers());
    let mut clients = connect_all(&world, 6).await;
    world.handle.set_max_connections(4);
    eventually("two are dropped", || world.handle.connections() == 4).await;
    let mut orders = Vec::new();
    for client in clients.drain(4..) {
        let mut client = client;
        let goodbye = client.until_goodbye().await.expect("a goodbye");
        assert_eq!(goodbye.alternatives.len(), 8, "{:?}", goodbye.alternatives);
        assert!(!goodbye.alternatives.contains(&"10.1.0.0:5473".to_owned()), "not back to the same");
        orders.push(goodbye.alternatives);
    }
    assert_ne!(orders[0], orders[1], "each connection has its own order");

    world.handle.stop();
    let goodbye = clients.remove(0).until_goodbye().await.expect("a goodbye");
    assert!(goodbye.reason.contains("stopped") && goodbye.alternatives.len() == 8, "{goodbye:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_sends_all_clients_elsewhere() {
    let world = World::new(config());
    world.handle.set_peers(peers());
    let clients = connect_all(&world, 3).await;
    world.handle.drain();
    for mut client in clients {
        let goodbye = client.until_goodbye().await.expect("a goodbye");
        assert!(goodbye.reason.contains("shutting down") && goodbye.alternatives.len() == 8, "{goodbye:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_in_its_handshake_is_told_too() {
    let world = World::new(config());
    world.handle.set_peers(peers());
    let mut client = Client::new(world.dial(64 << 10).await, Speech::native("none"));
    // Enough of the hello that the server knows the protocol.
    client.send(&crate::syncproto::native::MAGIC).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.handle.drain();
    let goodbye = client.until_goodbye().await.expect("a goodbye");
    assert!(goodbye.reason.contains("shutting down") && goodbye.alternatives.len() == 8, "{goodbye:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_refused_is_sent_nowhere() {
    let world = World::new(config());
    world.handle.set_peers(peers());
    let mut client = Client::new(world.dial(64 << 10).await, Speech::native("none"));
    client.hello("no-such").await;
    let goodbye = client.until_goodbye().await.expect("a goodbye");
    assert_eq!(goodbye.alternatives, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn calicos_clients_are_dropped_without_a_word() {
    let world = World::new(Config { drop_interval: Duration::from_millis(50), ..config() });
    world.handle.set_peers(peers());
    let mut client = world.connect(Speech::GobSnappy).await;
    client.until("hello", |client| client.greeted).await;
    world.handle.set_max_connections(0);
    assert_eq!(client.until_goodbye().await, None);
    assert_eq!(world.closed("rebalanced"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_rises_while_connections_are_dropped_ends_the_dropping() {
    let world = World::new(Config { drop_interval: Duration::from_millis(50), ..config() });
    let _clients = connect_all(&world, 40).await;
    world.handle.set_max_connections(10);
    eventually("some are dropped", || world.handle.connections() <= 30).await;
    world.handle.set_max_connections(25);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.handle.connections(), 25);
    world.handle.set_max_connections(10_000);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((world.handle.connections(), world.server_metrics.connections_dropped.get()), (25, 15));
    assert_eq!(world.server_metrics.connections_limit.get(), 10_000);
}
