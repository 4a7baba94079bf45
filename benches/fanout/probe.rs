//! A few agents that decode everything and time each change from its write to its arrival.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, bail};
use bulrush::calico::release::Release;
use bulrush::syncproto::gob::{self, Limits};
use bulrush::syncproto::messages::{ClientHello, GobTime, Message, Pong};
use bulrush::syncproto::snappy;
use bytes::BytesMut;
use clap::ValueEnum;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::tls::Tls;

/// Time of each change's write in a run. Numbers go on from run to run, so that no number occurs twice.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The number of the first change.
    pub(crate) first: usize,
    /// Time of each write.
    pub(crate) at: Vec<Option<Instant>>,
}

/// The table of a run, shared by its writer and its probes.
pub(crate) type Written = Arc<Mutex<Table>>;

/// Observations of a probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Keys received before in-sync.
    pub(crate) keys: usize,
    pub(crate) in_sync: bool,
    /// Time of in-sync, and the number of bytes read from the connection before it.
    pub(crate) in_sync_at: Option<Instant>,
    pub(crate) in_sync_bytes: u64,
    /// Latency of each change of the table, in milliseconds.
    pub(crate) latencies_ms: Vec<Option<f64>>,
    /// Number of changes seen.
    pub(crate) changes: usize,
    /// Reads that brought changes: each is one write of the server, with one or several messages of the protocol.
    pub(crate) messages: u64,
    pub(crate) wire_bytes: u64,
}

/// Compression that agents ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Compressed, as Calico's agents ask.
    Snappy,
    /// Not compressed.
    Plain,
}

/// The client's first bytes: definitions, hello, and both acknowledgements if `acks`.
pub(crate) fn greeting(name: &str, acks: bool, wire: Wire, dialect: Option<Release>) -> Vec<u8> {
    let mut out = BytesMut::from(&gob::client_prefix()[..]);
    let hello = ClientHello {
        hostname: name.to_owned(),
        info: "bench".to_owned(),
        version: dialect.map_or_else(|| "bench".to_owned(), |line| line.build("bench")),
        syncer_type: "felix".to_owned(),
        supports_decoder_restart: wire == Wire::Snappy,
        supported_compression_algorithms: if wire == Wire::Snappy { vec!["snappy".to_owned()] } else { Vec::new() },
        supports_modern_policy_keys: dialect.is_none_or(Release::has_modern_policy_keys),
        client_conn_id: 1,
    };
    gob::encode(&Message::ClientHello(hello), &mut out);
    if acks && wire == Wire::Snappy {
        gob::encode(&Message::Ack, &mut out);
        gob::encode(&Message::Ack, &mut out);
    }
    out.to_vec()
}

/// A pong that answers no particular ping.
pub(crate) fn pong() -> Vec<u8> {
    let mut out = BytesMut::new();
    gob::encode(
        &Message::Pong(Pong { ping_timestamp: GobTime::default(), pong_timestamp: GobTime::default() }),
        &mut out,
    );
    out.to_vec()
}

/// Address of the server, and the probe's identity.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) wire: Wire,
    pub(crate) dialect: Option<Release>,
}

/// Follows the server until cancelled, and publishes its observations. Greets once `start` says so.
pub(crate) async fn follow(
    target: Target,
    name: String,
    written: Written,
    seen: watch::Sender<Seen>,
    mut start: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let stream =
        TcpStream::connect(target.address).await.with_context(|| format!("connect probe to {}", target.address))?;
    stream.set_nodelay(true)?;
    let Some(tls) = target.tls else {
        start.wait_for(|start| *start).await?;
        return follow_on(stream, greeting(&name, false, target.wire, target.dialect), &written, &seen).await;
    };
    let stream = tls.connector.connect(tls.name, stream).await.context("TLS handshake of a probe")?;
    start.wait_for(|start| *start).await?;
    follow_on(stream, greeting(&name, false, target.wire, target.dialect), &written, &seen).await
}

async fn follow_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    greeting: Vec<u8>,
    written: &Written,
    seen: &watch::Sender<Seen>,
) -> anyhow::Result<()> {
    stream.write_all(&greeting).await?;
    let limits = Limits::client;
    let mut decoder = gob::Decoder::new(limits());
    let mut unpack: Option<snappy::Decoder> = None;
    let mut buffer = vec![0; 256 * 1024];
    let mut ack = BytesMut::new();
    gob::encode(&Message::Ack, &mut ack);
    loop {
        // TLS keeps encrypted bytes until it is flushed.
        stream.flush().await?;
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
        let mut brought = false;
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
                Some(Message::SyncStatus(2)) => seen.send_modify(|seen| {
                    if !seen.in_sync {
                        seen.in_sync = true;
                        seen.in_sync_at = Some(Instant::now());
                        seen.in_sync_bytes = seen.wire_bytes;
                    }
                }),
                Some(Message::Kvs(kvs)) => {
                    brought = true;
                    let now = Instant::now();
                    let written = written.lock().expect("the probe's table of writes is not poisoned");
                    seen.send_modify(|seen| {
                        if !seen.in_sync {
                            seen.keys += kvs.len();
                        }
                        for kv in &kvs {
                            let Some(number) = change_number(&kv.value) else { continue };
                            let Some(i) = number.checked_sub(written.first) else { continue };
                            let Some(at) = written.at.get(i).copied().flatten() else { continue };
                            seen.latencies_ms.resize(written.at.len(), None);
                            let latency = &mut seen.latencies_ms[i];
                            if latency.is_none() {
                                *latency = Some(now.duration_since(at).as_secs_f64() * 1e3);
                                seen.changes += 1;
                            }
                        }
                    });
                }
                _ => {}
            }
        }
        if brought {
            seen.send_modify(|seen| seen.messages += 1);
        }
    }
}

/// The number in the label `bench-seq` of an endpoint. A missing label, or 0 from the fill, is no change.
fn change_number(value: &[u8]) -> Option<usize> {
    const LABEL: &[u8] = br#""bench-seq":""#;
    let at = value.windows(LABEL.len()).position(|window| window == LABEL)? + LABEL.len();
    let digits = value[at..].split(|byte| *byte == b'"').next()?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number > 0).then_some(number)
}
