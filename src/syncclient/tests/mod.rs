//! The client as a consumer sees it, against servers played by hand over in-memory streams, with the clock paused.

mod interop;
mod several;
mod typed;
mod vectors;
mod whereto;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connector::Connector;
use super::*;
use crate::model::{AsOf, Key, SyncStatus, SyncerName, Update, UpdateType, Value, no_revision};
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::syncproto::gob;
use crate::syncproto::gob_format::GobPlain;
use crate::syncproto::messages::{Message, ServerHello as GobServerHello};
use crate::syncproto::native::{
    self, Ack, ClientFrame, Goodbye, KeyError, Limits, MAGIC, NativePlain, ServerHello, encode_goodbye,
    encode_server_hello,
};

/// Hands the far end of each stream to the test. An address that starts with `bad` does not connect, one with `slow` never
/// gets there.
pub(super) struct Wires {
    accepted: mpsc::Sender<(String, DuplexStream)>,
}

impl Connector for Wires {
    type Stream = DuplexStream;

    async fn connect(&self, address: &str) -> io::Result<DuplexStream> {
        if address.starts_with("bad") {
            return Err(io::Error::other("nobody is there"));
        }
        if address.starts_with("slow") {
            std::future::pending::<()>().await;
        }
        let (near, far) = duplex(16 << 10);
        self.accepted.send((address.to_owned(), far)).await.map_err(|_| io::Error::other("the test is over"))?;
        Ok(near)
    }
}

pub(super) fn wires() -> (Wires, mpsc::Receiver<(String, DuplexStream)>) {
    let (accepted, incoming) = mpsc::channel(1);
    (Wires { accepted }, incoming)
}

/// A native server, played by hand.
struct Server {
    stream: DuplexStream,
    input: BytesMut,
    format: NativePlain,
    /// The syncer that the client wants.
    syncer: String,
}

impl Server {
    async fn accept(incoming: &mut mpsc::Receiver<(String, DuplexStream)>) -> (String, Self) {
        let (address, mut stream) = incoming.recv().await.expect("the client connects");
        let mut magic = [0; MAGIC.len()];
        stream.read_exact(&mut magic).await.unwrap();
        assert_eq!(magic, MAGIC);
        let mut server = Self { stream, input: BytesMut::new(), format: NativePlain::default(), syncer: String::new() };
        let Some(ClientFrame::Hello(hello)) = server.frame().await else { panic!("a hello comes first") };
        server.syncer = hello.syncer;
        (address, server)
    }

