//! Accepted and refused connections.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::harness::*;
use crate::model::SyncStatus;
use crate::model::SyncerName;
use crate::outlet::Outlet as _;
use crate::outlet::status::ClientState;
use crate::syncproto::messages::{ClientHello, Message, Pong};
use crate::syncproto::native;

/// Sends bytes on a new connection and waits for its end. Returns the time that this took.
async fn rejected(world: &World, bytes: &[u8]) -> Duration {
    let mut client = Client::new(world.dial(64 << 10).await, Speech::GobPlain);
    let began = Instant::now();
    client.send(bytes).await;
    let mut rest = Vec::new();
    let read = timeout(PATIENCE, client.io.read_to_end(&mut rest)).await.expect("closed");
    assert!(read.is_err() || rest.is_empty(), "a client that is not let in hears nothing: {rest:?}");
    began.elapsed()
}

fn hello(change: impl FnOnce(&mut ClientHello)) -> BytesMut {
    let mut hello = gob_hello(&Speech::GobSnappy, "felix");
    change(&mut hello);
    gob_bytes(&Message::ClientHello(hello), true)
}

fn old(version: &str) -> BytesMut {
    hello(|hello| {
        hello.supports_modern_policy_keys = false;
        version.clone_into(&mut hello.version);
    })
}

