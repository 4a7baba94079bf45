//! A few agents that decode everything and time each change from its write to etcd to its arrival.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use bulrush::syncproto::gob::{self, Limits};
use bulrush::syncproto::messages::{ClientHello, GobTime, Message, Pong};
use bulrush::syncproto::snappy;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

/// When each numbered change was written. Index = number.
pub(crate) type Written = Arc<Mutex<Vec<Option<Instant>>>>;

/// What a probe has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) keys: usize,
    pub(crate) in_sync: bool,
    pub(crate) latencies_ms: Vec<f64>,
    pub(crate) messages: u64,
    pub(crate) updates: u64,
    pub(crate) wire_bytes: u64,
}

/// The client's first bytes: definitions, hello, and both acknowledgements if `acks`.
pub(crate) fn greeting(name: &str, acks: bool) -> Vec<u8> {
    let mut out = BytesMut::from(&gob::client_prefix()[..]);
    let hello = ClientHello {
        hostname: name.to_owned(),
        info: "bench".to_owned(),
        version: "bench".to_owned(),
        syncer_type: "felix".to_owned(),
        supports_decoder_restart: true,
        supported_compression_algorithms: vec!["snappy".to_owned()],
        supports_modern_policy_keys: true,
        client_conn_id: 1,
    };
    gob::encode(&Message::ClientHello(hello), &mut out);
    if acks {
        gob::encode(&Message::Ack, &mut out);
        gob::encode(&Message::Ack, &mut out);
    }
    out.to_vec()
}

/// An answer to no ping in particular.
pub(crate) fn pong() -> Vec<u8> {
    let mut out = BytesMut::new();
    gob::encode(
        &Message::Pong(Pong { ping_timestamp: GobTime::default(), pong_timestamp: GobTime::default() }),
        &mut out,
    );
    out.to_vec()
}

/// Follows the server until cancelled, publishing what it sees.
pub(crate) async fn follow(
    server: SocketAddr,
    name: String,
    written: Written,
    seen: watch::Sender<Seen>,
) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(server).await.with_context(|| format!("connect probe to {server}"))?;
    stream.set_nodelay(true)?;
    stream.write_all(&greeting(&name, false)).await?;
    let limits = Limits::client;
    let mut decoder = gob::Decoder::new(limits());
    let mut unpack: Option<snappy::Decoder> = None;
    let mut buffer = vec![0; 256 * 1024];
    let mut ack = BytesMut::new();
    gob::encode(&Message::Ack, &mut ack);
    loop {
        let n = stream.read(&mut buffer).await.context("read at probe")?;
        if n == 0 {
            bail!("the server closed the probe's connection");
        }
        seen.send_modify(|seen| seen.wire_bytes += n as u64);
        match &mut unpack {
            None => decoder.push(&buffer[..n]),
            Some(unpack) => {
                unpack.push(&buffer[..n]);
                while let Some(chunk) = unpack.next_chunk()? {
                    decoder.push(&chunk);
                }
            }
        }
        while let Some(envelope) = decoder.next()? {
            match envelope.0 {
                Some(Message::DecoderRestart(restart)) => {
                    decoder = gob::Decoder::new(limits());
                    unpack = (restart.compression_algorithm == "snappy").then(snappy::Decoder::new);
                    stream.write_all(&ack).await?;
                }
                Some(Message::Ping(ping)) => {
                    let mut out = BytesMut::new();
                    gob::encode(&Message::Pong(Pong { ping_timestamp: ping.timestamp, ..Pong::default() }), &mut out);
                    stream.write_all(&out).await?;
                }
                Some(Message::SyncStatus(status)) => seen.send_modify(|seen| seen.in_sync = status == 2),
                Some(Message::Kvs(kvs)) => {
                    let now = Instant::now();
                    let written = written.lock().expect("the probe's table of writes is not poisoned");
                    seen.send_modify(|seen| {
                        seen.messages += 1;
                        seen.updates += kvs.len() as u64;
                        if !seen.in_sync {
                            seen.keys += kvs.len();
                        }
                        for kv in &kvs {
                            let at = change_number(&kv.value).and_then(|i| written.get(i).copied().flatten());
                            if let Some(at) = at {
                                seen.latencies_ms.push(now.duration_since(at).as_secs_f64() * 1e3);
                            }
                        }
                    });
                }
                _ => {}
            }
        }
    }
}

/// The number in the label `bench-seq` of an endpoint; 0 (the fill) and absent are not changes.
fn change_number(value: &[u8]) -> Option<usize> {
    const LABEL: &[u8] = br#""bench-seq":""#;
    let at = value.windows(LABEL.len()).position(|window| window == LABEL)? + LABEL.len();
    let digits = value[at..].split(|byte| *byte == b'"').next()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number > 0).then_some(number)
}
