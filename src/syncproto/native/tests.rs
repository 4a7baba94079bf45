//! Bytes of the protocol: goldens (the examples of docs/protocol.md), round trips, limits, and input from a hostile peer.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tokio_util::codec::{Decoder, LengthDelimitedCodec};

use super::format::wire_format;
use super::*;
use crate::model::{AsOf, Key, SyncStatus, Update, UpdateType, Value};
use crate::syncproto::format::{SeqRange, WireFormat};

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn update(key: &str, value: Option<&str>, update_type: UpdateType) -> Update {
    Update {
        key: Key::from(key),
        value: value.map(|value| Value::raw(value.to_owned())),
        revision: Arc::from("12"),
        v3_resource_version: Arc::from(""),
        ttl: Duration::ZERO,
        update_type,
        origin: None,
    }
}

fn as_of() -> AsOf {
    AsOf { revision: Arc::from("12"), at: UNIX_EPOCH + Duration::from_secs(1_700_000_000) }
}

fn client_hello() -> ClientHello {
    ClientHello {
        min_version: 1,
        max_version: 1,
        agent: "agent-a".to_owned(),
        agent_version: "1.0".to_owned(),
        syncer: "felix".to_owned(),
        compressions: vec!["zstd".to_owned(), "none".to_owned()],
        prefixes: vec!["/calico/v1/".to_owned()],
        resume: Some(Position { epoch: 7, seq: 300 }),
        conn_id: 9,
    }
}

fn server_hello() -> ServerHello {
    ServerHello {
        version: 1,
        server: "bulrush-0".to_owned(),
        server_version: "0.1.0".to_owned(),
        syncer: "felix".to_owned(),
        compression: "zstd".to_owned(),
        epoch: 7,
        conn_id: 70_000,
        resumed: false,
        limits: Limits { max_frame_bytes: 262_144, ping_interval_ms: 10_000, pong_timeout_ms: 60_000 },
    }
}

fn client_bytes(frame: &ClientFrame) -> BytesMut {
    let mut out = BytesMut::new();
    encode_client(frame, &mut out);
    out
}

fn decode_all_server(bytes: &[u8]) -> Result<Vec<ServerFrame>, Error> {
    let mut input = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decode_server(&mut input)? {
        frames.push(frame);
    }
    assert!(input.is_empty(), "{} bytes left over", input.len());
    Ok(frames)
}

/// The examples of docs/protocol.md. A change here breaks peers: it needs a new protocol version.
#[test]
fn golden_bytes() {
    let plain = NativePlain::default();
    let updates = [
        Arc::new(update("/k", Some("v"), UpdateType::Updated)),
        Arc::new(Update { revision: Arc::from(""), ..update("/z", None, UpdateType::Deleted) }),
    ];
    let ack = Ack { applied: 300, errors: vec![KeyError { key: Key::from("/k"), reason: "no".to_owned() }] };
    let table: Vec<(&str, Bytes)> = vec![
        ("magic", Bytes::from_static(&MAGIC)),
        ("client hello", client_bytes(&ClientFrame::Hello(client_hello())).freeze()),
        ("acknowledgement", client_bytes(&ClientFrame::Ack(ack)).freeze()),
        ("pong", client_bytes(&ClientFrame::Pong { ping_at: as_of().at }).freeze()),
        (
            "client goodbye",
            client_bytes(&ClientFrame::Goodbye(Goodbye { reason: "bye".to_owned(), alternatives: vec![] })).freeze(),
        ),
        ("server hello", encode_server_hello(&server_hello())),
        ("snapshot begin", plain.snapshot_begin(300, 1)),
        ("snapshot chunk", plain.snapshot_chunk(&updates[..1]).0),
        ("snapshot end", plain.snapshot_end(300, Some(&as_of()))),
        ("updates", plain.updates(SeqRange { after: 300, upto: 302 }, &updates)),
        ("status", plain.status(302, SyncStatus::InSync)),
        ("ping", plain.ping(as_of().at, None)),
        ("server goodbye", encode_goodbye("draining", &["b:5473".to_owned()])),
    ];
    let documented = include_str!("../../../docs/protocol.md");
    for (name, bytes) in table {
        let line = format!("\n{name}: {}\n", hex(&bytes));
        assert!(documented.contains(&line), "docs/protocol.md lacks the line{line}");
    }
}