#[tokio::test(start_paused = true)]
async fn a_bad_hello_is_answered_by_closing_at_once() {
    let world = World::new(config());
    let at_once = Duration::from_millis(100);
    let cases = [
        ("unknown-syncer", hello(|hello| hello.syncer_type = "no-such".to_owned())),
        ("unknown-syncer", hello(|hello| hello.syncer_type = "node-status".to_owned())),
        ("no-dialect", old("v3.25.2")),
        ("not-a-hello", gob_bytes(&Message::SyncStatus(2), true)),
        ("not-a-hello", gob_bytes(&Message::Ack, true)),
        ("not-a-hello", BytesMut::from(&[0x16, 0x03, 0x01, 0x02, 0x00][..])),
        ("not-a-hello", BytesMut::from(&[0xf7; 64][..])),
    ];
    for (n, (reason, bytes)) in cases.iter().enumerate() {
        let before = world.closed(reason);
        let took = rejected(&world, bytes).await;
        assert!(took < at_once, "case {n} ({reason}) took {took:?}");
        eventually(reason, || world.closed(reason) == before + 1).await;
    }
    let active = &world.server_metrics.connections_active;
    eventually("all are gone", || active.get() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_our_protocol_is_told_why() {
    let world = World::new(config());
    let mut client = Client::new(world.dial(64 << 10).await, Speech::native("none"));
    client.hello("no-such").await;
    let goodbye = client.until_closed().await.expect("a goodbye");
    assert_eq!(goodbye, "no such syncer: \"no-such\"; this server has bgp, felix");
}

#[tokio::test(start_paused = true)]
async fn an_empty_syncer_means_felix_and_unknown_compressions_are_ignored() {
    let mut world = World::new(config());
    world.status(SyncStatus::InSync);
    for (wire, change) in [
        ("gob-snappy", (|hello: &mut ClientHello| hello.syncer_type.clear()) as fn(&mut ClientHello)),
        ("gob-plain", |hello| hello.supports_decoder_restart = false),
        ("gob-plain", |hello| hello.supported_compression_algorithms = vec!["zstd".to_owned()]),
    ] {
        let mut client = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
        client.send(&hello(change)).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        let newest = world.handle.clients().pop().expect("it is there");
        assert_eq!(newest.wire, Some(wire));
        assert_eq!(newest.syncer.map(SyncerName::as_str), Some("felix"));
        assert_eq!((newest.agent.name.as_str(), newest.agent.conn_id), ("node-1", 77));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_may_come_byte_by_byte() {
    for speech in [Speech::GobSnappy, Speech::native("zstd")] {
        let mut world = World::new(config());
        world.status(SyncStatus::InSync);
        let mut client = Client::new(world.dial(1).await, speech);
        for byte in client.hello_bytes("felix") {
            client.send(&[byte]).await;
        }
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_hello_is_closed_after_the_handshake_timeout() {
    for said in [&b""[..], b"\x89bu", b"GET / HTTP/1.1\r\n\r\n", &native::MAGIC] {
        let world = World::new(config());
        let mut client = Client::new(world.dial(64 << 10).await, Speech::GobPlain);
        client.send(said).await;
        let active = &world.server_metrics.connections_active;
        eventually("it is counted", || active.get() == 1).await;
        let began = Instant::now();
        let mut rest = Vec::new();
        let _end = timeout(PATIENCE, client.io.read_to_end(&mut rest)).await.expect("closed");
        let took = began.elapsed();
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(11), "{took:?}");
        eventually("counted by reason", || world.closed("handshake-timeout") == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn closing_before_the_hello_is_noticed() {
    let world = World::new(config());
    let client = world.dial(64 << 10).await;
    let active = &world.server_metrics.connections_active;
    eventually("it is counted", || active.get() == 1).await;
    drop(client);
    eventually("it is gone", || active.get() == 0).await;
    assert_eq!(world.closed("client-closed"), 1);
}

#[tokio::test(start_paused = true)]
async fn half_open_connections_make_room_for_others() {
    let mut world = World::new(crate::syncserver::Config { max_handshakes: 3, ..config() });
    world.status(SyncStatus::InSync);
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(world.dial(64).await);
    }
    let began = Instant::now();
    let mut client = world.connect(Speech::GobSnappy).await;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(world.closed("handshake-evicted") >= 7);
}

/// Sends a hello in this number of pieces, a second and a half apart, to a server without a free slot, for which others
/// wait. Returns whether it was answered, and the time until the answer or the end.
async fn hello_in_pieces(pieces: usize, of: usize) -> (bool, Duration) {
    let world = World::new(crate::syncserver::Config { max_handshakes: 1, ..config() });
    let mut io = world.dial(64 << 10).await;
    let began = Instant::now();
    let _others = [world.dial(64).await, world.dial(64).await];
    let hello = gob_bytes(&Message::ClientHello(gob_hello(&Speech::GobPlain, "felix")), true);
    for piece in hello.chunks(hello.len().div_ceil(of)).take(pieces) {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        if io.write_all(piece).await.is_err() {
            break;
        }
    }
    let answer = timeout(PATIENCE, io.read(&mut [0])).await.expect("answered or closed");
    (answer.is_ok_and(|bytes| bytes > 0), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_sent_something_need_not_make_room() {
    let secs = Duration::as_secs_f64;
    let (answered, after) = hello_in_pieces(2, 2).await;
    assert!(answered && secs(&after) >= 3.0, "{after:?}");
    // Asked after two seconds and again after four, without a byte in between.
    let (answered, after) = hello_in_pieces(1, 2).await;
    assert!(!answered && (4.0..4.1).contains(&secs(&after)), "{after:?}");
    // Always a new byte, and never all of them.
    let (answered, after) = hello_in_pieces(100, 100).await;
    assert!(!answered && (8.0..9.1).contains(&secs(&after)), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_acknowledgement_is_awaited_and_may_come_ahead() {
    let mut world = World::new(config());
    world.put(&[("/a", "1")]);
    world.status(SyncStatus::InSync);
    // Nothing follows the restart before the ACK (the harness checks), and without one the client is cut.
    let mut client = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    client.hello("felix").await;
    let mut plain = Vec::new();
    let began = Instant::now();
    let _end = timeout(PATIENCE, client.io.read_to_end(&mut plain)).await.expect("closed");
    let took = began.elapsed();
    assert!(took >= config().pong_timeout && took < config().pong_timeout * 2, "{took:?}");
    eventually("counted", || world.closed("ack-timeout") == 1).await;

    // A client may send its hello and both ACKs of Calico's own server at once.
    let mut client = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    client.hello("felix").await;
    client.say(&Message::Ack).await;
    client.acked_ahead = true;
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    assert_eq!(client.map.len(), 1);
    // The harness acknowledged the restart as well: that was the second. A third has no meaning.
    client.say(&Message::Ack).await;
    client.until_closed().await;
    eventually("counted", || world.closed("unexpected-message") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_not_acknowledged_yet_is_not_behind() {
    let mut world = World::new(config());
    world.status(SyncStatus::InSync);
    let mut client = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    client.hello("felix").await;
    eventually("its hello is answered", || {
        world.handle.clients().iter().any(|client| client.state == ClientState::AwaitingAck)
    })
    .await;
    for n in 0..5 {
        world.put(&[(&format!("/k/{n}"), "1")]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let shown = world.handle.clients().pop().expect("it is there");
    assert_eq!((shown.sequence, shown.lag, shown.lag_updates), (0, Duration::ZERO, 0));
    assert_eq!(world.felix_metrics.oldest_client_updates.get(), 0);
    client.until("in sync", |client| client.status == SyncStatus::InSync).await;
    eventually("it is shown where it stands", || world.handle.clients()[0].sequence >= 5).await;
}

#[tokio::test(start_paused = true)]
async fn an_unexpected_message_after_the_hello_ends_the_connection() {
    let mut world = World::new(config());
    world.status(SyncStatus::InSync);
    let second_hello = Message::ClientHello(gob_hello(&Speech::GobPlain, "felix"));
    let cases = [
        ("unexpected-message", gob_bytes(&second_hello, false)),
        ("unexpected-message", gob_bytes(&Message::Ack, false)),
        // An envelope without a message.
        ("unexpected-message", BytesMut::from(&[0x03, 0xff, 0x80, 0x00][..])),
        // An integer.
        ("bad-message", BytesMut::from(&[0x03, 0x04, 0x00, 0x2a][..])),
        ("bad-message", BytesMut::from(&[0x80; 10][..])),
    ];
    for (n, (reason, bytes)) in cases.iter().enumerate() {
        let mut client = world.connect(Speech::GobPlain).await;
        client.until("in sync", |client| client.status == SyncStatus::InSync).await;
        let before = world.closed(reason);
        let began = Instant::now();
        client.send(bytes).await;
        client.until_closed().await;
        assert!(began.elapsed() < Duration::from_millis(100), "case {n}");
        eventually(&format!("case {n} ({reason})"), || world.closed(reason) == before + 1).await;
    }
    // A pong where the ACK was awaited.
    let mut client = Client::new(world.dial(64 << 10).await, Speech::GobSnappy);
    client.hello("felix").await;
    client.say(&Message::Pong(Pong::default())).await;
    let mut rest = Vec::new();
    let _end = timeout(PATIENCE, client.io.read_to_end(&mut rest)).await.expect("closed");
    eventually("counted", || world.closed("unexpected-message") == 4).await;
}

#[tokio::test(start_paused = true)]
async fn there_is_a_bound_on_connections_that_silent_strangers_do_not_use_up() {
    const MOST: usize = 5;
    let mut world = World::new(crate::syncserver::Config { max_connections: MOST, max_handshakes: MOST, ..config() });
    world.status(SyncStatus::InSync);
    let mut strangers = Vec::new();
    for _ in 0..MOST {
        strangers.push(world.dial(64).await);
    }
    let mut agents = Vec::new();
    for _ in 0..MOST {
        let mut agent = world.connect(Speech::native("none")).await;
        agent.until("in sync", |client| client.status == SyncStatus::InSync).await;
        agents.push(agent);
    }
    let streaming = world.felix_metrics.connections_streaming.clone();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(world.server_metrics.connections_dropped.get(), 0, "strangers do not count for the governor");
    assert_eq!(streaming.get(), 5);
    drop(strangers);

    // Too many at once for the governor, which ends one a second.
    let mut late = Vec::new();
    for _ in 0..4 * MOST {
        late.push(world.connect(Speech::native("none")).await);
    }
    eventually("some are refused", || world.closed("too-many-connections") >= 10).await;
    assert!(streaming.get() <= 10, "{}", streaming.get());
    let goodbye = late.pop().expect("the last one").until_closed().await.expect("it is told why");
    assert!(goodbye.contains("maximum number of connections"), "{goodbye}");
}
