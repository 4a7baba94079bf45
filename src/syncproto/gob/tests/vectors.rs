//! Replays recorded and hand-made streams: see the README of the vectors' folder.

use bytes::{Bytes, BytesMut};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Map, Value, json};

use super::super::number::{float, put_int, put_uint, uint_value, unfold_sign};
use super::super::{Decoder, Envelope, Error, ErrorClass, Limits, client_prefix, encode, exercise, server_prefix};
use super::{cut, decode, hex};
use crate::syncproto::messages::{GoRevision, GobTime, Message, SerializedUpdate};
use crate::syncproto::snappy;
use crate::syncproto::vectors_tests::{list, text, unhex, vectors};

/// Every stream is cut at random places this many times.
const SPLITS: u64 = 5;

/// Go's zero time, in seconds since 1970.
const YEAR_ONE: i64 = -62_135_596_800;

/// As generous as Go, so that outcomes can be compared.
const LIKE_GO: Limits = Limits {
    max_message_bytes: usize::MAX >> 1,
    max_types: usize::MAX,
    max_fields: usize::MAX,
    max_elements: usize::MAX >> 1,
    ..Limits::client()
};

/// The end of a stream, in the vectors' words: bytes that mean the end of the stream to Go are an orderly end.
fn end_of(end: Result<(), Error>) -> Result<(), String> {
    match end.map_err(|error| error.class()) {
        Ok(()) | Err(ErrorClass::EndOfStream) => Ok(()),
        Err(class) => Err(word(class)),
    }
}

/// The vectors' word for a class: its name in snake case.
fn word(class: ErrorClass) -> String {
    let name = format!("{class:?}");
    let apart = name.chars().flat_map(|c| c.is_uppercase().then_some('_').into_iter().chain(c.to_lowercase()));
    apart.skip(1).collect()
}

/// Random cuts, the same in every run.
fn splits(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![bytes], bytes.chunks(1).collect()];
    for seed in 0..SPLITS {
        let mut random = StdRng::seed_from_u64(seed);
        let places: Vec<usize> =
            (0..random.random_range(1..20)).map(|_| random.random_range(0..=bytes.len())).collect();
        ways.push(cut(bytes, &places));
    }
    ways
}

/// Decodes a snappy stream of gob.
fn decode_snappy<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Envelope>, Result<(), String>) {
    let mut chunks = snappy::Decoder::new();
    let mut decoder = Decoder::new(LIKE_GO);
    let mut messages = Vec::new();
    for piece in pieces {
        chunks.push(piece);
        loop {
            match chunks.next_chunk() {
                Ok(Some(chunk)) => decoder.push(&chunk),
                Ok(None) => break,
                Err(_) => return (messages, Err("snappy".to_owned())),
            }
            loop {
                match decoder.next() {
                    Ok(Some(envelope)) => messages.push(envelope),
                    Ok(None) => break,
                    Err(error) => return (messages, end_of(Err(error))),
                }
            }
        }
    }
    let end = chunks.finish().map_err(|_| "snappy".to_owned()).and(end_of(decoder.finish()));
    (messages, end)
}

#[test]
fn vectors_of_streams_decode_as_go_decodes_them() {
    for vector in vectors(&["single", "stream", "otherversion", "legal", "malformed", "snappy"]) {
        let name = text(&vector, "name");
        let bytes = unhex(text(&vector, "hex"));
        let expected: Vec<Value> = list(&vector, "decoded").iter().map(lossy).collect();
        let expect = &vector["expect"];
        let expected_end = match text(expect, "outcome") {
            "ok" => Ok(()),
            "error" => Err(text(expect, "error_class").to_owned()),
            other => panic!("{name}: unknown outcome {other}"),
        };
        for pieces in splits(&bytes) {
            let (messages, end) = match text(&vector, "encoding") {
                "gob" => {
                    let (messages, end) = decode(pieces, LIKE_GO);
                    (messages, end_of(end))
                }
                "snappy+gob" => decode_snappy(pieces),
                other => panic!("{name}: unknown encoding {other}"),
            };
            let messages: Vec<Value> = messages.iter().map(to_json).collect();
            if expect["lenient_ok"] == true && end != expected_end {
                assert_eq!(end, Ok(()), "{name}: only leniency is allowed");
                continue;
            }
            assert_eq!(messages, expected, "{name}");
            assert_eq!(end, expected_end, "{name}");
        }
    }
}