#[test]
fn the_framing_is_that_of_tokio_util() {
    let mut bytes = client_bytes(&ClientFrame::Hello(client_hello()));
    let length = bytes.len();
    let frame = LengthDelimitedCodec::new().decode(&mut bytes).expect("a frame").expect("whole");
    assert_eq!(frame.len(), length - 4);
    assert!(bytes.is_empty());
}

#[test]
fn the_first_bytes_tell_the_protocol() {
    let table: &[(&[u8], Detection)] = &[
        (b"", Detection::NeedMore),
        (&MAGIC[..1], Detection::NeedMore),
        (&MAGIC[..7], Detection::NeedMore),
        (&MAGIC, Detection::Native),
        (b"\x89bulrsh\n\x00\x00", Detection::Native),
        (b"\x89PNG", Detection::Other),
        // A gob stream: frame of 33 bytes, definition of type 64.
        (&[0x21, 0x7f], Detection::Other),
        (&[0x16, 0x03, 0x01], Detection::Other),
        (b"GET / HTTP/1.1", Detection::Other),
    ];
    for (bytes, expected) in table {
        assert_eq!(detect(bytes), *expected, "{bytes:x?}");
    }
}

#[test]
fn versions_are_negotiated_by_range() {
    for (min, max, expected) in [(1, 1, Some(1)), (0, 9, Some(1)), (2, 9, None), (0, 0, None), (9, 1, None)] {
        assert_eq!(negotiate(min, max), expected, "{min}..={max}");
    }
}

#[test]
fn the_first_known_compression_is_chosen() {
    for (offers, expected) in [
        (vec!["zstd", "snappy"], Compression::Zstd),
        (vec!["lz4", "snappy", "zstd"], Compression::Snappy),
        (vec!["none", "zstd"], Compression::None),
        (vec![], Compression::None),
        (vec!["lz4"], Compression::None),
    ] {
        let offers: Vec<String> = offers.into_iter().map(str::to_owned).collect();
        assert_eq!(Compression::choose(&offers), expected, "{offers:?}");
    }
}

#[test]
fn hellos_may_grow() {
    for (bytes, client) in [
        (client_bytes(&ClientFrame::Hello(client_hello())).to_vec(), true),
        (encode_server_hello(&server_hello()).to_vec(), false),
    ] {
        let mut grown = bytes.clone();
        grown.extend_from_slice(b"later");
        let length = u32::try_from(grown.len() - 4).unwrap();
        grown[..4].copy_from_slice(&length.to_be_bytes());
        let mut input = BytesMut::from(&grown[..]);
        if client {
            let frame = decode_client(&mut input).unwrap();
            assert_eq!(frame, Some(ClientFrame::Hello(client_hello())));
        } else {
            let frame = decode_server(&mut input).unwrap();
            assert_eq!(frame, Some(ServerFrame::Hello(server_hello())));
        }
    }
}

