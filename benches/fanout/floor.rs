//! The floor: a server that does nothing but `send()` the same bytes to every connection at the same rate.
//!
//! It runs as a child process, so that its CPU time is counted like that of the real server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context as _;

/// Settings of the floor server, read from its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// Connections that it waits for before it sends.
    pub(crate) clients: usize,
    /// Bytes per message.
    pub(crate) bytes: usize,
    /// Messages a second.
    pub(crate) rate: u32,
    /// Messages in all.
    pub(crate) messages: u32,
}

/// Accepts, then sends. Prints its address first and `done` at the end; leaves when its standard input closes.
pub(crate) fn serve(floor: Floor) -> anyhow::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("bind the floor server")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let mut streams = Vec::with_capacity(floor.clients);
    let mut hello = [0; 4096];
    for _ in 0..floor.clients {
        let (mut stream, _) = listener.accept().context("accept at the floor server")?;
        stream.set_nodelay(true)?;
        let _ = stream.read(&mut hello).context("read a hello at the floor server")?;
        // Answered, because agents come in waves, and the next wave waits for the answers.
        stream.write_all(b"!").context("answer a hello at the floor server")?;
        streams.push(stream);
    }
    let message = vec![0x5a_u8; floor.bytes];
    let period = Duration::from_secs(1) / floor.rate;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let mut tick = tokio::time::interval(period);
        for _ in 0..floor.messages {
            tick.tick().await;
            for stream in &mut streams {
                stream.write_all(&message).context("send at the floor server")?;
            }
        }
        anyhow::Ok(())
    })?;
    writeln!(out, "done")?;
    out.flush()?;
    let _ = std::io::stdin().read(&mut hello);
    Ok(())
}