#[test]
fn vectors_of_streams_end_each_message_where_go_does() {
    for vector in vectors(&["single", "stream", "otherversion", "legal", "malformed"]) {
        let bytes = unhex(text(&vector, "hex"));
        let mut decoder = Decoder::new(LIKE_GO);
        decoder.push(&bytes);
        for end in list(&vector, "message_ends") {
            decoder.next().unwrap().unwrap();
            let used = bytes.len() - decoder.buffered();
            assert_eq!(Some(used as u64), end.as_u64(), "{}", text(&vector, "name"));
        }
    }
}

#[test]
fn vectors_within_a_server_s_limits_never_exceed_them() {
    for vector in vectors(&["single", "stream", "otherversion", "legal", "malformed", "snappy"]) {
        let mut input = vec![17];
        input.extend(unhex(text(&vector, "hex")));
        exercise::decode(&input);
        snappy::exercise::decode(&input);
    }
}

#[test]
fn vectors_decoded_and_encoded_again_decode_to_the_same() {
    for vector in vectors(&["single", "stream", "otherversion", "legal"]) {
        if text(&vector["expect"], "outcome") != "ok" {
            continue;
        }
        let (messages, _) = decode([&unhex(text(&vector, "hex"))[..]], LIKE_GO);
        for Envelope(message) in messages {
            let Some(mut message) = message else { continue };
            if let Message::Kvs(updates) = &mut message {
                for revision in updates.iter_mut().filter_map(|update| update.revision.as_mut()) {
                    "string".clone_into(&mut revision.go_type);
                }
            }
            let from_client = matches!(message, Message::ClientHello(_) | Message::Ack | Message::Pong(_));
            let prefix = if from_client { client_prefix() } else { server_prefix() };
            let mut again = BytesMut::from(&prefix[..]);
            encode(&message, &mut again);
            assert_eq!(decode([&again[..]], LIKE_GO), (vec![Envelope(Some(message))], Ok(())));
        }
    }
}

#[test]
fn vectors_of_sessions_decode_in_both_directions() {
    for vector in vectors(&["session"]) {
        let name = text(&vector, "name");
        let from_client = unhex(text(&vector, "client_to_server_hex"));
        let expected = &vector["client_to_server"];
        let expected_messages: Vec<Value> = list(expected, "decoded").iter().map(lossy).collect();
        for pieces in splits(&from_client) {
            let (messages, end) = decode(pieces, Limits::server());
            assert_eq!(messages.iter().map(to_json).collect::<Vec<_>>(), expected_messages, "{name}");
            assert_eq!(end.is_ok(), text(expected, "outcome") == "ok", "{name}: {end:?}");
        }

        let from_server = unhex(text(&vector, "server_to_client_hex"));
        let segments = list(&vector, "server_to_client");
        for segment in segments {
            session_segment(name, &from_server, segment);
        }
        let expected_messages: Vec<Value> =
            segments.iter().flat_map(|segment| list(segment, "decoded")).map(lossy).collect();
        for pieces in splits(&from_server) {
            let messages = decode_session(pieces);
            assert_eq!(messages.iter().map(to_json).collect::<Vec<_>>(), expected_messages, "{name}");
        }
    }
}

/// One decoder's lifetime on its own.
fn session_segment(name: &str, from_server: &[u8], segment: &Value) {
    let place = |name: &str| usize::try_from(segment[name].as_u64().expect("an offset")).expect("a small offset");
    let bytes = &from_server[place("offset")..place("end")];
    let (messages, end) = match text(segment, "encoding") {
        "gob" => {
            let (messages, end) = decode([bytes], LIKE_GO);
            (messages, end_of(end))
        }
        _ => decode_snappy([bytes]),
    };
    let expected: Vec<Value> = list(segment, "decoded").iter().map(lossy).collect();
    assert_eq!(messages.iter().map(to_json).collect::<Vec<_>>(), expected, "{name}");
    let in_order = ["EOF", "MsgDecoderRestart"].contains(&text(segment, "ended_by"));
    assert_eq!(end.is_ok(), in_order, "{name}: {end:?}");
}

