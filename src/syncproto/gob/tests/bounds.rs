//! Hostile streams: the decoder holds little memory, and gives up in time.

use bytes::{BufMut, Bytes, BytesMut};

use super::super::number::{put_int, put_uint};
use super::super::schema::{NAME_PREFIX, Struct, id};
use super::super::{Decoder, Envelope, Error, ErrorClass, Limits, client_prefix, encode, server_prefix};
use super::decode;
use crate::syncproto::messages::{ClientHello, GobTime, Message, Pong, SerializedUpdate, ServerHello};

fn framed(body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    put_uint(&mut out, body.len() as u64);
    out.put_slice(body);
    out
}

/// A frame that defines `id` as a struct of fields with these names and types.
fn define_struct(id: i32, fields: &[(&str, i32)]) -> BytesMut {
    let mut body = BytesMut::new();
    put_int(&mut body, (-id).into());
    body.put_slice(&[3, 2]);
    put_uint(&mut body, fields.len() as u64);
    for (name, type_id) in fields {
        body.put_u8(1);
        put_uint(&mut body, name.len() as u64);
        body.put_slice(name.as_bytes());
        body.put_u8(1);
        put_int(&mut body, (*type_id).into());
        body.put_u8(0);
    }
    body.put_slice(&[0, 0]);
    framed(&body)
}

/// A frame with an envelope of type 64 that holds a message of this name and type.
fn envelope(name: &str, type_id: i32, value: &[u8]) -> BytesMut {
    let mut body = BytesMut::new();
    put_int(&mut body, Struct::Envelope.id().into());
    body.put_u8(1);
    put_uint(&mut body, (NAME_PREFIX.len() + name.len()) as u64);
    body.put_slice(NAME_PREFIX.as_bytes());
    body.put_slice(name.as_bytes());
    put_int(&mut body, type_id.into());
    put_uint(&mut body, value.len() as u64);
    body.put_slice(value);
    body.put_u8(0);
    framed(&body)
}

fn outcome(stream: &[u8], limits: Limits) -> Result<Vec<Envelope>, Error> {
    let (messages, end) = decode([stream], limits);
    end.map(|()| messages)
}

#[test]
fn a_connection_in_rest_holds_next_to_nothing() {
    let mut stream = BytesMut::from(&client_prefix()[..]);
    let hello = ClientHello { hostname: "node-17".to_owned(), info: "x".repeat(2000), ..Default::default() };
    encode(&Message::ClientHello(hello), &mut stream);
    let ping_timestamp = GobTime::from_system_time(std::time::SystemTime::now());
    encode(&Message::Pong(Pong { ping_timestamp, ..Default::default() }), &mut stream);
    let mut decoder = Decoder::new(Limits::server());
    decoder.push(&stream);
    let mut messages = 0;
    while decoder.next().unwrap().is_some() {
        messages += 1;
    }
    assert_eq!(messages, 2);
    assert_eq!(decoder.buffered(), 0);
    assert!(decoder.held() < 1024, "{} bytes", decoder.held());
}

#[test]
fn a_long_frame_is_refused_by_its_length() {
    let limits = Limits::server();
    for announced in [limits.max_message_bytes as u64, 1 << 30, (8 << 30) - 1] {
        let mut decoder = Decoder::new(limits);
        let mut length = BytesMut::new();
        put_uint(&mut length, announced);
        decoder.push(&length);
        assert_eq!(decoder.next().unwrap_err().class(), ErrorClass::Limit);
        assert!(decoder.held() < 512);
    }
    let mut decoder = Decoder::new(limits);
    let mut length = BytesMut::new();
    put_uint(&mut length, 8 << 30);
    decoder.push(&length);
    assert_eq!(decoder.next().unwrap_err().class(), ErrorClass::BadMessageLength);
}