    /// Accepts, greets, and sends a snapshot of crumb `seq`.
    async fn serve(incoming: &mut mpsc::Receiver<(String, DuplexStream)>, seq: u64, content: &[(&str, &str)]) -> Self {
        let (_, mut server) = Self::accept(incoming).await;
        let hello = ServerHello { syncer: server.syncer.clone(), ..hello() };
        server.send(&encode_server_hello(&hello)).await;
        server.send(&server.format.snapshot_begin(seq, content.len())).await;
        let entries = updates(content);
        if !entries.is_empty() {
            server.send(&server.format.snapshot_chunk(&entries).0).await;
        }
        server.send(&server.format.snapshot_end(seq, None)).await;
        server
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn status(&mut self, seq: u64, status: SyncStatus) {
        self.send(&self.format.status(seq, status)).await;
    }

    async fn updates(&mut self, after: u64, upto: u64, content: &[(&str, &str)]) {
        self.send(&self.format.updates(SeqRange { after, upto }, &updates(content))).await;
    }

    /// The client's next frame. `None`: it closed.
    async fn frame(&mut self) -> Option<ClientFrame> {
        loop {
            if let Some(frame) = native::decode_client(&mut self.input).unwrap() {
                return Some(frame);
            }
            if self.stream.read_buf(&mut self.input).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

fn hello() -> ServerHello {
    ServerHello {
        version: 1,
        server: "s".to_owned(),
        server_version: "2".to_owned(),
        syncer: "felix".to_owned(),
        compression: "none".to_owned(),
        epoch: 5,
        conn_id: 6,
        resumed: false,
        limits: Limits { max_frame_bytes: 1 << 18, ping_interval_ms: 10_000, pong_timeout_ms: 60_000 },
    }
}

/// Updates of these keys; an empty value deletes.
fn updates(content: &[(&str, &str)]) -> Vec<Arc<Update>> {
    let update = |&(key, value): &(&str, &str)| {
        Arc::new(Update {
            key: Key::from(key),
            value: (!value.is_empty()).then(|| Value::raw(value.to_owned())),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: Duration::ZERO,
            update_type: if value.is_empty() { UpdateType::Deleted } else { UpdateType::New },
            origin: None,
        })
    };
    content.iter().map(update).collect()
}

fn builder(addresses: &[&str]) -> ClientBuilder {
    Client::builder(addresses.iter().copied())
        .seed(1)
        .protocol(Protocol::Native { compressions: vec![Compression::None] })
}

/// A client that a server has given one key and told that it is in sync; and where its further connections come.
async fn in_sync_with_a() -> (Client, Server, mpsc::Receiver<(String, DuplexStream)>) {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[("/a", "1")]).await;
    server.status(7, SyncStatus::InSync).await;
    hear(&mut client, "in-sync").await;
    (client, server, incoming)
}

/// The next events in short, up to and including the one that is `last`.
async fn hear(client: &mut Client, last: &str) -> Vec<String> {
    let mut heard = Vec::new();
    while let Some(event) = client.next().await {
        heard.push(short(&event));
        if heard.last().is_some_and(|event| event.starts_with(last)) {
            return heard;
        }
    }
    panic!("the client ended without {last}: {heard:?}");
}

fn short(event: &SyncEvent) -> String {
    match event {
        SyncEvent::Connected { address, .. } => format!("connected {address}"),
        SyncEvent::Status(status) => status.to_string(),
        SyncEvent::Updates(updates) => updates
            .iter()
            .map(|update| {
                let sign = match update.update_type {
                    UpdateType::New => '+',
                    UpdateType::Updated => '~',
                    UpdateType::Deleted => '-',
                    UpdateType::Unknown => '?',
                };
                format!("{sign}{}", update.key)
            })
            .collect::<Vec<_>>()
            .join(" "),
        SyncEvent::Progress(as_of) => format!("as of {}", as_of.revision),
        SyncEvent::Disconnected { address, reason, retry_in } => {
            format!("lost {address}: {reason}{}", if retry_in.is_none() { ", giving up" } else { "" })
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_gets_the_snapshot_and_every_change() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[("/a", "1"), ("/b", "1")]).await;
    server.status(7, SyncStatus::InSync).await;
    assert_eq!(hear(&mut client, "in-sync").await, ["connected a", "resync", "+/a +/b", "in-sync"]);
    server.updates(7, 8, &[("/a", "2"), ("/b", ""), ("/c", "1")]).await;
    server.updates(8, 9, &[]).await;
    let as_of = AsOf { revision: "33".into(), at: UNIX_EPOCH };
    server.send(&server.format.ping(UNIX_EPOCH, Some(&as_of))).await;
    assert_eq!(hear(&mut client, "as of").await, ["~/a -/b +/c", "as of 33"]);
    assert_eq!(server.frame().await, Some(ClientFrame::Pong { ping_at: UNIX_EPOCH }));
}

#[tokio::test(start_paused = true)]
async fn what_was_applied_is_acknowledged_with_its_errors() {
    let (mut client, mut server, _incoming) = in_sync_with_a().await;
    assert_eq!(server.frame().await, Some(ClientFrame::Ack(Ack { applied: 7, errors: vec![] })));
    server.updates(7, 9, &[("/a", "2")]).await;
    hear(&mut client, "~/a").await;
    // Taken, but not applied before the next event is asked for.
    let handle = client.handle();
    assert!(handle.report_error(Key::from("/a"), "does not parse"));
    let error = KeyError { key: Key::from("/a"), reason: "does not parse".to_owned() };
    assert_eq!(server.frame().await, Some(ClientFrame::Ack(Ack { applied: 7, errors: vec![error] })));
    let next = tokio::spawn(async move { client.next().await.map(|event| short(&event)) });
    assert_eq!(server.frame().await, Some(ClientFrame::Ack(Ack { applied: 9, errors: vec![] })));
    server.status(9, SyncStatus::ResyncInProgress).await;
    assert_eq!(next.await.unwrap().as_deref(), Some("resync"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_server_is_replaced_without_a_fresh_start() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a", "b"]).start_with(wires).unwrap();
    let mut first = Server::serve(&mut incoming, 7, &[("/a", "1"), ("/b", "1"), ("/c", "1")]).await;
    first.status(7, SyncStatus::InSync).await;
    hear(&mut client, "in-sync").await;
    drop(first);
    assert_eq!(hear(&mut client, "resync").await, ["lost a: server closed the connection", "resync"]);
    let mut second = Server::serve(&mut incoming, 90, &[("/b", "2"), ("/c", "1"), ("/d", "1")]).await;
    second.status(90, SyncStatus::ResyncInProgress).await;
    assert_eq!(hear(&mut client, "~/b").await, ["connected b", "~/b +/d"]);
    second.status(90, SyncStatus::InSync).await;
    assert_eq!(hear(&mut client, "in-sync").await, ["-/a", "in-sync"]);
    // Sequence numbers of the first server mean nothing to the second.
    assert_eq!(second.frame().await, Some(ClientFrame::Ack(Ack { applied: 90, errors: vec![] })));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_left_after_the_read_timeout() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[]).await;
    hear(&mut client, "resync").await;
    let asked = Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    server.send(&server.format.ping(SystemTime::now(), None)).await;
    assert_eq!(hear(&mut client, "lost").await, ["lost a: read from server: nothing for 30 s"]);
    assert_eq!(asked.elapsed(), Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn half_a_message_is_not_a_sign_of_life() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[]).await;
    hear(&mut client, "resync").await;
    let started = Instant::now();
    let ping = server.format.ping(SystemTime::now(), None);
    for byte in &ping[..4] {
        server.send(&[*byte]).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    hear(&mut client, "lost a: read from server: nothing for 30 s").await;
    assert_eq!(started.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn addresses_that_fail_are_passed_over() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["bad", "slow", "good"]).start_with(wires).unwrap();
    let started = Instant::now();
    let listening = tokio::spawn(async move { hear(&mut client, "resync").await });
    let _server = Server::serve(&mut incoming, 7, &[]).await;
    assert_eq!(
        listening.await.unwrap(),
        ["lost bad: connect: nobody is there", "lost slow: connect: nothing for 10 s", "connected good", "resync"]
    );
    assert!(started.elapsed() < Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn a_client_gives_up_after_the_tries_it_was_given() {
    let (wires, _incoming) = wires();
    let mut client = builder(&["bad1", "bad2"]).max_attempts(3).start_with(wires).unwrap();
    let mut heard = Vec::new();
    while let Some(event) = client.next().await {
        heard.push(short(&event));
    }
    assert_eq!(
        heard,
        [
            "lost bad1: connect: nobody is there",
            "lost bad2: connect: nobody is there",
            "lost bad1: connect: nobody is there, giving up"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_and_a_goodbye_are_passed_on_and_followed() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let (_, mut server) = Server::accept(&mut incoming).await;
    server.send(&encode_goodbye("too many clients", &["b".to_owned()])).await;
    assert_eq!(hear(&mut client, "lost").await, ["lost a: server refused: too many clients"]);
    let (address, mut server) = Server::accept(&mut incoming).await;
    assert_eq!(address, "b");
    server.send(&encode_server_hello(&hello())).await;
    server.send(&encode_goodbye("draining", &["c".to_owned()])).await;
    assert_eq!(hear(&mut client, "lost").await, ["connected b", "resync", "lost b: server said goodbye: draining"]);
    assert_eq!(Server::accept(&mut incoming).await.0, "c");
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_kind_is_reported_with_a_hint() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let (_, server) = Server::accept(&mut incoming).await;
    drop(server);
    let heard = hear(&mut client, "lost").await;
    assert!(heard[0].contains("may not speak this protocol"), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn closing_says_goodbye() {
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[]).await;
    hear(&mut client, "resync").await;
    client.close().await;
    let goodbye = Goodbye { reason: "client stops".to_owned(), alternatives: vec![] };
    assert_eq!(server.frame().await, Some(ClientFrame::Goodbye(goodbye)));
    assert_eq!(server.frame().await, None);
}

#[tokio::test(start_paused = true)]
async fn dropping_closes() {
    let (wires, mut incoming) = wires();
    let client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 7, &[]).await;
    drop(client);
    while server.frame().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_the_server_up_and_loses_nothing() {
    const UPDATES: u64 = 2000;
    let (wires, mut incoming) = wires();
    let mut client = builder(&["a"]).start_with(wires).unwrap();
    let mut server = Server::serve(&mut incoming, 0, &[]).await;
    let sender = tokio::spawn(async move {
        let value = "x".repeat(1000);
        for n in 0..UPDATES {
            server.updates(n, n + 1, &[(&format!("/{n}"), &value)]).await;
        }
        server.status(UPDATES, SyncStatus::InSync).await;
        server
    });
    // Long beyond the read time-out: it is not the server's fault that the consumer takes nothing.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(!sender.is_finished(), "the client buffers without bound");
    let heard = hear(&mut client, "in-sync").await;
    assert_eq!(heard.len() as u64, 2 + UPDATES + 1);
    sender.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn prefixes_hold_with_calicos_protocol_too() {
    let (wires, mut incoming) = wires();
    let builder = builder(&["a"]).protocol(Protocol::Calico { compression: false }).prefixes(["/a", "/c"]);
    let mut client = builder.start_with(wires).unwrap();
    let (_, mut stream) = incoming.recv().await.unwrap();
    let mut out = BytesMut::from(&gob::server_prefix()[..]);
    let hello = GobServerHello {
        syncer_type: "felix".to_owned(),
        supports_node_resource_updates: true,
        ..GobServerHello::default()
    };
    gob::encode(&Message::ServerHello(hello), &mut out);
    out.extend_from_slice(&GobPlain.snapshot_chunk(&updates(&[("/a", "1"), ("/b", "1"), ("/c", "1")])).0);
    gob::encode(&Message::SyncStatus(2), &mut out);
    stream.write_all(&out).await.unwrap();
    assert_eq!(hear(&mut client, "in-sync").await, ["connected a", "resync", "+/a +/c", "in-sync"]);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let many: Vec<String> = (0..=native::MAX_PREFIXES).map(|n| n.to_string()).collect();
    for (builder, expected) in [
        (Client::builder(Vec::<String>::new()), "no server address"),
        (builder(&["a"]).prefixes(many), "129 key prefixes"),
        (builder(&["a"]).prefixes((0..100).map(|_| "x".repeat(1000))), "100000 bytes, at most 49152"),
        (builder(&["a"]).agent("x".repeat(2000)), "is longer than 1024 bytes"),
    ] {
        let error = builder.start_with(wires().0).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}
