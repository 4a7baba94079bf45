//! Agents without the library: each connection starts from nothing, every message is checked as it comes, and reading is slow, or
//! stops altogether.

use std::io;
use std::time::Duration;

use bulrush::calico::release::Release;
use bulrush::model::SyncStatus;
use bulrush::syncclient::Identity;
use bulrush::syncclient::session::calico::CalicoSession;
use bulrush::syncclient::session::native::NativeSession;
use bulrush::syncclient::session::{Incoming, Session};
use bulrush::syncproto::native::{
    ClientFrame, ClientHello, Compression, MAGIC, ServerFrame, VERSION, decode_server, encode_client,
};
use bytes::BytesMut;
use futures_util::FutureExt;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::follower::Follower;
use super::invariants::{invariant_no_gap, invariant_status_follows_its_data};
use super::ledger::Ledger;
use super::library::{MAX_ABSENCE, TIMEOUTS, stay};
use super::lines::{Dial, Line, Plug};
use super::roles::Role;

/// Pause before connecting again.
const RETRY: Duration = Duration::from_millis(100);

/// Silence of an agent that does not read: longer than all time-outs of a server.
pub(super) const DEAF: Duration = Duration::from_secs(7);

/// Longest time to read the rest of the stream after that.
const READ_OUT: Duration = Duration::from_secs(1);

/// Protocol of a raw agent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw {
    /// Our protocol, framed by hand.
    Native(Compression),
    /// Calico's protocol; `true`: with snappy.
    Gob(bool),
}

fn identity(role: &Role) -> Identity {
    Identity {
        agent: role.name.to_owned(),
        version: String::new(),
        syncer: role.syncer,
        prefixes: role.prefixes.clone(),
        dialect: Release::Master,
    }
}

/// Follows until the simulation ends: one server after the other.
pub(super) async fn follow(follower: Follower, role: Role, protocol: Raw, plug: Plug, seed: u64) -> turmoil::Result {
    let mut rng = SmallRng::seed_from_u64(seed);
    for server in role.servers.iter().copied().cycle() {
        let stay = stay(&role, &mut rng);
        if let Ok(Ok((line, dial))) = timeout(TIMEOUTS.connect, plug.dial(server)).await {
            let serving = async {
                match protocol {
                    Raw::Native(compression) => native(&follower, &role, compression, line, dial).await,
                    Raw::Gob(compression) => gob(&follower, &role, compression, line, dial).await,
                }
            };
            if let Ok(served) = timeout(stay.unwrap_or(Duration::MAX), serving).await {
                follower.on_lost(&served.err().unwrap_or_default());
            } else {
                follower.on_left();
                sleep(rng.random_range(Duration::ZERO..MAX_ABSENCE)).await;
            }
        }
        sleep(RETRY).await;
    }
    Ok(())
}

/// Sends a hello and reads nothing, again and again. Counts the cuts for that.
pub(super) async fn ignore(ledger: Ledger, role: Role, protocol: Raw, plug: Plug) -> turmoil::Result {
    for server in role.servers.iter().copied().cycle() {
        if let Ok(Ok((mut line, _))) = timeout(TIMEOUTS.connect, plug.dial(server)).await {
            let cut = is_cut_for_silence(&role, protocol, &mut line).await;
            ledger.log(role.name, if cut { "is cut" } else { "is not cut" });
            ledger.book().counts.deaf_cut += u64::from(cut);
        }
        sleep(RETRY).await;
    }
    Ok(())
}

/// Sends a hello, and reads only after the server's time-outs. Returns whether it sees the end of the connection: it does
/// not if the network was full of earlier bytes, because turmoil does not deliver the end later.
async fn is_cut_for_silence(role: &Role, protocol: Raw, line: &mut Line) -> bool {
    if stay_silent(role, protocol, line).await.is_err() {
        return false;
    }
    let mut input = BytesMut::new();
    let rest = async {
        while line.read_buf(&mut input).await.is_ok_and(|read| read > 0) {
            input.clear();
        }
    };
    timeout(READ_OUT, rest).await.is_ok()
}

/// Sends a hello, and nothing more for [`DEAF`].
pub(super) async fn stay_silent(role: &Role, protocol: Raw, line: &mut Line) -> io::Result<()> {
    let mut session: Box<dyn Session> = match protocol {
        Raw::Native(compression) => Box::new(NativeSession::new(identity(role), vec![compression], 1)),
        Raw::Gob(compression) => Box::new(CalicoSession::new(identity(role), compression, 1)),
    };
    let mut out = BytesMut::new();
    session.start(&mut out);
    timeout(TIMEOUTS.write, line.write_all(&out)).await??;
    sleep(DEAF).await;
    Ok(())
}

