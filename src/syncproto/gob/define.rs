//! The type definitions that we send: constant, once at the start of every stream.
//!
//! All definitions come first and ids are fixed, so the bytes of a message are the same on every connection and at any place
//! of a stream.

use std::sync::LazyLock;

use bytes::{BufMut, Bytes, BytesMut};

use super::number::{put_int, put_uint};
use super::schema::{Struct, id};

/// The longest definition has some 250 bytes.
const DEFINITION_CAPACITY: usize = 512;

static SERVER: LazyLock<Bytes> = LazyLock::new(|| {
    let mut out = BytesMut::new();
    for sent in [Struct::Envelope, Struct::ServerHello, Struct::DecoderRestart, Struct::SyncStatus, Struct::Ping] {
        define_struct(sent, &mut out);
    }
    define_time(&mut out);
    define_struct(Struct::Kvs, &mut out);
    define_slice("[]syncproto.SerializedUpdate", id::UPDATES, Struct::Update.id(), &mut out);
    define_struct(Struct::Update, &mut out);
    out.freeze()
});

static CLIENT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut out = BytesMut::new();
    define_struct(Struct::Envelope, &mut out);
    define_struct(Struct::ClientHello, &mut out);
    define_slice("[]syncproto.CompressionAlgorithm", id::ALGORITHMS, id::STRING, &mut out);
    define_struct(Struct::Ack, &mut out);
    define_struct(Struct::Pong, &mut out);
    define_time(&mut out);
    out.freeze()
});

/// The start of every stream of a server: all definitions that its messages need.
#[must_use]
pub fn server_prefix() -> Bytes {
    SERVER.clone()
}

/// The start of every stream of a client: all definitions that its messages need.
#[must_use]
pub fn client_prefix() -> Bytes {
    CLIENT.clone()
}

/// Number of a kind of type in Go's `wireType`.
#[derive(Clone, Copy)]
enum WireKind {
    Slice = 1,
    Struct = 2,
    GobEncoder = 4,
}

fn define_struct(sent: Struct, out: &mut BytesMut) {
    definition(WireKind::Struct, sent.name(), sent.id(), out, |body| {
        let fields = sent.fields();
        if fields.is_empty() {
            return;
        }
        body.put_u8(1);
        put_uint(body, fields.len() as u64);
        for (field, kind) in fields {
            body.put_u8(1);
            put_name(field.name(), body);
            body.put_u8(1);
            put_int(body, kind.id().into());
            body.put_u8(0);
        }
    });
}

fn define_slice(name: &str, id: i32, elem: i32, out: &mut BytesMut) {
    definition(WireKind::Slice, name, id, out, |body| {
        body.put_u8(1);
        put_int(body, elem.into());
    });
}

fn define_time(out: &mut BytesMut) {
    definition(WireKind::GobEncoder, "Time", id::TIME, out, |_| {});
}

/// A frame with one definition. `rest` writes the fields after the `CommonType`.
fn definition(kind: WireKind, name: &str, id: i32, out: &mut BytesMut, rest: impl FnOnce(&mut BytesMut)) {
    let mut body = BytesMut::with_capacity(DEFINITION_CAPACITY);
    put_int(&mut body, (-id).into());
    body.put_u8(kind as u8 + 1);
    body.put_u8(1);
    body.put_u8(1);
    put_name(name, &mut body);
    body.put_u8(1);
    put_int(&mut body, id.into());
    body.put_u8(0);
    rest(&mut body);
    body.put_u8(0);
    body.put_u8(0);
    put_uint(out, body.len() as u64);
    out.put_slice(&body);
}

fn put_name(name: &str, out: &mut BytesMut) {
    put_uint(out, name.len() as u64);
    out.put_slice(name.as_bytes());
}
