//! Agents that say hello and count bytes. They allocate nothing once they are connected.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bulrush::syncproto::gob;
use bulrush::syncproto::messages::{ClientHello, Message};
use bytes::BytesMut;

/// Longest time for any step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at all sockets.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes read at a time.
const BUFFER: usize = 64 << 10;

struct Client {
    stream: TcpStream,
    received: u64,
}

/// All agents, served by one thread.
pub(super) struct Clients {
    all: Vec<Client>,
    buffer: Vec<u8>,
}

impl Clients {
    /// No agent yet, with room for `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { all: Vec::with_capacity(most), buffer: vec![0; BUFFER] }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Connects until there are `count`.
    pub(super) fn connect(&mut self, address: SocketAddr, count: usize) -> anyhow::Result<()> {
        let mut hello = BytesMut::from(&gob::client_prefix()[..]);
        let message = ClientHello {
            hostname: "node-0001".to_owned(),
            info: "memory bench".to_owned(),
            version: "v3.32.0".to_owned(),
            syncer_type: "felix".to_owned(),
            supports_decoder_restart: true,
            supported_compression_algorithms: vec!["snappy".to_owned()],
            supports_modern_policy_keys: true,
            client_conn_id: 1,
        };
        gob::encode(&Message::ClientHello(message), &mut hello);
        // The acknowledgement of the decoder restart, ahead of it.
        gob::encode(&Message::Ack, &mut hello);
        while self.all.len() < count {
            let mut stream = TcpStream::connect(address).context("connect to the server")?;
            stream.write_all(&hello)?;
            stream.set_nonblocking(true)?;
            self.all.push(Client { stream, received: 0 });
            self.read()?;
        }
        Ok(())
    }

    /// Reads all available bytes. Returns their number.
    fn read(&mut self) -> anyhow::Result<u64> {
        let mut read = 0;
        for client in &mut self.all {
            loop {
                match client.stream.read(&mut self.buffer) {
                    Ok(0) => bail!("the server closed a connection"),
                    Ok(n) => {
                        client.received += n as u64;
                        read += n as u64;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error).context("read from the server"),
                }
            }
        }
        Ok(read)
    }

    /// Reads until nothing has come for the time `quiet`.
    pub(super) fn settle(&mut self, quiet: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut last = began;
        while last.elapsed() < quiet {
            if self.read()? > 0 {
                last = Instant::now();
            }
            ensure!(began.elapsed() < PATIENCE, "the server never falls silent");
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Reads until every client has got the same number of new bytes, and not 0: one message for all.
    pub(super) fn one_message(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        let total = |clients: &Self| clients.all.iter().map(|client| client.received).sum::<u64>();
        let (first, before) = (self.all[0].received, total(self));
        loop {
            self.read()?;
            let got = self.all[0].received - first;
            if got > 0 && total(self) - before == got * self.all.len() as u64 {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "a change does not come through");
            std::thread::sleep(PAUSE);
        }
    }
}
