//! A TCP relay on loopback that counts the bytes a client reads from a server, unseen by both.
//!
//! It costs a copy through this process, so timed connections do not go through it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;

/// Bytes copied at a time.
const BUFFER: usize = 256 * 1024;

/// A running relay. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Address to connect to instead of the server's.
    pub(crate) address: SocketAddr,
    down: Arc<AtomicU64>,
}

impl Relay {
    /// Relays connections to `server`.
    pub(crate) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("bind the relay")?;
        let address = listener.local_addr()?;
        let down = Arc::new(AtomicU64::new(0));
        let counter = down.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
                let counter = counter.clone();
                std::thread::spawn(move || copy(from_client, to_server, None));
                std::thread::spawn(move || copy(server, client, Some(&counter)));
            }
        });
        Ok(Self { address, down })
    }

    /// Bytes from the server so far: the payload of TCP, including TLS and headers.
    pub(crate) fn bytes(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }
}

/// Copies until either end is done.
fn copy(mut from: TcpStream, mut to: TcpStream, counter: Option<&AtomicU64>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                if let Some(counter) = counter {
                    counter.fetch_add(n as u64, Ordering::Relaxed);
                }
                if to.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
