//! One counted connection: connects, shakes hands, greets, and then only counts bytes.
//!
//! Received bytes are never decoded. After a TLS handshake they are not even decrypted but counted as on the wire, so that TLS
//! costs the server and not the load generator. Sent bytes go through TLS.

use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::TcpStream;
use tokio_rustls::rustls::ClientConnection;

use super::manner::Manner;
use crate::tls::Tls;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// TCP is not established yet.
    Connecting,
    /// TLS is not established yet.
    Handshaking,
    /// Nothing has been sent yet.
    Ready,
    /// The greeting is sent.
    Greeted,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    pub(crate) bytes: usize,
    pub(crate) reads: usize,
    /// The server closed it, or it failed.
    pub(crate) closed: bool,
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) phase: Phase,
    pub(crate) manner: Manner,
    /// Whether the server has answered, or no answer is expected.
    pub(crate) opened: bool,
    tls: Option<Box<ClientConnection>>,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, tls: Option<&Tls>, manner: Manner) -> anyhow::Result<Self> {
        let tls = match tls {
            Some(tls) => Some(Box::new(ClientConnection::new(tls.connector.config().clone(), tls.name.clone())?)),
            None => None,
        };
        Ok(Self { stream, phase: Phase::Connecting, manner, opened: false, tls, unsent: Vec::new() })
    }

    /// Goes on with connecting and the handshake as far as the socket allows. Returns the number of bytes read.
    pub(crate) fn establish(&mut self) -> io::Result<usize> {
        if self.phase == Phase::Connecting {
            if let Some(error) = self.stream.take_error()? {
                return Err(error);
            }
            match self.stream.peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(0),
                Err(error) => return Err(error),
            }
            self.phase = if self.tls.is_some() { Phase::Handshaking } else { Phase::Ready };
        }
        let mut bytes = 0;
        if self.phase == Phase::Handshaking
            && let Some(tls) = &mut self.tls
        {
            loop {
                let result = if tls.wants_write() {
                    tls.write_tls(&mut self.stream)
                } else if tls.is_handshaking() {
                    tls.read_tls(&mut self.stream).and_then(|n| {
                        bytes += n;
                        tls.process_new_packets().map_err(io::Error::other)?;
                        Ok(n)
                    })
                } else {
                    self.phase = Phase::Ready;
                    break;
                };
                match result {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(bytes)
    }

    /// Sends the greeting.
    pub(crate) fn greet(&mut self, greeting: &[u8]) -> io::Result<()> {
        self.phase = Phase::Greeted;
        self.send(greeting)
    }

    /// Sends a pong, unless earlier bytes are still unsent: then the server does not read anyway.
    pub(crate) fn pong(&mut self, pong: &[u8]) -> io::Result<()> {
        if self.unsent.is_empty() { self.send(pong) } else { self.flush() }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                while tls.wants_write() {
                    tls.write_tls(&mut self.unsent)?;
                }
            }
            None => self.unsent.extend_from_slice(bytes),
        }
        self.flush()
    }

    /// Sends unsent bytes. The rest follows when the socket becomes writable, or with the next pong.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads available bytes, at most `limit`. A read that does not fill the buffer has emptied the socket, and the next byte is
    /// a new event; so no further read is made. With `to_the_end` it reads until the socket says that it is empty.
    pub(crate) fn read(&mut self, buffer: &mut [u8], limit: usize, to_the_end: bool) -> Read {
        let mut outcome = Read::default();
        while outcome.bytes < limit {
            let room = buffer.len().min(limit - outcome.bytes);
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => {
                    outcome.closed = true;
                    break;
                }
                Ok(n) => {
                    outcome.bytes += n;
                    outcome.reads += 1;
                    if n < room && !to_the_end {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    outcome.closed = true;
                    break;
                }
            }
        }
        outcome
    }
}
