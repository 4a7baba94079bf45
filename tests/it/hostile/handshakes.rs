//! Thousands of connections that never finish their handshake, beside agents at work.

use std::net::SocketAddr;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::World;
use super::readers::Reader;

const HONEST: usize = 40;
/// Number of connections, if descriptors allow.
const HALF_OPEN: usize = 10_000;
/// Descriptors for the other tests of this process.
const SPARED: usize = 4_000;
/// Most connections in handshake at once. Each may take two seconds before it has to make room for another.
const SLOTS: usize = 2_048;
/// Beginning of a hello in Calico's protocol; the rest never comes.
const BEGINNING: &[u8] = &[0x7f];

/// Connects, sends the beginning, and waits until the server closes the connection.
async fn half_open(server: SocketAddr, n: usize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&BEGINNING[..n % 2]).await?;
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_handshakes_take_nothing_from_agents_and_little_memory() -> anyhow::Result<()> {
    let limit = usize::try_from(rlimit::increase_nofile_limit(u64::MAX)?)?;
    let count = HALF_OPEN.min(limit.saturating_sub(SPARED).max(limit / 4));
    let slots = SLOTS.min(count / 4);
    let Some(mut world) = World::new(&[("ServerMaxHandshakes", &slots.to_string())]).await? else { return Ok(()) };
    let server = world.daemon.sync;
    let honest: Vec<Reader> = (0..HONEST).map(|n| Reader::start(server, "honest", n)).collect::<Result<_, _>>()?;
    for reader in &honest {
        reader.until("a first snapshot", |held| held.in_sync).await?;
    }

    let mut crowd = JoinSet::new();
    for n in 0..count {
        crowd.spawn(half_open(server, n));
    }
    let mut most = 0.0_f64;
    world
        .churn_until("half-open connections fill the slots, and evict each other", |daemon| {
            most = most.max(daemon.metric("typha_connections_active").unwrap_or_default());
            // Each may stay for two seconds, and the test looks several times a second: it has to see all slots in use.
            World::closed(daemon, "handshake-evicted") >= slots as f64 && most >= slots as f64
        })
        .await?;
    // An agent that comes now waits for its turn among them, and gets in.
    world.all_end_right(&honest).await?;
    most = most.max(world.daemon.metric("typha_connections_active")?);
    ensure!(most <= (slots + HONEST + 2) as f64, "{most} connections with {slots} slots");
    let lost: Vec<String> = honest.iter().filter_map(Reader::lost).collect();
    ensure!(lost.is_empty(), "{lost:?}\n{}", world.daemon.log());
    let said = "too many connections in handshake, and this one's client was silent for longest";
    ensure!(world.daemon.log().contains(said), "{}", world.daemon.log());

    // Without the half-open connections everything is as before.
    crowd.shutdown().await;
    world
        .churn_until("only agents are left", |daemon| {
            daemon.metric("typha_connections_active").ok() == Some(HONEST as f64)
        })
        .await?;
    world.all_end_right(&honest).await?;
    world.memory_was_bounded((slots + HONEST) as u64)
}