/// Sends all of `out`, then reads slowly: after each pause everything that has arrived, as clients with a buffer do.
/// (A client that read only one write of the server after each pause would answer pings too late, and would rightly be cut.)
/// Returns an error when the connection is over.
async fn exchange(line: &mut Line, out: &mut BytesMut, input: &mut BytesMut, role: &Role) -> Result<(), String> {
    if !out.is_empty() {
        let written = timeout(TIMEOUTS.write, line.write_all(out)).await;
        written.map_err(|_| "cannot write")?.map_err(|error| error.to_string())?;
        out.clear();
    }
    if !role.pause.is_zero() {
        sleep(role.pause).await;
    }
    input.reserve(2048);
    let mut read = timeout(TIMEOUTS.read, line.read_buf(input)).await.map_err(|_| "nothing comes")?;
    loop {
        if read.map_err(|error| error.to_string())? == 0 {
            return Err("closed".to_owned());
        }
        input.reserve(2048);
        match line.read_buf(input).now_or_never() {
            Some(more) => read = more,
            None => return Ok(()),
        }
    }
}

async fn native(
    follower: &Follower,
    role: &Role,
    compression: Compression,
    mut line: Line,
    dial: Dial,
) -> Result<(), String> {
    let (mut out, mut input) = (BytesMut::from(&MAGIC[..]), BytesMut::new());
    let hello = ClientHello {
        min_version: VERSION,
        max_version: VERSION,
        agent: role.name.to_owned(),
        agent_version: String::new(),
        syncer: role.syncer.as_str().to_owned(),
        compressions: vec![compression.as_str().to_owned()],
        prefixes: role.prefixes.clone(),
        resume: None,
        conn_id: 1,
    };
    encode_client(&ClientFrame::Hello(hello), &mut out);
    let mut position = None;
    loop {
        exchange(&mut line, &mut out, &mut input, role).await?;
        while let Some(frame) = decode_server(&mut input).map_err(|error| error.to_string())? {
            match frame {
                ServerFrame::Hello(_) => follower.on_connected(dial, true),
                ServerFrame::SnapshotBegin { .. } => position = None,
                ServerFrame::SnapshotChunk { updates } => follower.on_updates(&updates),
                ServerFrame::SnapshotEnd { seq, .. } => {
                    position = Some(seq);
                    follower.on_position(seq);
                }
                ServerFrame::Updates { after, upto, updates } => {
                    follower.judge(position.map_or_else(
                        || Err("is given changes before the end of its snapshot".to_owned()),
                        |position| invariant_no_gap(position, after, upto),
                    ));
                    follower.on_updates(&updates);
                    position = Some(upto);
                    // A range that does not move the position is only a part; the state after it is no crumb's.
                    if upto > after {
                        follower.on_position(upto);
                    }
                }
                ServerFrame::Status { seq, status, .. } => {
                    follower.judge(invariant_status_follows_its_data(position, status, seq));
                    if status == SyncStatus::InSync {
                        follower.on_position(seq);
                    }
                    follower.on_status(status);
                }
                ServerFrame::Ping { at, .. } => encode_client(&ClientFrame::Pong { ping_at: at }, &mut out),
                ServerFrame::Goodbye(goodbye) => return Err(goodbye.reason),
            }
        }
    }
}

async fn gob(follower: &Follower, role: &Role, compression: bool, mut line: Line, dial: Dial) -> Result<(), String> {
    let mut session = CalicoSession::new(identity(role), compression, 1);
    let (mut out, mut input) = (BytesMut::new(), BytesMut::new());
    session.start(&mut out);
    loop {
        exchange(&mut line, &mut out, &mut input, role).await?;
        loop {
            let incoming = session.on_input(&mut input, &mut out).map_err(|error| {
                follower.judge(Err(format!("cannot read an honest server: {error}")));
                error.to_string()
            })?;
            match incoming {
                None => break,
                Some(Incoming::Hello(_)) => follower.on_connected(dial, true),
                Some(Incoming::Updates(updates, _)) => follower.on_updates(&updates),
                Some(Incoming::Status(status)) => follower.on_status(status),
                Some(Incoming::Progress { .. } | Incoming::Goodbye(_)) => {}
            }
        }
    }
}
