//! Encoded messages are decoded, however they are cut; damaged ones are refused without harm.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::{Envelope, Limits, client_prefix, encode, exercise, server_prefix};
use super::{cut, decode};
use crate::syncproto::messages::{
    ClientHello, DecoderRestart, GoRevision, GobTime, Message, Ping, Pong, SerializedUpdate, ServerHello,
};
use crate::syncproto::snappy;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z/0-9]{0,20}", 1 => "\\PC{0,150}"]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![3 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 100..700)].prop_map(Bytes::from)
}

fn time() -> impl Strategy<Value = GobTime> {
    let at = (any::<u32>(), any::<bool>()).prop_map(|(nanos, before)| {
        let age = std::time::Duration::from_nanos(u64::from(nanos) * 1_000_000_001);
        let epoch = std::time::UNIX_EPOCH;
        GobTime::from_system_time(if before { epoch - age } else { epoch + age })
    });
    prop_oneof![1 => Just(GobTime::default()), 4 => at]
}

prop_compose! {
    fn update()(
        key in bytes(),
        value in bytes(),
        revision in proptest::option::weighted(0.9, text()),
        v3_resource_version in text(),
        ttl_ns in prop_oneof![Just(0), any::<i64>()],
        update_type in any::<u8>(),
    ) -> SerializedUpdate {
        let revision = revision.map(|text| GoRevision { go_type: "string".to_owned(), text });
        SerializedUpdate { key, value, revision, v3_resource_version, ttl_ns, update_type }
    }
}

prop_compose! {
    fn client_hello()(
        texts in [text(), text(), text(), text()],
        supported_compression_algorithms in vec(text(), 0..4),
        flags in any::<(bool, bool)>(),
        client_conn_id in any::<u64>(),
    ) -> Message {
        let [hostname, info, version, syncer_type] = texts;
        let (supports_decoder_restart, supports_modern_policy_keys) = flags;
        Message::ClientHello(ClientHello {
            hostname, info, version, syncer_type, supports_decoder_restart, supported_compression_algorithms,
            supports_modern_policy_keys, client_conn_id,
        })
    }
}

fn client_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        client_hello(),
        Just(Message::Ack),
        (time(), time())
            .prop_map(|(ping_timestamp, pong_timestamp)| Message::Pong(Pong { ping_timestamp, pong_timestamp })),
    ]
}

fn server_message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (text(), text(), any::<bool>(), any::<u64>()).prop_map(|(version, syncer_type, flag, server_conn_id)| {
            let supports_node_resource_updates = flag;
            Message::ServerHello(ServerHello { version, syncer_type, supports_node_resource_updates, server_conn_id })
        }),
        (text(), text()).prop_map(|(message, compression_algorithm)| {
            Message::DecoderRestart(DecoderRestart { message, compression_algorithm })
        }),
        any::<u8>().prop_map(Message::SyncStatus),
        time().prop_map(|timestamp| Message::Ping(Ping { timestamp })),
        vec(update(), 0..8).prop_map(Message::Kvs),
    ]
}

fn stream(prefix: &[u8], messages: &[Message]) -> BytesMut {
    let mut out = BytesMut::from(prefix);
    for message in messages {
        encode(message, &mut out);
    }
    out
}

fn envelopes(messages: Vec<Message>) -> Vec<Envelope> {
    messages.into_iter().map(|message| Envelope(Some(message))).collect()
}

proptest! {
    #[test]
    fn what_a_server_encodes_is_decoded(messages in vec(server_message(), 0..6), cuts in vec(any::<usize>(), 0..12)) {
        let bytes = stream(&server_prefix(), &messages);
        let (decoded, end) = decode(cut(&bytes, &cuts), Limits::client());
        prop_assert_eq!(end.is_ok(), !messages.is_empty(), "definitions alone are no stream");
        prop_assert_eq!(decoded, envelopes(messages));
    }

    #[test]
    fn what_a_client_encodes_is_decoded(messages in vec(client_message(), 1..6), cuts in vec(any::<usize>(), 0..12)) {
        let bytes = stream(&client_prefix(), &messages);
        let (decoded, end) = decode(cut(&bytes, &cuts), Limits::server());
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(decoded, envelopes(messages));
    }

    #[test]
    fn what_is_compressed_is_unpacked(raw in vec(any::<u8>(), 0..3000), repeat in 1usize..60, cuts in vec(any::<usize>(), 0..12)) {
        let raw = raw.repeat(repeat);
        let mut framed = BytesMut::new();
        snappy::frame(&raw, &mut framed, true);
        let mut decoder = snappy::Decoder::new();
        let mut unpacked = Vec::new();
        for piece in cut(&framed, &cuts) {
            decoder.push(piece);
            while let Some(chunk) = decoder.next_chunk().unwrap() {
                unpacked.extend_from_slice(&chunk);
            }
        }
        prop_assert_eq!(decoder.finish(), Ok(()));
        prop_assert!(unpacked == raw);
    }

    #[test]
    fn mutilated_streams_do_no_harm(
        messages in vec(prop_oneof![server_message(), client_message()], 1..5),
        changes in vec((any::<Index>(), any::<u8>(), 0..3u8), 1..6),
        piece in any::<u8>(),
    ) {
        let prefix = if messages.len() % 2 == 0 { server_prefix() } else { client_prefix() };
        let mut bytes = stream(&prefix, &messages).to_vec();
        for (place, byte, change) in changes {
            let place = place.index(bytes.len());
            match change {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => { bytes.remove(place); }
            }
        }
        let mut framed = BytesMut::from(&[piece][..]);
        framed.extend_from_slice(&bytes);
        exercise::decode(&framed);
        snappy::exercise::decode(&framed);
    }

    #[test]
    fn noise_does_no_harm(noise in vec(any::<u8>(), 0..400)) {
        exercise::decode(&noise);
        snappy::exercise::decode(&noise);
        let mut identified = vec![7];
        identified.extend_from_slice(snappy::STREAM_IDENTIFIER);
        identified.extend_from_slice(&noise);
        snappy::exercise::decode(&identified);
    }
}

#[test]
fn times_survive_the_way_to_go_and_back() {
    use std::time::{Duration, UNIX_EPOCH};
    for at in [
        UNIX_EPOCH,
        UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789),
        UNIX_EPOCH - Duration::new(3, 250_000_000),
        UNIX_EPOCH - Duration::new(2_000_000_000, 0),
    ] {
        let time = GobTime::from_system_time(at);
        assert_eq!(time.to_system_time(), Some(at));
        assert_eq!(time.0.len(), 15);
        assert!(time.0.ends_with(&[0xff, 0xff]), "UTC");
    }
    assert_eq!(GobTime::default().to_system_time(), None);
}
