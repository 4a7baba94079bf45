//! Several syncers as one stream.

use std::collections::BTreeMap;

use super::*;

/// A connector that several clients share.
#[derive(Clone)]
struct Shared(Arc<Wires>);

impl Connector for Shared {
    type Stream = DuplexStream;

    async fn connect(&self, address: &str) -> io::Result<DuplexStream> {
        self.0.connect(address).await
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_names_its_syncer_and_one_that_ends_leaves_the_others() {
    const ALPHA: SyncerName = SyncerName::new("alpha");
    const BETA: SyncerName = SyncerName::new("beta");
    let (wires, mut incoming) = wires();
    let connector = Shared(Arc::new(wires));
    let builder = Client::builder(["a:1"]).seed(1).max_attempts(1);
    let mut clients = builder.start_each([ALPHA, BETA], |builder| builder.start_with(connector.clone())).unwrap();
    let mut servers = BTreeMap::new();
    for _ in 0..2 {
        let mut server = Server::serve(&mut incoming, 1, &[("/k", "1")]).await;
        server.status(1, SyncStatus::InSync).await;
        servers.insert(server.syncer.clone(), server);
    }
    assert!(servers.keys().eq(["alpha", "beta"]));
    let mut in_sync = BTreeMap::new();
    while in_sync.len() < 2 {
        match clients.next().await.expect("both live") {
            (syncer, SyncEvent::Status(SyncStatus::InSync)) => drop(in_sync.insert(syncer, true)),
            (_, SyncEvent::Updates(updates)) => assert_eq!(updates.len(), 1),
            _ => {}
        }
    }
    servers.get_mut("beta").unwrap().updates(1, 2, &[("/k", "2")]).await;
    let (syncer, event) = clients.next().await.unwrap();
    assert_eq!(syncer, BETA);
    assert!(
        matches!(&event, SyncEvent::Updates(updates) if updates[0].update_type == UpdateType::Updated),
        "{event:?}"
    );
    servers.remove("alpha");
    loop {
        let (syncer, event) = clients.next().await.unwrap();
        assert_eq!(syncer, ALPHA, "{event:?}");
        if matches!(event, SyncEvent::Disconnected { retry_in: None, .. }) {
            break;
        }
    }
    servers.get_mut("beta").unwrap().updates(2, 3, &[("/k", "3")]).await;
    assert_eq!(clients.next().await.map(|(syncer, _)| syncer), Some(BETA));
    servers.clear();
    while let Some((syncer, _)) = clients.next().await {
        assert_eq!(syncer, BETA);
    }
    clients.close().await;
}
