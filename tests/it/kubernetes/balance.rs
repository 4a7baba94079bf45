//! Two replicas as processes, which know each other from real EndpointSlices, share sixty clients; then one of them goes.
//!
//! Forty-eight clients speak our protocol and know only the first replica: they learn the other's address from goodbyes. Twelve speak
//! Calico's protocol and know both, as Calico's agents do. The cluster changes all the while.

#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use bulrush::datastore::kubernetes::KubernetesConfig;
use bulrush::model::{SyncStatus, UpdateType};
use bulrush::replicas::Service;
use bulrush::syncclient::discovery::Discovery;
use bulrush::syncclient::{Client, Protocol, SyncEvent};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::apiserver::ApiServer;
use crate::apiserver::rest::Rest;
use crate::daemon::{Daemon, eventually};
use crate::need::skip;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
const NAMESPACES: &str = "/api/v1/namespaces";
/// Lower limit of connections per replica, which counts because the formula gives only 28 for five nodes and two replicas.
const LOWER_LIMIT: usize = 30;
const CLIENTS: usize = 60;

/// An address of this host other than loopback, which an EndpointSlice may not contain. `None`: there is no other.
fn host_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    // Nothing is sent: the system only chooses a source address.
    socket.connect(("198.51.100.1", 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_unspecified() => Some(ip),
        _ => None,
    }
}

/// The EndpointSlice of one replica. Each has a slice of its own because each has another port.
fn slice(name: &str, at: SocketAddr, ready: bool) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "calico-typha"}},
        "addressType": "IPv4",
        "ports": [{"name": "calico-typha", "port": at.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [at.ip().to_string()], "conditions": {"ready": ready}, "targetRef": {
            "kind": "Pod", "namespace": "kube-system", "name": format!("typha-{name}"), "uid": format!("uid-of-{name}"),
        }}],
    })
}

/// A replica that listens on all addresses of the host, at a free port or at the port of this listener.
fn replica(folder: &Path, server: &ApiServer, port: Option<TcpListener>) -> anyhow::Result<Daemon> {
    let lower = LOWER_LIMIT.to_string();
    let mut options = vec![
        ("DatastoreType", "kubernetes"),
        ("DatastoreReadOnly", "true"),
        ("ServerHost", "none"),
        ("ConnectionRebalancingMode", "kubernetes"),
        ("MaxConnectionsLowerLimit", &lower),
        ("ConnectionDropIntervalSecs", "0.05"),
        ("ShutdownConnectionDropIntervalMaxSecs", "0.02"),
    ];
    let port = port.map(|kept| kept.local_addr()).transpose()?.map(|kept| kept.port().to_string());
    options.extend(port.iter().map(|port| ("ServerPort", port.as_str())));
    let kubeconfig = server.kubeconfig("admin");
    let daemon = Daemon::start_in(folder, &options, &[("KUBECONFIG", &kubeconfig.display().to_string())])?;
    daemon.wait_ready()?;
    Ok(daemon)
}

/// A client's content and its history.
#[derive(Debug, Default)]
struct Held {
    values: BTreeMap<String, Vec<u8>>,
    in_sync: bool,
    server: String,
    moves: usize,
    deleted: Vec<String>,
    refused: Vec<String>,
}

type Shared = Arc<Mutex<Held>>;

/// Follows a server in a task of its own.
fn follow(mut client: Client) -> Shared {
    let shared = Shared::default();
    let held = shared.clone();
    tokio::spawn(async move {
        while let Some(event) = client.next().await {
            let mut held = held.lock().unwrap();
            match event {
                SyncEvent::Connected { address, .. } => {
                    held.moves += usize::from(!held.server.is_empty());
                    held.server = address;
                }
                SyncEvent::Status(status) => held.in_sync = status == SyncStatus::InSync,
                SyncEvent::Updates(updates) => {
                    for update in updates {
                        let key = update.key.to_string();
                        match update.value {
                            Some(value) => held.values.insert(key, value.bytes.to_vec()),
                            None => held.values.remove(&key),
                        };
                        if update.update_type == UpdateType::Deleted {
                            held.deleted.push(update.key.to_string());
                        }
                    }
                }
                SyncEvent::Disconnected { address, reason, .. } => held.refused.push(format!("{address}: {reason}")),
                SyncEvent::Progress(_) => {}
            }
        }
    });
    shared
}

fn connections(daemon: &Daemon) -> Option<f64> {
    daemon.metric("typha_connections_streaming{syncer=\"felix\"}").ok()
}