#[test]
fn the_frames_of_a_message_count_together() {
    let limits = Limits { max_message_bytes: 1000, max_types: 1000, ..Limits::server() };
    let mut stream = BytesMut::new();
    for id in 64..100 {
        stream.unsplit(define_struct(id, &[("Field", id::STRING)]));
    }
    assert!(stream.len() < 1000, "each is small");
    assert_eq!(outcome(&stream, limits).unwrap_err().class(), ErrorClass::Truncated, "a value is missing");
    for id in 100..200 {
        stream.unsplit(define_struct(id, &[("Field", id::STRING)]));
    }
    assert_eq!(outcome(&stream, limits).unwrap_err().class(), ErrorClass::Limit);
}

#[test]
fn an_announced_frame_is_held_as_it_comes_and_not_before() {
    let limits = Limits::server();
    let mut decoder = Decoder::new(limits);
    let mut length = BytesMut::new();
    put_uint(&mut length, limits.max_message_bytes as u64 - 4);
    decoder.push(&length);
    assert_eq!(decoder.next(), Ok(None));
    assert!(decoder.held() < 1024, "nothing is allocated for what may never come");
    for _ in 0..limits.max_message_bytes / 1000 {
        decoder.push(&[0xaa; 1000]);
        assert_eq!(decoder.next(), Ok(None));
        assert!(decoder.held() <= 2 * limits.max_message_bytes + 4096);
    }
    decoder.push(&[0xaa; 1000]);
    decoder.next().unwrap_err();
    assert!(decoder.held() < 1024, "a failed decoder holds nothing");
}

/// A message that goes on in frame after frame without defining anything is read again from its start for each of them.
#[test]
fn a_message_is_not_read_again_without_end() {
    const ELEMENTS: usize = 15_000;
    let mut types = define_struct(Struct::Envelope.id(), &[("X", 65), ("Message", id::INTERFACE)]);
    let mut slice = BytesMut::new();
    put_int(&mut slice, -65);
    slice.put_slice(&[2, 2]);
    put_int(&mut slice, id::INTERFACE.into());
    slice.put_slice(&[0, 0]);
    types.unsplit(framed(&slice));

    let mut body = BytesMut::new();
    put_int(&mut body, Struct::Envelope.id().into());
    body.put_u8(1);
    put_uint(&mut body, ELEMENTS as u64);
    // The first element makes room for the count: an unknown type, with a length. The second one has only a name
    // here, and goes on in the next frame.
    body.put_slice(&[1, b'a']);
    put_int(&mut body, 9);
    put_uint(&mut body, ELEMENTS as u64);
    body.put_bytes(0, ELEMENTS);
    body.put_slice(&[1, b'a']);
    let mut decoder = Decoder::new(Limits::server());
    decoder.push(&types);
    assert_eq!(decoder.next(), Ok(None));
    decoder.push(&framed(&body));
    assert_eq!(decoder.next(), Ok(None));
    let mut frames = 0;
    let error = loop {
        // The type of that element, with no byte, and the name of the next one.
        let mut frame = BytesMut::new();
        put_int(&mut frame, 9);
        frame.put_slice(&[0, 1, b'a']);
        decoder.push(&framed(&frame));
        match decoder.next() {
            Ok(None) => frames += 1,
            Ok(Some(message)) => panic!("{message:?}"),
            Err(error) => break error,
        }
        assert!(frames < 1000, "the start has been read {frames} times");
    };
    assert_eq!(error.class(), ErrorClass::Limit, "{error}");
    assert!(frames > 2, "a few are fine: {error}");
}

#[test]
fn definitions_are_bounded_in_number() {
    let mut types = BytesMut::new();
    for id in 64..64 + 33 {
        types.unsplit(define_struct(id, &[]));
    }
    let error = outcome(&types, Limits::server()).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Limit);
    assert!(error.to_string().contains("type definitions would be 33, the limit is 32"), "{error}");

    let fields = vec![("Field", id::STRING); 257];
    assert_eq!(outcome(&define_struct(64, &fields), Limits::server()).unwrap_err().class(), ErrorClass::Limit);
}