/// A frame from type and payload.
fn frame(frame_type: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len() + 1).unwrap().to_be_bytes().to_vec();
    bytes.push(frame_type);
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn broken_client_frames_are_refused_in_words() {
    let long_text = [&[1, 1, 251, 1, 4][..], &[b'a'; 1025]].concat();
    let table: Vec<(Vec<u8>, &str)> = vec![
        (vec![0, 1, 0, 1], "announces 65537 bytes, the limit is 65536"),
        (b"GET / HTTP/1.1\r\n".to_vec(), "announces 1195725856 bytes"),
        (frame(1, &[])[..4].iter().map(|_| 0).collect(), "it is empty"),
        (frame(9, b""), "type 9 is not known"),
        (frame(20, b""), "type 20 is not known"),
        (frame(0x43, &[1]), "compression 1 is not allowed"),
        (frame(3, b""), "decode pong"),
        (frame(3, &[1, 2]), "1 bytes follow its end"),
        (frame(2, &[1, 65]), "announces 65 elements"),
        (frame(2, &[1, 253, 255, 255, 255, 255, 255, 255, 255, 255]), "announces 18446744073709551615 elements"),
        (frame(2, &[1, 5, 0, 0]), "announces 5 elements, at most 1 are possible"),
        (frame(2, &[1, 1, 1, 0xff, 0]), "decode acknowledgement"),
        (frame(1, &long_text), "it has 1025 bytes, the limit is 1024"),
        (frame(1, &[1]), "decode client hello"),
    ];
    for (bytes, expected) in table {
        let error = decode_client(&mut BytesMut::from(&bytes[..])).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}

#[test]
fn broken_server_frames_are_refused_in_words() {
    let bomb = zstd::bulk::compress(&vec![0; MAX_SERVER_FRAME_BYTES + 1], 1).unwrap();
    let cut = &zstd::bulk::compress(&[7; 1000], 1).unwrap()[..10];
    let table: Vec<(Vec<u8>, &str)> = vec![
        (vec![4, 0, 0, 1], "announces 67108865 bytes"),
        (frame(1, b""), "type 1 is not known"),
        (frame(0xd4, b""), "compression 3 is not allowed"),
        (frame(20, &[1, 2, 200]), "announces 200 elements, at most 0"),
        (frame(20, &[1, 2, 1, 1, b'k', 0, 0, 0, 0, 4]), "update type 4 is not known"),
        (frame(20, &[1, 2, 1, 1, b'k', 2, 0, 0, 0, 4]), "decode updates"),
        (frame(21, &[1, 3, 0]), "status 3 is not known"),
        (frame(0x54, &[0xff, 0xff, 0xff, 0xff, 0x7f]), "decompress snappy"),
        (frame(0x54, &[5, 0]), "decompress snappy"),
        (frame(0x94, &bomb), "it announces 67108865 bytes"),
        (frame(0x94, b"nonsense"), "zstd frame header"),
        (frame(0x94, cut), "decompress zstd"),
    ];
    for (bytes, expected) in table {
        let error = decode_server(&mut BytesMut::from(&bytes[..])).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} should contain {expected}");
    }
}

#[test]
fn an_announced_frame_is_not_reserved_for() {
    let mut input = BytesMut::from(&[4, 0, 0, 0, 20, 1, 2][..]);
    assert!(decode_server(&mut input).expect("legal so far").is_none());
    assert!(input.capacity() < 1024, "{} bytes reserved", input.capacity());
    assert_eq!(input.len(), 7);
}

#[test]
fn long_batches_are_cut_and_only_the_last_frame_moves_the_position() {
    let big = "x".repeat(TARGET_FRAME_BYTES / 2);
    let cases: [(usize, &str, usize); 4] = [(1, "v", 1), (2500, "v", 3), (5, &big, 3), (0, "", 1)];
    for (count, value, frames_expected) in cases {
        let updates: Vec<_> =
            (0..count).map(|n| Arc::new(update(&format!("/k/{n}"), Some(value), UpdateType::Updated))).collect();
        for compression in Compression::ALL {
            let format = wire_format(compression);
            let bytes = format.updates(SeqRange { after: 5, upto: 9 }, &updates);
            let frames = decode_all_server(&bytes).unwrap();
            assert_eq!(frames.len(), frames_expected, "{count} updates of {} bytes", value.len());
            let mut seen = Vec::new();
            for (index, frame) in frames.into_iter().enumerate() {
                let ServerFrame::Updates { after, upto, updates } = frame else { panic!("{frame:?}") };
                assert_eq!((after, upto), (5, if index + 1 == frames_expected { 9 } else { 5 }));
                seen.extend(updates.into_iter().map(Arc::new));
            }
            assert_eq!(seen, updates);
            if count > 0 {
                let (bytes, raw) = format.snapshot_chunk(&updates);
                assert!(raw >= count * value.len());
                let entries: usize = decode_all_server(&bytes)
                    .unwrap()
                    .into_iter()
                    .map(|frame| match frame {
                        ServerFrame::SnapshotChunk { updates } => {
                            assert!(updates.iter().all(|update| update.update_type == UpdateType::New));
                            updates.len()
                        }
                        other => panic!("{other:?}"),
                    })
                    .sum();
                assert_eq!(entries, count);
            }
        }
    }
}

