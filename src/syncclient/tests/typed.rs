//! Objects as types.

use serde::Deserialize;

use super::*;
use crate::syncclient::typed::{Decode as _, Ended, Store};

#[derive(Debug, Deserialize, PartialEq)]
struct Service {
    hosts: Vec<String>,
}

const KIND: &str = "networking.istio.io/VirtualService";

fn service(host: &str) -> Service {
    Service { hosts: vec![host.to_owned()] }
}

#[tokio::test(start_paused = true)]
async fn a_store_has_the_objects_of_its_client() {
    let (wires, mut incoming) = wires();
    let client = Client::builder(["a:1"]).seed(1).max_attempts(1).start_with(wires).unwrap();
    let mut store = Store::follow(client);
    assert_eq!((store.status(), store.is_empty()), (SyncStatus::WaitForDatastore, true));
    let of = |name: &str| format!("/bulrush/v1/networking.istio.io/VirtualService/{name}");
    let (a, b, bad) = (of("default/a"), of("prod/b"), of("prod/bad"));
    let mut server = Server::serve(
        &mut incoming,
        1,
        &[
            ("/bulrush/v1/core/Node/-/n", r#"{"hosts":["n"]}"#),
            (&a, r#"{"hosts":["a"]}"#),
            (&b, r#"{"hosts":["b"]}"#),
            (&bad, r#"{"hosts":7}"#),
            ("/bulrush/v1/networking.istio.io/VirtualServiceX/default/x", "{}"),
        ],
    )
    .await;
    server.status(1, SyncStatus::InSync).await;
    store.in_sync().await.unwrap();
    assert_eq!(store.get(KIND, "default", "a"), Ok(Some(service("a"))));
    assert_eq!(store.get::<Service>(KIND, "default", "b"), Ok(None), "it is in another namespace");
    for node in ["Node", "core/Node"] {
        assert_eq!(store.get(node, "", "n"), Ok(Some(service("n"))));
    }
    let error = store.get::<Service>(KIND, "prod", "bad").unwrap_err().to_string();
    assert!(error.starts_with("read VirtualService.networking.istio.io prod/bad as "), "{error}");
    assert!(error.contains("invalid type: integer `7`"), "{error}");
    let all = store.list::<Service>(KIND);
    assert_eq!(all.iter().filter_map(|read| read.as_ref().ok()).collect::<Vec<_>>(), [&service("a"), &service("b")]);
    assert_eq!((all.len(), store.len()), (3, 5));
    // A clone sees the same.
    let other = store.clone();
    server.updates(1, 2, &[(&a, "")]).await;
    store.changed().await.unwrap();
    assert_eq!(other.get::<Service>(KIND, "default", "a"), Ok(None));
    drop((other, server));
    while store.changed().await != Err(Ended) {}
    assert_eq!(store.get(KIND, "prod", "b"), Ok(Some(service("b"))), "the objects of before stay");
}

#[test]
fn an_update_tells_its_object() {
    let [put, gone] = &updates(&[("/bulrush/v1/core/Node/-/n", r#"{"hosts":[]}"#), ("/other", "")])[..] else {
        panic!("two updates")
    };
    assert_eq!(put.resource().map(|parts| parts.to_string()).as_deref(), Some("Node n"));
    assert_eq!(put.decode(), Ok(Some(Service { hosts: Vec::new() })));
    assert_eq!((gone.resource(), gone.decode::<Service>()), (None, Ok(None)));
}