#[test]
fn elements_of_one_byte_do_not_become_elements_of_two_hundred() {
    let mut stream = BytesMut::from(&server_prefix()[..]);
    let updates = vec![SerializedUpdate::default(); 300];
    encode(&Message::Kvs(updates), &mut stream);
    assert_eq!(outcome(&stream, Limits::server()).unwrap_err().class(), ErrorClass::Limit);
    assert_eq!(outcome(&stream, Limits::client()).unwrap().len(), 1);
}

#[test]
fn a_value_that_nests_without_end_is_refused() {
    // A server hello with an unknown field of a type that holds itself, the wire form of a long linked list.
    let mut stream = define_struct(64, &[("Message", id::INTERFACE)]);
    stream.unsplit(define_struct(65, &[("Version", id::STRING), ("List", 66)]));
    stream.unsplit(define_struct(66, &[("Next", 66)]));
    let nested = |depth: usize| {
        let mut value = vec![2];
        value.extend(std::iter::repeat_n(1, depth));
        value.extend(std::iter::repeat_n(0, depth + 2));
        let mut stream = stream.clone();
        stream.unsplit(envelope("MsgServerHello", 65, &value));
        outcome(&stream, Limits::server())
    };
    assert_eq!(nested(20).unwrap().len(), 1);
    assert_eq!(nested(50_000).unwrap_err().class(), ErrorClass::Limit);
}

#[test]
fn interfaces_in_interfaces_are_refused_as_well() {
    let mut stream = define_struct(64, &[("Message", id::INTERFACE)]);
    stream.unsplit(define_struct(65, &[("Version", id::STRING), ("Any", id::INTERFACE)]));
    stream.unsplit(define_struct(66, &[("Any", id::INTERFACE)]));
    let mut value = vec![2];
    for _ in 0..10_000 {
        value.extend_from_slice(&[1, b'x', 0xff, 0x84, 1, 1]);
    }
    stream.unsplit(envelope("MsgServerHello", 65, &value));
    assert_eq!(outcome(&stream, Limits::server()).unwrap_err().class(), ErrorClass::Limit);
}

#[test]
fn counts_are_checked_against_what_is_there() {
    // An unknown map from empty structs to empty structs: Go would turn 2^62 times without reading a byte.
    let mut map = BytesMut::new();
    put_int(&mut map, -67);
    map.put_slice(&[4, 2]);
    put_int(&mut map, 66);
    map.put_u8(1);
    put_int(&mut map, 66);
    map.put_slice(&[0, 0]);
    let mut stream = define_struct(64, &[("Message", id::INTERFACE)]);
    stream.unsplit(define_struct(65, &[("Version", id::STRING), ("Map", 67)]));
    stream.unsplit(define_struct(66, &[]));
    stream.unsplit(framed(&map));
    let mut value = BytesMut::from(&[2][..]);
    put_uint(&mut value, 1 << 62);
    stream.unsplit(envelope("MsgServerHello", 65, &value));
    assert_eq!(outcome(&stream, Limits::server()).unwrap_err().class(), ErrorClass::BadInnerLength);
}

#[test]
fn a_message_may_go_on_in_many_frames() {
    // Each of some unknown fields holds a struct whose definition ends its frame, as Go's encoder would send it.
    const FIELDS: u8 = 25;
    let mut fields = vec![("Version", id::STRING)];
    fields.resize(1 + usize::from(FIELDS), ("Any", id::INTERFACE));
    let mut stream = define_struct(64, &[("Message", id::INTERFACE)]);
    stream.unsplit(define_struct(65, &fields));
    let start = envelope("MsgServerHello", 65, &[1, 2, b'v', b'1']);
    // Without its length and the envelope's terminator.
    let mut frame = BytesMut::from(&start[1..start.len() - 1]);
    for number in 0..FIELDS {
        let type_id = 100 + i32::from(number);
        frame.put_slice(&[1, 1, b'x']);
        frame.put_slice(&define_struct(type_id, &[])[1..]);
        stream.unsplit(framed(&frame));
        frame.clear();
        put_int(&mut frame, type_id.into());
        frame.put_slice(&[1, 0]);
    }
    frame.put_slice(&[0, 0]);
    stream.unsplit(framed(&frame));
    for size in [stream.len(), 7, 1] {
        let (messages, end) = decode(stream.chunks(size), Limits::server());
        assert_eq!(end, Ok(()));
        let hello = ServerHello { version: "v1".to_owned(), ..ServerHello::default() };
        assert_eq!(messages, [Envelope(Some(Message::ServerHello(hello)))]);
    }
    assert_eq!(outcome(&stream[..stream.len() - 1], Limits::server()).unwrap_err().class(), ErrorClass::Truncated);
}

