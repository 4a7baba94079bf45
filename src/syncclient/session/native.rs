//! The client's side of our own protocol.
//!
//! ```text
//!  Hello ──ServerHello──► Snapshot ──SnapshotEnd──► Following
//!    │                    (begin, chunks)           (updates, status)
//!    └──Goodbye: refused
//! ```
//!
//! A server that skips a range of sequence numbers, or says in-sync before its snapshot is complete, is left: continuing
//! would mean lost data.

use bytes::BytesMut;

use super::{Incoming, Session, protocol};
use crate::model::SyncStatus;
use crate::syncclient::{Error, Identity, ServerInfo};
use crate::syncproto::native::{
    Ack, ClientFrame, ClientHello, Compression, Goodbye, KeyError, MAGIC, MAX_ACK_ERRORS, MAX_CLIENT_FRAME_BYTES,
    MAX_KEY_BYTES, MAX_TEXT_BYTES, ServerFrame, ServerHello, VERSION, decode_server, encode_client,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has come yet.
    Hello,
    /// The snapshot is to begin.
    BeforeSnapshot,
    /// The snapshot of this crumb is coming.
    Snapshot(u64),
    /// Everything up to this crumb has come.
    Following(u64),
}

/// See the module.
#[derive(Debug)]
pub struct NativeSession {
    identity: Identity,
    compressions: Vec<Compression>,
    conn_id: u64,
    phase: Phase,
}

impl NativeSession {
    /// A session that offers `compressions`, best first.
    #[must_use]
    pub fn new(identity: Identity, compressions: Vec<Compression>, conn_id: u64) -> Self {
        Self { identity, compressions, conn_id, phase: Phase::Hello }
    }

    fn on_hello(&mut self, hello: ServerHello) -> Result<Incoming, Error> {
        if hello.version != VERSION {
            return Err(protocol(format!("server chose version {} and was offered {VERSION} only", hello.version)));
        }
        if hello.syncer != self.identity.syncer.as_str() {
            return Err(protocol(format!(
                "server serves syncer {:?}, asked for was {}",
                hello.syncer, self.identity.syncer
            )));
        }
        if hello.resumed {
            return Err(protocol("server resumes, which was not asked for".to_owned()));
        }
        self.phase = Phase::BeforeSnapshot;
        Ok(Incoming::Hello(ServerInfo {
            name: hello.server,
            version: hello.server_version,
            protocol: "native",
            compression: hello.compression,
            conn_id: hello.conn_id,
            epoch: Some(hello.epoch),
        }))
    }

    fn on_frame(&mut self, frame: ServerFrame, out: &mut BytesMut) -> Result<Option<Incoming>, Error> {
        let incoming = match (self.phase, frame) {
            (Phase::Hello, ServerFrame::Hello(hello)) => self.on_hello(hello)?,
            (Phase::Hello, ServerFrame::Goodbye(Goodbye { reason, alternatives })) => {
                return Err(Error::Refused { reason, alternatives });
            }
            (_, ServerFrame::Goodbye(goodbye)) => Incoming::Goodbye(goodbye),
            (Phase::Hello, other) => return Err(protocol(format!("server sent {} before its hello", name(&other)))),
            (_, ServerFrame::Ping { at, as_of }) => {
                encode_client(&ClientFrame::Pong { ping_at: at }, out);
                Incoming::Progress { as_of, seq: None }
            }
            // BeforeSnapshot => Snapshot
            (Phase::BeforeSnapshot, ServerFrame::SnapshotBegin { seq, .. }) => {
                self.phase = Phase::Snapshot(seq);
                Incoming::ALIVE
            }
            (Phase::Snapshot(_), ServerFrame::SnapshotChunk { updates }) => Incoming::Updates(updates, None),
            // Snapshot => Following
            (Phase::Snapshot(begun), ServerFrame::SnapshotEnd { seq, as_of }) => {
                if begun != seq {
                    return Err(protocol(format!("snapshot of crumb {begun} ends as that of {seq}")));
                }
                self.phase = Phase::Following(seq);
                Incoming::Progress { as_of, seq: Some(seq) }
            }
            (Phase::Following(position), ServerFrame::Updates { after, upto, updates }) => {
                if after != position || upto < after {
                    return Err(protocol(format!(
                        "updates of crumbs {after} to {upto} do not follow crumb {position}, changes would be lost"
                    )));
                }
                self.phase = Phase::Following(upto);
                Incoming::Updates(updates, Some(upto))
            }
            (Phase::Following(_), ServerFrame::Status { status, .. }) => Incoming::Status(status),
            (_, ServerFrame::Status { status, .. }) if status != SyncStatus::InSync => Incoming::Status(status),
            (_, ServerFrame::Status { .. }) => {
                return Err(protocol("server says in-sync before its snapshot is complete".to_owned()));
            }
            (_, other) => return Err(protocol(format!("server sent {} out of turn", name(&other)))),
        };
        Ok(Some(incoming))
    }
}

