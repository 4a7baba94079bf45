//! Servers that keep the rules and servers that do not.

use super::*;
use crate::calico::release::Release;
use crate::calico::syncers::FELIX;
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::syncproto::gob_format::{GobPlain, GobSnappy};
use crate::syncproto::messages::Ping;

fn identity() -> Identity {
    Identity {
        agent: "agent".to_owned(),
        version: "1".to_owned(),
        syncer: FELIX,
        prefixes: Vec::new(),
        dialect: Release::Master,
    }
}

fn hello() -> ServerHello {
    ServerHello {
        version: "v3".to_owned(),
        syncer_type: "felix".to_owned(),
        supports_node_resource_updates: true,
        server_conn_id: 9,
    }
}

fn encoded(messages: &[Message]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for message in messages {
        gob::encode(message, &mut out);
    }
    out.to_vec()
}

fn restart(algorithm: &str) -> Message {
    Message::DecoderRestart(DecoderRestart { message: "test".to_owned(), compression_algorithm: algorithm.to_owned() })
}

fn update(key: &str) -> Arc<Update> {
    Arc::new(Update {
        key: Key::from(key),
        value: Some(Value::raw("v")),
        revision: Arc::from("5"),
        v3_resource_version: no_revision(),
        ttl: Duration::from_secs(1),
        update_type: UpdateType::New,
        origin: None,
    })
}

/// Plays bytes in one piece or byte by byte; returns what arrived in short, the error, and the answers.
fn play(compression: bool, bytes: &[u8], step: usize) -> (Vec<String>, Option<String>, Vec<Message>) {
    let mut session = CalicoSession::new(identity(), compression, 3);
    let (mut out, mut heard, mut error) = (BytesMut::new(), Vec::new(), None);
    out.extend_from_slice(&gob::client_prefix());
    'bytes: for piece in bytes.chunks(step) {
        let mut input = BytesMut::from(piece);
        loop {
            match session.on_input(&mut input, &mut out) {
                Ok(Some(Incoming::Hello(server))) => heard.push(format!("hello {}", server.compression)),
                Ok(Some(Incoming::Updates(updates, _))) => heard.push(format!("{} updates", updates.len())),
                Ok(Some(Incoming::Status(status))) => heard.push(status.to_string()),
                Ok(Some(Incoming::Progress { .. })) => heard.push("alive".to_owned()),
                Ok(Some(Incoming::Goodbye(_))) => unreachable!("there is no goodbye"),
                Ok(None) => break,
                Err(broken) => {
                    error = Some(broken.to_string());
                    break 'bytes;
                }
            }
        }
    }
    let mut decoder = gob::Decoder::new(Limits::server());
    decoder.push(&out);
    let mut answers = Vec::new();
    while let Some(Envelope(message)) = decoder.next().unwrap() {
        answers.push(message.expect("clients send no nil"));
    }
    (heard, error, answers)
}

#[test]
fn a_plain_session() {
    let ping = Message::Ping(Ping { timestamp: GobTime::from_system_time(std::time::SystemTime::UNIX_EPOCH) });
    let bytes = [
        gob::server_prefix().to_vec(),
        encoded(&[Message::ServerHello(hello())]),
        GobPlain.snapshot_chunk(&[update("/a"), update("/b")]).0.to_vec(),
        encoded(&[Message::SyncStatus(2), ping.clone()]),
        GobPlain.updates(SeqRange { after: 1, upto: 2 }, &[update("/a")]).to_vec(),
    ]
    .concat();
    for step in [1, 7, bytes.len()] {
        let (heard, error, answers) = play(false, &bytes, step);
        assert_eq!(error, None);
        assert_eq!(heard, ["hello none", "2 updates", "in-sync", "alive", "1 updates"]);
        let Message::Ping(Ping { timestamp }) = ping.clone() else { unreachable!() };
        assert_eq!(answers, [Message::Pong(Pong { ping_timestamp: timestamp, pong_timestamp: GobTime::default() })]);
    }
}

#[test]
fn a_compressed_session_whose_server_does_not_wait() {
    let bytes = [
        gob::server_prefix().to_vec(),
        encoded(&[Message::ServerHello(hello()), restart(SNAPPY)]),
        GobSnappy.prefix().to_vec(),
        GobSnappy.snapshot_chunk(&[update("/a")]).0.to_vec(),
        GobSnappy.status(1, SyncStatus::InSync).to_vec(),
    ]
    .concat();
    for step in [1, 100, bytes.len()] {
        let (heard, error, answers) = play(true, &bytes, step);
        assert_eq!(error, None);
        assert_eq!(heard, ["hello snappy", "alive", "1 updates", "in-sync"]);
        assert_eq!(answers, [Message::Ack]);
    }
}

#[test]
fn offers_need_not_be_taken() {
    let bytes =
        [gob::server_prefix().to_vec(), encoded(&[Message::ServerHello(hello()), Message::SyncStatus(1)])].concat();
    let (heard, error, answers) = play(true, &bytes, 1000);
    assert_eq!((heard, error, answers), (vec!["hello none".to_owned(), "resync".to_owned()], None, vec![]));
    let bytes = [
        gob::server_prefix().to_vec(),
        encoded(&[Message::ServerHello(hello()), restart("")]),
        gob::server_prefix().to_vec(),
        encoded(&[Message::SyncStatus(1)]),
    ]
    .concat();
    let (heard, error, answers) = play(true, &bytes, 1000);
    assert_eq!(error, None);
    assert_eq!(heard[1..], ["alive", "resync"]);
    assert_eq!(answers, [Message::Ack]);
}

#[test]
fn servers_that_break_the_protocol_are_left() {
    let greeted = Message::ServerHello(hello());
    for (compression, messages, expected) in [
        (true, vec![Message::SyncStatus(1)], "sent a status before its hello"),
        (true, vec![greeted.clone(), greeted.clone()], "a second hello"),
        (true, vec![Message::ServerHello(ServerHello { supports_node_resource_updates: false, ..hello() })], "too old"),
        (
            true,
            vec![Message::ServerHello(ServerHello { syncer_type: "bgp".to_owned(), ..hello() })],
            "serves syncer \"bgp\"",
        ),
        (false, vec![greeted.clone(), restart(SNAPPY)], "which was not offered"),
        (true, vec![greeted.clone(), restart("zstd")], "compression \"zstd\""),
        (true, vec![greeted, Message::SyncStatus(3)], "status 3"),
    ] {
        let bytes = [gob::server_prefix().to_vec(), encoded(&messages)].concat();
        let error = play(compression, &bytes, 1000).1.expect(expected);
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}

#[test]
fn odd_updates_are_put_right() {
    let wire = SerializedUpdate {
        key: Bytes::from_static(b"/k"),
        value: Bytes::new(),
        revision: None,
        v3_resource_version: "7".to_owned(),
        ttl_ns: -1,
        update_type: 200,
    };
    let update = to_update(wire.clone()).expect("a key in UTF-8");
    assert_eq!((update.value, &*update.revision, update.ttl), (None, "", Duration::ZERO));
    assert_eq!(update.update_type, UpdateType::Unknown);
    assert_eq!(to_update(SerializedUpdate { key: Bytes::from_static(b"/\xff"), ..wire }), None);
}