/// Waits until each replica has this number of clients, and all clients are in sync.
fn spread(clients: &[Shared], replicas: &[(&Daemon, usize)]) -> anyhow::Result<()> {
    let settled = || {
        let counts = replicas.iter().all(|(daemon, count)| connections(daemon) == Some(*count as f64));
        (counts && clients.iter().all(|held| held.lock().unwrap().in_sync)).then_some(())
    };
    eventually(
        &format!("clients are spread as {:?}", replicas.iter().map(|(_, count)| count).collect::<Vec<_>>()),
        settled,
    )
    .with_context(|| {
        let now: Vec<String> =
            replicas.iter().map(|(daemon, _)| format!("{:?}\n{}", connections(daemon), daemon.log())).collect();
        let odd: Vec<String> = clients.iter().map(|held| format!("{:?}", held.lock().unwrap().refused)).collect();
        format!("{}\n{}", now.join("\n"), odd.join("\n"))
    })
}

async fn namespaces(rest: &Rest, names: impl Iterator<Item = usize>) -> anyhow::Result<()> {
    let object = |n: usize| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{n}")}});
    rest.create_all(names.map(|n| (NAMESPACES.to_owned(), object(n))).collect()).await
}

/// Waits until all clients hold the same as a fresh client.
fn all_hold_the_same(clients: &[Shared], fresh: &Shared) -> anyhow::Result<()> {
    eventually("all hold the same", || {
        let fresh = fresh.lock().unwrap();
        let same = |held: &Shared| held.lock().unwrap().values == fresh.values;
        (fresh.in_sync && clients.iter().all(same)).then_some(())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_sixty_clients_and_one_goes() -> anyhow::Result<()> {
    let Some(host) = host_address() else {
        skip("this host has no address but loopback, which EndpointSlices may not contain");
        return Ok(());
    };
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let (rest, folder) = (server.rest(), TempDir::new()?);
    let nodes = (0..5).map(|n| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{n}")}}));
    rest.create_all(nodes.map(|node| ("/api/v1/nodes".to_owned(), node)).collect()).await?;
    namespaces(&rest, 0..20).await?;

    // A lone replica keeps all clients.
    let second_kept = TcpListener::bind((host, 0))?;
    let second_at = second_kept.local_addr()?;
    let first = replica(folder.path(), &server, None)?;
    let first_at = SocketAddr::new(host.into(), first.sync.port());
    rest.create(SLICES, &slice("first", first_at, true)).await?;
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let builder = if n % 5 == 4 {
            Client::builder([first_at.to_string(), second_at.to_string()])
                .protocol(Protocol::Calico { compression: true })
        } else {
            Client::builder([first_at.to_string()])
        };
        clients.push(follow(builder.agent(format!("agent-{n}")).start()?));
    }
    spread(&clients, &[(&first, CLIENTS)])?;
    let old: BTreeSet<String> = clients[0].lock().unwrap().values.keys().cloned().collect();
    ensure!(old.len() >= 20, "clients hold too little: {}", old.len());
    ensure!(first.metric("bulrush_connections_limit")? == 10_000.0, "a lone replica has the upper limit");

    // A second replica comes while the cluster changes: the clients are shared out, and none loses anything.
    let mut second = replica(folder.path(), &server, Some(second_kept))?;
    rest.create(SLICES, &slice("second", second_at, true)).await?;
    namespaces(&rest, 20..40).await?;
    spread(&clients, &[(&first, LOWER_LIMIT), (&second, CLIENTS - LOWER_LIMIT)])?;
    for daemon in [&first, &second] {
        ensure!(daemon.metric("bulrush_connections_limit")? == LOWER_LIMIT as f64, "both have the same limit");
    }
    ensure!(first.metric("typha_connections_dropped")? == (CLIENTS - LOWER_LIMIT) as f64, "only the excess is dropped");
    ensure!(second.metric("typha_connections_dropped")? == 0.0, "no client is sent back");
    let moved = clients.iter().filter(|held| held.lock().unwrap().moves > 0).count();
    ensure!(moved == CLIENTS - LOWER_LIMIT, "{moved} clients moved");
    // The newest clients went; clients of our protocol went straight to the address in their goodbye.
    for (n, held) in clients.iter().enumerate() {
        let held = held.lock().unwrap();
        ensure!(held.moves <= 1 && held.refused.len() == held.moves, "client {n}: {held:?}");
        ensure!(held.moves == 0 || held.server == second_at.to_string(), "client {n} is at {}", held.server);
    }
    let logged = |daemon: &Daemon| daemon.log().lines().any(|line| line.contains("new limit of connections"));
    ensure!(logged(&first) && logged(&second), "both say why");

    // Discovery finds both; a new client gets the content of the others.
    let service = Service {
        namespace: "kube-system".to_owned(),
        name: "calico-typha".to_owned(),
        port_name: "calico-typha".to_owned(),
    };
    let kubernetes = KubernetesConfig { kubeconfig: vec![server.kubeconfig("admin")], ..KubernetesConfig::default() };
    let discovery = Discovery::connect(kubernetes, service)?;
    let fresh = follow(Client::builder([""; 0]).discovery(discovery).agent("fresh").start()?);
    all_hold_the_same(&clients, &fresh)?;
    ensure!(fresh.lock().unwrap().values.len() >= 40, "the fresh client holds too little");

    // The second replica goes: its clients are sent to the first, whose limit rises again.
    rest.replace(&format!("{SLICES}/second"), &slice("second", second_at, false)).await?;
    let raised = || first.metric("bulrush_connections_limit").ok().filter(|limit| *limit == 10_000.0);
    eventually("the first has the upper limit again", raised)?;
    second.signal("TERM")?;
    namespaces(&rest, 40..50).await?;
    ensure!(second.wait()?.success(), "it ends well");
    let fresh_too: Vec<Shared> = clients.iter().chain([&fresh]).cloned().collect();
    spread(&fresh_too, &[(&first, CLIENTS + 1)])?;
    all_hold_the_same(&clients, &fresh)?;
    for (n, held) in clients.iter().enumerate() {
        let held = held.lock().unwrap();
        // A replica may learn of a recent change later than the other. Older keys are at both.
        let spurious: Vec<&String> = held.deleted.iter().filter(|key| old.contains(key.as_str())).collect();
        ensure!(spurious.is_empty(), "client {n} was sent deletions that never happened: {spurious:?}");
        ensure!(held.values.keys().any(|key| key.ends_with("kns.team-49")), "client {n} has the last change");
    }
    Ok(())
}

/// With another datastore the replicas are found by a separate watch, for which a Role in one namespace is enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_another_datastore_only_the_slices_of_the_service_are_asked_for() -> anyhow::Result<()> {
    let Some(server) = ApiServer::start().await else { return Ok(()) };
    let (rest, folder, data) = (server.rest(), TempDir::new()?, TempDir::new()?);
    let meta = json!({"name": "rebalancing", "namespace": "kube-system"});
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
    let rules =
        json!([{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules});
    rest.create(&format!("{roles}/roles"), &role).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "rebalancing"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": super::USER}],
    });
    rest.create(&format!("{roles}/rolebindings"), &binding).await?;
    let nodes: Vec<String> = (0..10)
        .map(|n| format!("apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {{name: n{n}}}\nspec: {{}}\n"))
        .collect();
    std::fs::write(data.path().join("nodes.yaml"), nodes.join("---\n"))?;
    let options = [
        ("DatastoreType", "file"),
        ("DatastorePath", data.path().to_str().context("a plain name")?),
        ("ConnectionRebalancingMode", "kubernetes"),
        ("MaxConnectionsLowerLimit", "1"),
    ];
    let kubeconfig = server.kubeconfig(super::USER).display().to_string();
    let daemon = Daemon::start_in(folder.path(), &options, &[("KUBECONFIG", &kubeconfig)])?;
    daemon.wait_ready()?;
    let limit = |expected: f64| {
        let reached = || daemon.metric("bulrush_connections_limit").ok().filter(|limit| *limit == expected);
        eventually(&format!("the limit is {expected}"), reached).with_context(|| daemon.log())
    };
    limit(10_000.0)?;
    let at = |host: u8| SocketAddr::from(([203, 0, 113, host], 5473));
    rest.create(SLICES, &slice("first", at(1), true)).await?;
    rest.create(SLICES, &slice("second", at(2), true)).await?;
    // 4 × (1 + 10 × 120 / 1 / 100).
    limit(52.0)?;
    rest.create(SLICES, &slice("third", at(3), true)).await?;
    limit(28.0)?;
    rest.replace(&format!("{SLICES}/second"), &slice("second", at(2), false)).await?;
    limit(52.0)?;
    rest.delete(&format!("{SLICES}/first")).await?;
    limit(10_000.0)?;
    for request in server.audited(super::USER) {
        let scoped =
            request.uri.contains("/namespaces/kube-system/endpointslices") && request.uri.contains("calico-typha");
        ensure!(scoped && ["list", "watch"].contains(&request.verb.as_str()), "{request:?}");
    }
    ensure!(server.collections_read(super::USER).values().sum::<usize>() <= 1, "one list, and no more");
    Ok(())
}