impl Session for NativeSession {
    fn start(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&MAGIC);
        let hello = ClientHello {
            min_version: VERSION,
            max_version: VERSION,
            agent: self.identity.agent.clone(),
            agent_version: self.identity.version.clone(),
            syncer: self.identity.syncer.as_str().to_owned(),
            compressions: self.compressions.iter().map(|compression| compression.as_str().to_owned()).collect(),
            prefixes: self.identity.prefixes.clone(),
            resume: None,
            conn_id: self.conn_id,
        };
        encode_client(&ClientFrame::Hello(hello), out);
    }

    fn on_input(&mut self, input: &mut BytesMut, out: &mut BytesMut) -> Result<Option<Incoming>, Error> {
        match decode_server(input) {
            Ok(Some(frame)) => self.on_frame(frame, out),
            Ok(None) => Ok(None),
            Err(error) => Err(protocol(error.to_string())),
        }
    }

    fn acknowledge(&mut self, applied: u64, mut errors: Vec<KeyError>, out: &mut BytesMut) -> bool {
        while let fitting = fitting(&errors)
            && fitting < errors.len()
        {
            let rest = errors.split_off(fitting);
            encode_client(&ClientFrame::Ack(Ack { applied, errors }), out);
            errors = rest;
        }
        encode_client(&ClientFrame::Ack(Ack { applied, errors }), out);
        true
    }

    fn goodbye(&mut self, reason: &str, out: &mut BytesMut) {
        let goodbye = Goodbye { reason: reason.to_owned(), alternatives: Vec::new() };
        encode_client(&ClientFrame::Goodbye(goodbye), out);
    }
}

/// Number of these errors that fit into one acknowledgement.
fn fitting(errors: &[KeyError]) -> usize {
    /// More than the frame has beside its errors, and an error beside its texts.
    const BESIDE: usize = 32;
    let mut bytes = BESIDE;
    let fits = |error: &&KeyError| {
        bytes += error.key.len().min(MAX_KEY_BYTES) + error.reason.len().min(MAX_TEXT_BYTES) + BESIDE;
        bytes <= MAX_CLIENT_FRAME_BYTES
    };
    errors.iter().take(MAX_ACK_ERRORS).take_while(fits).count()
}