/// Decodes a whole direction, with a fresh decoder after each restart, as a client does.
fn decode_session<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Envelope> {
    let mut messages = Vec::new();
    let mut chunks: Option<snappy::Decoder> = None;
    let mut decoder = Decoder::new(LIKE_GO);
    for piece in pieces {
        match &mut chunks {
            Some(chunks) => chunks.push(piece),
            None => decoder.push(piece),
        }
        loop {
            while let Some(envelope) = decoder.next().unwrap() {
                let restart = matches!(envelope, Envelope(Some(Message::DecoderRestart(_))));
                messages.push(envelope);
                if restart {
                    let unread = match &mut chunks {
                        Some(chunks) => {
                            assert_eq!(decoder.buffered(), 0, "a restart ends its chunk");
                            chunks.take_buffered()
                        }
                        None => decoder.take_buffered(),
                    };
                    decoder = Decoder::new(LIKE_GO);
                    chunks.insert(snappy::Decoder::new()).push(&unread);
                }
            }
            match chunks.as_mut().and_then(|chunks| chunks.next_chunk().unwrap()) {
                Some(chunk) => decoder.push(&chunk),
                None => break,
            }
        }
    }
    decoder.finish().unwrap();
    chunks.map_or(Ok(()), |chunks| chunks.finish()).unwrap();
    messages
}

#[test]
fn vectors_of_primitives_are_encoded_and_decoded() {
    for vector in vectors(&["primitive"]) {
        let name = text(&vector, "name");
        for case in list(&vector, "cases") {
            let bytes = unhex(text(case, "hex"));
            let mut out = BytesMut::new();
            // The file may be named behind it.
            match name.split(' ').next().unwrap_or_default() {
                "primitive_uint" => {
                    let value: u64 = text(case, "value").parse().unwrap();
                    put_uint(&mut out, value);
                    assert_eq!(uint_value(&bytes), value);
                }
                "primitive_int" => {
                    let value: i64 = text(case, "value").parse().unwrap();
                    put_int(&mut out, value);
                    assert_eq!(unfold_sign(uint_value(&bytes)), value);
                }
                "primitive_string" => {
                    let value = text(case, "value");
                    put_uint(&mut out, value.len() as u64);
                    out.extend_from_slice(value.as_bytes());
                }
                "primitive_float" => {
                    let value = float(uint_value(&bytes));
                    assert_eq!(format!("{:016x}", value.to_bits()), text(case, "bits"));
                    put_uint(&mut out, value.to_bits().swap_bytes());
                }
                "primitive_time" => time(&mut out, &bytes, case),
                _ => panic!("{name}: unknown kind of primitive"),
            }
            assert_eq!(hex(&out), text(case, "hex"), "{name}");
        }
    }
}

/// Decodes the bare encoding of a time, its length and its bytes, and encodes it again.
fn time(out: &mut BytesMut, encoded: &[u8], case: &Value) {
    let (&length, bytes) = encoded.split_first().expect("a time has a length");
    assert_eq!(usize::from(length), bytes.len(), "a time is as long as it says: {case}");
    let time = GobTime::from_wire(Bytes::copy_from_slice(bytes)).expect("a time that Go sends");
    let decoded = time_to_json(&time);
    if case["zero"] == true {
        assert_eq!((&decoded["unix_sec"], &decoded["nsec"]), (&json!(YEAR_ONE), &json!(0)), "{case}");
    } else {
        assert!(case["unix_sec"].is_number() && case["nsec"].is_number(), "a time has unix_sec and nsec: {case}");
        assert_eq!((&decoded["unix_sec"], &decoded["nsec"]), (&case["unix_sec"], &case["nsec"]), "{case}");
    }
    // The same time in UTC, the only zone in which we send times of our own. Times in other zones are only sent back unchanged.
    let in_utc = GobTime::from_system_time(time.to_system_time().expect("a time in range"));
    assert_eq!(in_utc.0[1..13], bytes[1..13], "{case}");
    put_uint(out, time.0.len() as u64);
    out.extend_from_slice(if bytes.ends_with(&[0xff, 0xff]) { &in_utc.0 } else { &time.0 });
}