#[test]
fn frames_that_gain_nothing_stay_uncompressed() {
    let small = [Arc::new(update("/k", Some("v"), UpdateType::New))];
    let large = [Arc::new(update("/k", Some(&"abc ".repeat(1000)), UpdateType::New))];
    for (compression, bits) in [(Compression::Snappy, 0x40), (Compression::Zstd, 0x80)] {
        let format = wire_format(compression);
        assert_eq!(format.snapshot_chunk(&small).0[4] & 0xc0, 0);
        let (bytes, raw) = format.snapshot_chunk(&large);
        assert_eq!(bytes[4] & 0xc0, bits);
        assert!(bytes.len() < raw / 8, "{} of {raw} bytes", bytes.len());
    }
}

#[test]
fn too_large_a_value_affects_only_its_key() {
    let huge = Value::raw(vec![b'x'; MAX_SERVER_FRAME_BYTES]);
    let updates = [
        Arc::new(Update { value: Some(huge), ..update("/huge", None, UpdateType::New) }),
        Arc::new(update("/k", Some("v"), UpdateType::New)),
    ];
    let frames = decode_all_server(&NativePlain::default().updates(SeqRange { after: 0, upto: 1 }, &updates)).unwrap();
    let seen: Vec<Update> = frames
        .into_iter()
        .flat_map(|frame| match frame {
            ServerFrame::Updates { updates, .. } => updates,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, [Update { value: None, ..(*updates[0]).clone() }, (*updates[1]).clone()]);
}

fn arb_update() -> impl Strategy<Value = Update> {
    (
        "(/[a-z0-9é]{0,12}){1,4}",
        option::of(vec(any::<u8>(), 0..600)),
        "[0-9a-z]{0,8}",
        "[0-9]{0,8}",
        any::<u64>(),
        0..4_u64,
    )
        .prop_map(|(key, value, revision, v3, ttl, update_type)| Update {
            key: Key::from(key),
            value: value.map(Value::raw),
            revision: Arc::from(revision),
            v3_resource_version: Arc::from(v3),
            ttl: Duration::from_nanos(ttl),
            update_type: UpdateType::from_wire(update_type).unwrap(),
            origin: None,
        })
}

fn arb_as_of() -> impl Strategy<Value = AsOf> {
    ("[0-9]{0,12}", any::<u64>())
        .prop_map(|(revision, ns)| AsOf { revision: Arc::from(revision), at: UNIX_EPOCH + Duration::from_nanos(ns) })
}

fn arb_client_frame() -> impl Strategy<Value = ClientFrame> {
    let text = "[ -~é]{0,40}";
    let hello = (
        (any::<u16>(), any::<u16>(), text, text, text),
        vec(text, 0..MAX_COMPRESSIONS),
        vec(text, 0..MAX_PREFIXES),
        option::of((any::<u64>(), any::<u64>())),
        any::<u64>(),
    )
        .prop_map(
            |((min_version, max_version, agent, agent_version, syncer), compressions, prefixes, resume, conn_id)| {
                ClientFrame::Hello(ClientHello {
                    min_version,
                    max_version,
                    agent,
                    agent_version,
                    syncer,
                    compressions,
                    prefixes,
                    resume: resume.map(|(epoch, seq)| Position { epoch, seq }),
                    conn_id,
                })
            },
        );
    let ack = (any::<u64>(), vec((text, text), 0..MAX_ACK_ERRORS)).prop_map(|(applied, errors)| {
        let errors = errors.into_iter().map(|(key, reason)| KeyError { key: Key::from(key), reason }).collect();
        ClientFrame::Ack(Ack { applied, errors })
    });
    let pong = any::<u64>().prop_map(|ns| ClientFrame::Pong { ping_at: UNIX_EPOCH + Duration::from_nanos(ns) });
    let goodbye = (text, vec(text, 0..4))
        .prop_map(|(reason, alternatives)| ClientFrame::Goodbye(Goodbye { reason, alternatives }));
    prop_oneof![hello, ack, pong, goodbye]
}

proptest! {
    #[test]
    fn client_frames_round_trip_under_any_split(frames in vec(arb_client_frame(), 1..5), step in 1_usize..200) {
        let mut bytes = BytesMut::new();
        for frame in &frames {
            encode_client(frame, &mut bytes);
        }
        let (mut input, mut seen) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(frame) = decode_client(&mut input).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert_eq!(seen, frames);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn server_frames_round_trip(
        updates in vec(arb_update(), 1..40),
        as_of in option::of(arb_as_of()),
        after in any::<u32>(),
        compression in prop::sample::select(&Compression::ALL[..]),
        step in 1_usize..500,
    ) {
        let format = wire_format(compression);
        let updates: Vec<_> = updates.into_iter().map(Arc::new).collect();
        let after = u64::from(after);
        let bytes = [
            format.prefix(),
            format.snapshot_begin(after, 7),
            format.snapshot_chunk(&updates).0,
            format.snapshot_end(after, as_of.as_ref()),
            format.updates(SeqRange { after, upto: after + 1 }, &updates),
            format.status(after, SyncStatus::ResyncInProgress),
            format.ping(UNIX_EPOCH, as_of.as_ref()),
            format.goodbye("why", &["b:1".to_owned()]).unwrap(),
        ].concat();
        let owned: Vec<Update> = updates.iter().map(|update| (**update).clone()).collect();
        let new = owned.iter().cloned().map(|update| Update { update_type: UpdateType::New, ..update }).collect();
        let expected = vec![
            ServerFrame::SnapshotBegin { seq: after, entries: 7 },
            ServerFrame::SnapshotChunk { updates: new },
            ServerFrame::SnapshotEnd { seq: after, as_of: as_of.clone() },
            ServerFrame::Updates { after, upto: after + 1, updates: owned },
            ServerFrame::Status { seq: after, status: SyncStatus::ResyncInProgress, as_of: None },
            ServerFrame::Ping { at: UNIX_EPOCH, as_of },
            ServerFrame::Goodbye(Goodbye { reason: "why".to_owned(), alternatives: vec!["b:1".to_owned()] }),
        ];
        let (mut input, mut seen) = (BytesMut::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(frame) = decode_server(&mut input).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn mutated_server_frames_never_panic(
        updates in vec(arb_update(), 1..20),
        compression in prop::sample::select(&Compression::ALL[..]),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let updates: Vec<_> = updates.into_iter().map(Arc::new).collect();
        let format = wire_format(compression);
        let mut bytes = format.updates(SeqRange { after: 1, upto: 2 }, &updates).to_vec();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode_server(&mut input) {}
    }

    #[test]
    fn mutated_client_frames_never_panic(
        frame in arb_client_frame(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = client_bytes(&frame);
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        while let Ok(Some(_)) = decode_client(&mut bytes) {}
    }

    #[test]
    fn random_payloads_never_panic(frame_type in any::<u8>(), payload in vec(any::<u8>(), 0..300)) {
        let bytes = frame(frame_type, &payload);
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode_client(&mut input) {}
        let mut input = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = decode_server(&mut input) {}
    }
}

/// The inputs that the fuzzer was given or has found.
#[test]
fn the_corpus_is_replayed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/native_frame");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        exercise::decode(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 10, "{inputs} inputs in {}", folder.display());
}