fn name(frame: &ServerFrame) -> &'static str {
    match frame {
        ServerFrame::Hello(_) => "a second hello",
        ServerFrame::SnapshotBegin { .. } => "a snapshot begin",
        ServerFrame::SnapshotChunk { .. } => "a snapshot chunk",
        ServerFrame::SnapshotEnd { .. } => "a snapshot end",
        ServerFrame::Updates { .. } => "updates",
        ServerFrame::Status { .. } => "a status",
        ServerFrame::Ping { .. } => "a ping",
        ServerFrame::Goodbye(_) => "a goodbye",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use bytes::Bytes;

    use super::*;
    use crate::calico::release::Release;
    use crate::calico::syncers::FELIX;
    use crate::model::{AsOf, Key, Update, UpdateType, Value, no_revision};
    use crate::syncproto::format::{SeqRange, WireFormat};
    use crate::syncproto::native::{
        ClientFrame, Limits, NativePlain, decode_client, encode_goodbye, encode_server_hello,
    };

    fn identity() -> Identity {
        Identity {
            agent: "agent".to_owned(),
            version: "1".to_owned(),
            syncer: FELIX,
            prefixes: vec!["/a".to_owned()],
            dialect: Release::Master,
        }
    }

    fn hello() -> ServerHello {
        ServerHello {
            version: VERSION,
            server: "s".to_owned(),
            server_version: "2".to_owned(),
            syncer: "felix".to_owned(),
            compression: "none".to_owned(),
            epoch: 5,
            conn_id: 6,
            resumed: false,
            limits: Limits { max_frame_bytes: 1, ping_interval_ms: 1, pong_timeout_ms: 1 },
        }
    }

    fn update() -> Arc<Update> {
        Arc::new(Update {
            key: Key::from("/a"),
            value: Some(Value::raw("v")),
            revision: no_revision(),
            v3_resource_version: no_revision(),
            ttl: std::time::Duration::ZERO,
            update_type: UpdateType::New,
            origin: None,
        })
    }

    /// Plays frames; returns what arrived, shortened, and the error.
    fn play(frames: &[Bytes]) -> (Vec<String>, Option<String>, Vec<ClientFrame>) {
        let mut session = NativeSession::new(identity(), vec![Compression::Zstd], 3);
        let mut input = BytesMut::from(&frames.concat()[..]);
        let (mut out, mut heard, mut error) = (BytesMut::new(), Vec::new(), None);
        loop {
            match session.on_input(&mut input, &mut out) {
                Ok(Some(Incoming::Hello(_))) => heard.push("hello".to_owned()),
                Ok(Some(Incoming::Updates(updates, at))) => heard.push(format!("{} updates, {at:?}", updates.len())),
                Ok(Some(Incoming::Status(status))) => heard.push(status.to_string()),
                Ok(Some(Incoming::Progress { seq, .. })) => heard.push(format!("progress {seq:?}")),
                Ok(Some(Incoming::Goodbye(goodbye))) => heard.push(goodbye.reason),
                Ok(None) => break,
                Err(broken) => {
                    error = Some(broken.to_string());
                    break;
                }
            }
        }
        let mut answers = Vec::new();
        while let Some(frame) = decode_client(&mut out).unwrap() {
            answers.push(frame);
        }
        (heard, error, answers)
    }

    #[test]
    fn a_session_in_order() {
        let format = NativePlain::default();
        let as_of = AsOf { revision: "1".into(), at: UNIX_EPOCH };
        let (heard, error, answers) = play(&[
            encode_server_hello(&hello()),
            format.status(7, SyncStatus::ResyncInProgress),
            format.snapshot_begin(7, 1),
            format.snapshot_chunk(&[update()]).0,
            format.ping(UNIX_EPOCH, Some(&as_of)),
            format.snapshot_end(7, None),
            format.status(7, SyncStatus::InSync),
            format.updates(SeqRange { after: 7, upto: 7 }, &[update()]),
            format.updates(SeqRange { after: 7, upto: 9 }, &[update()]),
            format.updates(SeqRange { after: 9, upto: 10 }, &[]),
            format.goodbye("later", &[]).unwrap(),
        ]);
        assert_eq!(error, None);
        assert_eq!(
            heard,
            [
                "hello",
                "resync",
                "progress None",
                "1 updates, None",
                "progress None",
                "progress Some(7)",
                "in-sync",
                "1 updates, Some(7)",
                "1 updates, Some(9)",
                "0 updates, Some(10)",
                "later"
            ]
        );
        assert_eq!(answers, [ClientFrame::Pong { ping_at: UNIX_EPOCH }]);
    }

    #[test]
    fn servers_that_break_the_protocol_are_left() {
        let format = NativePlain::default();
        let greeted = encode_server_hello(&hello());
        let begin = format.snapshot_begin(7, 1);
        let end = format.snapshot_end(7, None);
        let in_sync = format.status(7, SyncStatus::InSync);
        let chunk = format.snapshot_chunk(&[update()]).0;
        let gap = format.updates(SeqRange { after: 8, upto: 9 }, &[update()]);
        let back = format.updates(SeqRange { after: 7, upto: 6 }, &[update()]);
        let wrong = |change: fn(&mut ServerHello)| {
            let mut hello = hello();
            change(&mut hello);
            encode_server_hello(&hello)
        };
        for (frames, expected) in [
            (vec![begin.clone()], "before its hello"),
            (vec![encode_goodbye("full", &["b:1".to_owned()])], "server refused: full"),
            (vec![wrong(|hello| hello.version = 2)], "chose version 2"),
            (vec![wrong(|hello| hello.syncer = "bgp".to_owned())], "serves syncer \"bgp\""),
            (vec![wrong(|hello| hello.resumed = true)], "resumes"),
            (vec![greeted.clone(), greeted.clone()], "a second hello out of turn"),
            (vec![greeted.clone(), chunk], "a snapshot chunk out of turn"),
            (vec![greeted.clone(), in_sync.clone()], "before its snapshot is complete"),
            (vec![greeted.clone(), begin.clone(), in_sync], "before its snapshot is complete"),
            (vec![greeted.clone(), begin.clone(), format.snapshot_end(8, None)], "ends as that of 8"),
            (vec![greeted.clone(), begin.clone(), end.clone(), gap], "do not follow crumb 7"),
            (vec![greeted.clone(), begin.clone(), end.clone(), back], "do not follow crumb 7"),
            (vec![greeted.clone(), begin.clone(), end, begin], "a snapshot begin out of turn"),
            (vec![greeted, Bytes::from_static(b"\0\0\0\x01\x3f")], "type 63 is not known"),
            (vec![Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n")], "not our protocol"),
        ] {
            let (_, error, _) = play(&frames);
            let error = error.expect(expected);
            assert!(error.contains(expected), "{error} should contain {expected}");
        }
    }

    #[test]
    fn the_hello_says_what_is_wanted() {
        let mut session = NativeSession::new(identity(), vec![Compression::Zstd, Compression::None], 3);
        let mut out = BytesMut::new();
        session.start(&mut out);
        assert_eq!(out.split_to(8)[..], MAGIC);
        let Some(ClientFrame::Hello(hello)) = decode_client(&mut out).unwrap() else { panic!("no hello") };
        assert_eq!(hello.compressions, ["zstd", "none"]);
        assert_eq!(hello.prefixes, ["/a"]);
        assert_eq!((hello.agent.as_str(), hello.syncer.as_str(), hello.conn_id), ("agent", "felix", 3));
    }

    #[test]
    fn many_errors_take_several_acknowledgements() {
        let mut session = NativeSession::new(identity(), vec![], 3);
        let error = |n: usize| KeyError { key: Key::from(n.to_string()), reason: "no".to_owned() };
        let long = |n: usize| KeyError { key: Key::from("k".repeat(MAX_KEY_BYTES) + &n.to_string()), ..error(n) };
        for errors in [(0..150).map(error).collect::<Vec<KeyError>>(), (0..150).map(long).collect()] {
            let mut out = BytesMut::new();
            assert!(session.acknowledge(4, errors.clone(), &mut out));
            let mut seen = 0;
            while let Some(ClientFrame::Ack(ack)) = decode_client(&mut out).expect("no frame is too long") {
                assert_eq!(ack.applied, 4);
                for (seen, said) in ack.errors.iter().zip(&errors[seen..]) {
                    assert!(said.key.starts_with(seen.key.as_str()), "{seen:?}");
                }
                seen += ack.errors.len();
            }
            assert_eq!(seen, errors.len());
        }
    }
}
