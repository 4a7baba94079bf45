//! The choice of a server: addresses that are given, found, or named in a goodbye.

use serde_json::json;

use super::*;
use crate::calico::kinds::ENDPOINT_SLICE;
use crate::datastore::memory::MemoryStore;
use crate::datastore::{Dialect, Object, ObjectId};
use crate::replicas::Service;
use crate::syncclient::discovery::Discovery;

fn slice(hosts: &[u8]) -> Object {
    let endpoints: Vec<serde_json::Value> =
        hosts.iter().map(|host| json!({"addresses": [format!("10.0.0.{host}")]})).collect();
    let body = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "calico-typha"}}, "addressType": "IPv4",
        "ports": [{"name": "calico-typha", "port": 5473}], "endpoints": endpoints,
    });
    Object {
        id: ObjectId { namespace: "kube-system".into(), name: "a".into() },
        revision: no_revision(),
        dialect: Dialect::Kubernetes,
        body: body.to_string().into(),
        place: None,
    }
}

fn discovery(store: &MemoryStore) -> Discovery {
    let service =
        Service { namespace: "kube-system".into(), name: "calico-typha".into(), port_name: "calico-typha".into() };
    Discovery::new(Arc::new(store.clone()), service)
}

#[tokio::test(start_paused = true)]
async fn servers_are_found_by_their_service_and_new_ones_too() {
    let store = MemoryStore::new();
    store.put(&ENDPOINT_SLICE, slice(&[1]));
    let (wires, mut incoming) = wires();
    let mut client = builder(&[]).discovery(discovery(&store)).start_with(wires).unwrap();
    let (address, server) = Server::accept(&mut incoming).await;
    assert_eq!(address, "10.0.0.1:5473");
    store.put(&ENDPOINT_SLICE, slice(&[2]));
    // The change is on its way; a client that has just lost its server reads the addresses when its pause is over.
    store.open_watches(&ENDPOINT_SLICE, 1).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    drop(server);
    let (address, _server) = Server::accept(&mut incoming).await;
    assert_eq!(address, "10.0.0.2:5473");
    assert!(hear(&mut client, "lost").await[0].starts_with("lost 10.0.0.1:5473"));
}

#[tokio::test(start_paused = true)]
async fn a_service_without_servers_is_said_and_waited_for() {
    let store = MemoryStore::new();
    let (wires, mut incoming) = wires();
    let mut client = builder(&[]).discovery(discovery(&store)).start_with(wires).unwrap();
    let heard = hear(&mut client, "lost").await;
    assert!(
        heard[0].starts_with(
            "lost service kube-system/calico-typha: find servers of service kube-system/calico-typha: no ready"
        ),
        "{heard:?}"
    );
    let listening = tokio::spawn(async move { while client.next().await.is_some() {} });
    // Long enough for the longest pause.
    tokio::time::sleep(Duration::from_secs(300)).await;
    let ready = Instant::now();
    store.put(&ENDPOINT_SLICE, slice(&[1]));
    assert_eq!(Server::accept(&mut incoming).await.0, "10.0.0.1:5473");
    assert!(ready.elapsed() < Duration::from_secs(1), "{:?}", ready.elapsed());
    listening.abort();
}

#[tokio::test(start_paused = true)]
async fn given_addresses_count_more_than_the_service() {
    let store = MemoryStore::new();
    store.put(&ENDPOINT_SLICE, slice(&[1]));
    let (wires, mut incoming) = wires();
    let _client = builder(&["given"]).discovery(discovery(&store)).start_with(wires).unwrap();
    assert_eq!(Server::accept(&mut incoming).await.0, "given");
    assert_eq!(store.lists(&ENDPOINT_SLICE), 0, "nobody asks the API server");
    assert!(builder(&[]).start_with(super::wires().0).is_err(), "neither is given");
}

#[tokio::test(start_paused = true)]
async fn alternatives_are_tried_at_once_before_the_own_addresses() {
    let (mut client, mut server, mut incoming) = in_sync_with_a().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let left = Instant::now();
    let elsewhere = ["bad1", "bad2", "b"].map(str::to_owned);
    server.send(&encode_goodbye("closed to spread connections", &elsewhere)).await;
    let mut second = Server::serve(&mut incoming, 3, &[("/a", "1")]).await;
    assert!(left.elapsed() < Duration::from_millis(400), "{:?}", left.elapsed());
    second.status(3, SyncStatus::InSync).await;
    assert_eq!(
        hear(&mut client, "in-sync").await,
        [
            "lost a: server said goodbye: closed to spread connections",
            "resync",
            "lost bad1: connect: nobody is there",
            "lost bad2: connect: nobody is there",
            "connected b",
            "in-sync"
        ],
        "nothing was lost on the way, so nothing is said again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_is_heard_even_if_the_server_is_gone_when_something_is_to_be_written() {
    let (mut client, mut server, mut incoming) = in_sync_with_a().await;
    // An acknowledgement is due with the next tick; by then goodbye and end have come, and writing fails first.
    server.send(&encode_goodbye("draining", &["b".to_owned()])).await;
    drop(server);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(hear(&mut client, "lost").await, ["lost a: server said goodbye: draining"]);
    assert_eq!(Server::accept(&mut incoming).await.0, "b");
}