/// An expected message with the text that cannot be UTF-8 for us replaced as our decoder replaces it.
fn lossy(expected: &Value) -> Value {
    match expected {
        Value::Array(items) => items.iter().map(lossy).collect(),
        Value::Object(fields) => {
            let is_revision = fields.contains_key("go_type");
            let replace = |(name, value): (&String, &Value)| match name.strip_suffix("_hex") {
                Some(text) if is_revision || !["key", "value", "gob"].contains(&text) => {
                    let bytes = unhex(value.as_str().expect("hexadecimal digits"));
                    (text.to_owned(), String::from_utf8_lossy(&bytes).into())
                }
                _ => (name.clone(), lossy(value)),
            };
            Value::Object(fields.iter().map(replace).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// A message as the vectors write it.
fn to_json(Envelope(message): &Envelope) -> Value {
    match message {
        None => json!({ "type": null }),
        Some(Message::ClientHello(hello)) => json!({
            "type": "MsgClientHello",
            "hostname": hello.hostname,
            "info": hello.info,
            "version": hello.version,
            "syncer_type": hello.syncer_type,
            "supports_decoder_restart": hello.supports_decoder_restart,
            "supported_compression_algorithms": hello.supported_compression_algorithms,
            "supports_modern_policy_keys": hello.supports_modern_policy_keys,
            "client_conn_id": hello.client_conn_id.to_string(),
        }),
        Some(Message::ServerHello(hello)) => json!({
            "type": "MsgServerHello",
            "version": hello.version,
            "syncer_type": hello.syncer_type,
            "supports_node_resource_updates": hello.supports_node_resource_updates,
            "server_conn_id": hello.server_conn_id.to_string(),
        }),
        Some(Message::DecoderRestart(restart)) => json!({
            "type": "MsgDecoderRestart",
            "message": restart.message,
            "compression_algorithm": restart.compression_algorithm,
        }),
        Some(Message::Ack) => json!({ "type": "MsgACK" }),
        Some(Message::SyncStatus(status)) => json!({ "type": "MsgSyncStatus", "sync_status": status }),
        Some(Message::Ping(ping)) => json!({ "type": "MsgPing", "timestamp": time_to_json(&ping.timestamp) }),
        Some(Message::Pong(pong)) => json!({
            "type": "MsgPong",
            "ping_timestamp": time_to_json(&pong.ping_timestamp),
            "pong_timestamp": time_to_json(&pong.pong_timestamp),
        }),
        Some(Message::Kvs(updates)) => {
            json!({ "type": "MsgKVs", "kvs": updates.iter().map(update_to_json).collect::<Vec<_>>() })
        }
    }
}

fn update_to_json(update: &SerializedUpdate) -> Value {
    let mut fields = Map::new();
    let mut insert = |name: &str, bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(name.to_owned(), text.into()),
        Err(_) => fields.insert(format!("{name}_hex"), hex(bytes).into()),
    };
    insert("key", &update.key);
    if !update.value.is_empty() {
        insert("value", &update.value);
    }
    if update.value.is_empty() {
        fields.insert("value".to_owned(), Value::Null);
    }
    let revision = update
        .revision
        .as_ref()
        .map_or(Value::Null, |GoRevision { go_type, text }| json!({ "go_type": go_type, "value": text }));
    fields.insert("revision".to_owned(), revision);
    fields.insert("v3_resource_version".to_owned(), update.v3_resource_version.as_str().into());
    fields.insert("ttl_ns".to_owned(), update.ttl_ns.into());
    fields.insert("update_type".to_owned(), update.update_type.into());
    Value::Object(fields)
}

fn time_to_json(time: &GobTime) -> Value {
    if time.0.is_empty() {
        return json!({ "zero": true });
    }
    let at = time.to_system_time().expect("a time in range");
    let (seconds, nanoseconds) = match at.duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = -i64::try_from(before.as_secs()).unwrap();
            match before.subsec_nanos() {
                0 => (whole, 0),
                nanoseconds => (whole - 1, 1_000_000_000 - nanoseconds),
            }
        }
    };
    json!({ "unix_sec": seconds, "nsec": nanoseconds, "gob_hex": hex(&time.0) })
}
