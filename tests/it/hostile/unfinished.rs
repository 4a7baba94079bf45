//! A thousand strangers that begin a message and leave it unfinished, beside agents at work.

use std::net::SocketAddr;

use anyhow::ensure;
use bulrush::syncproto::native;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::World;
use super::readers::Reader;

const STRANGERS: usize = 1_000;
const HONEST: usize = 10;
/// Length of a message that is too long for a hello, and of a message that might be a hello.
const TOO_LONG: u32 = 1_000_000;
const LONG: u32 = 60_000;
/// Memory that unfinished messages may take: a little for each, and all of it for a few.
const UNFINISHED: u64 = STRANGERS as u64 * (4 << 10) + (8 << 20);

/// Memory that a connection with TLS may take, and further memory for unfinished TLS handshakes.
const TLS_CONNECTION: u64 = 11 << 10;
const UNFINISHED_TLS: u64 = STRANGERS as u64 * (8 << 10) + (8 << 20);

/// A message without its last bytes.
fn unfinished(stranger: usize) -> Vec<u8> {
    let mut bytes = match stranger % 3 {
        // Gob: a length of three bytes, then the message.
        0 => [&[0xfd][..], &TOO_LONG.to_be_bytes()[1..]].concat(),
        1 => [&[0xfd][..], &LONG.to_be_bytes()[1..]].concat(),
        _ => [&native::MAGIC[..], &LONG.to_be_bytes()].concat(),
    };
    let length = if stranger.is_multiple_of(3) { TOO_LONG } else { LONG };
    bytes.resize(length as usize - 10, 1);
    bytes
}

/// TLS records with a client's first handshake message without its last bytes.
fn unfinished_tls() -> Vec<u8> {
    const RECORD: usize = 16 << 10;
    let mut message = vec![1];
    message.extend_from_slice(&LONG.to_be_bytes()[1..]);
    message.resize(LONG as usize - 10, 1);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).expect("a record's length has two bytes");
        [&[22, 3, 1][..], &length.to_be_bytes(), part].concat()
    };
    message.chunks(RECORD).flat_map(record).collect()
}

/// Sends the beginning of a message, waits until the server closes the connection, and connects again.
async fn stranger(server: SocketAddr, beginning: Vec<u8>) {
    loop {
        let Ok(mut stream) = TcpStream::connect(server).await else { continue };
        // The server may close while this is on its way.
        let _refused = stream.write_all(&beginning).await;
        let _reset = stream.read_to_end(&mut Vec::new()).await;
    }
}

fn strangers(server: SocketAddr, beginning: impl Fn(usize) -> Vec<u8>) -> JoinSet<()> {
    (0..STRANGERS).map(|number| stranger(server, beginning(number))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_are_never_finished_take_little_memory_and_keep_no_agent_out() -> anyhow::Result<()> {
    let Some(mut world) = World::new(&[]).await? else { return Ok(()) };
    let server = world.daemon.sync;
    let honest: Vec<Reader> = (0..HONEST).map(|n| Reader::start(server, "honest", n)).collect::<Result<_, _>>()?;
    for reader in &honest {
        reader.until("a first snapshot", |held| held.in_sync).await?;
    }
    let _strangers = strangers(server, unfinished);
    world
        .churn_until("the strangers are refused, or time out", |daemon| {
            World::closed(daemon, "handshake-timeout") + World::closed(daemon, "unfinished-message") >= 300.0
        })
        .await?;
    // Agents that come now get in between them.
    world.all_end_right(&honest).await?;
    let lost: Vec<String> = honest.iter().filter_map(Reader::lost).collect();
    ensure!(lost.is_empty(), "{lost:?}\n{}", world.daemon.log());
    eprintln!("at most {} KiB were in use", world.peak >> 10);
    world.memory_was_bounded_beside((STRANGERS + HONEST) as u64, UNFINISHED)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_handshakes_that_are_never_finished_take_little_memory() -> anyhow::Result<()> {
    let folder = TempDir::new()?;
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["typha-server".to_owned()])?;
    let (crt, key) = (folder.path().join("server.crt"), folder.path().join("server.key"));
    std::fs::write(&crt, cert.pem())?;
    std::fs::write(&key, signing_key.serialize_pem())?;
    let (crt, key) = (crt.to_string_lossy(), key.to_string_lossy());
    let tls = [("ServerCertFile", &*crt), ("ServerKeyFile", &key), ("CAFile", &crt), ("ClientCN", "typha-client")];
    let Some(mut world) = World::new(&tls).await? else { return Ok(()) };
    let _strangers = strangers(world.daemon.sync, |_| unfinished_tls());
    world
        .churn_until("the strangers are refused, or time out", |daemon| {
            World::closed(daemon, "handshake-timeout") + World::closed(daemon, "unfinished-message") >= 300.0
        })
        .await?;
    eprintln!("at most {} KiB were in use", world.peak >> 10);
    world.memory_was_bounded_beside(0, STRANGERS as u64 * TLS_CONNECTION + UNFINISHED_TLS)
}