#[test]
fn an_error_is_final() {
    let mut decoder = Decoder::new(Limits::server());
    decoder.push(b"GET / HTTP/1.1\r\n\r\n");
    decoder.push(&[b'x'; 100]);
    let error = decoder.next().unwrap_err();
    assert_eq!(error.class(), ErrorClass::DuplicateOrReservedTypeId);
    decoder.push(&client_prefix());
    assert_eq!(decoder.next(), Err(error.clone()));
    assert_eq!(decoder.finish(), Err(error));
    assert_eq!(decoder.buffered(), 0);
}

#[test]
fn an_empty_frame_ends_the_stream() {
    let mut decoder = Decoder::new(Limits::server());
    decoder.push(&[0]);
    assert_eq!(decoder.next(), Err(Error::EmptyFrame));
    assert_eq!(Error::EmptyFrame.class(), ErrorClass::EndOfStream);
}

/// Seen of Go's decoder: an integer of which not even the first byte is there is the end of the stream, one that is cut is not.
#[test]
fn a_frame_that_ends_where_an_integer_begins_ends_the_stream_as_in_go() {
    let hello = define_struct(65, &[("Version", id::STRING), ("ServerConnID", id::UINT)]);
    let types = [define_struct(Struct::Envelope.id(), &[("Message", id::INTERFACE)]), hello].concat();
    let message = |rest: &[u8]| {
        let mut body = BytesMut::new();
        put_int(&mut body, Struct::Envelope.id().into());
        body.put_u8(1);
        body.put_slice(rest);
        [&types[..], &framed(&body)].concat()
    };
    let mut named = BytesMut::new();
    put_uint(&mut named, (NAME_PREFIX.len() + "MsgServerHello".len()) as u64);
    named.put_slice(NAME_PREFIX.as_bytes());
    named.put_slice(b"MsgServerHello");
    let mut typed = named.clone();
    put_int(&mut typed, 65);
    for (rest, expected) in [
        (&b""[..], Some(ErrorClass::EndOfStream)),
        // The message goes on in a frame that does not come.
        (&named[..], None),
        (&typed[..], Some(ErrorClass::EndOfStream)),
        (&[&typed[..], &[1, 1]].concat(), Some(ErrorClass::EndOfStream)),
        (&[&typed[..], &[2, 0xfe, 1]].concat(), Some(ErrorClass::BadInnerLength)),
    ] {
        let class = outcome(&message(rest), Limits::server()).err().map(|error| error.class());
        assert_eq!(class, expected, "{rest:?}");
    }
}

#[test]
fn what_is_behind_a_message_is_handed_over() {
    let mut stream = BytesMut::from(&server_prefix()[..]);
    encode(&Message::SyncStatus(1), &mut stream);
    stream.put_slice(b"\xff\x06\x00\x00sNaPpY");
    let mut decoder = Decoder::new(Limits::client());
    decoder.push(&stream);
    assert_eq!(decoder.next(), Ok(Some(Envelope(Some(Message::SyncStatus(1))))));
    assert_eq!(decoder.take_buffered(), Bytes::from_static(b"\xff\x06\x00\x00sNaPpY"));
    assert_eq!(decoder.finish(), Ok(()));
}
