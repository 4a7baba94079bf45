//! The transports of a server: TCP, or another stream in tests; TLS as a layer on top.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tokio_util::either::Either;

use crate::listen;

/// Connections that the kernel may hold for us until we accept them: room for all agents of a large cluster that come
/// back at the same time.
const BACKLOG: i32 = 4096;

/// Gives the current acceptor for each connection, so that certificates can be exchanged while the server runs.
pub type TlsSource = Arc<dyn Fn() -> TlsAcceptor + Send + Sync>;

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A source of connections.
pub trait Listener: Send + 'static {
    /// A connection.
    type Stream: Stream;

    /// The next connection and its other end.
    ///
    /// # Errors
    /// The system's error; the server pauses and tries again.
    ///
    /// # Cancel safety
    /// Must be cancel safe: no connection may be lost when the future is dropped.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// The address on which it listens.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Our end of a connection, where the transport has such a thing.
    fn near_end(_stream: &Self::Stream) -> Option<SocketAddr> {
        None
    }
}

/// Listens on TCP.
#[derive(Debug)]
pub struct TcpInlet {
    listener: TcpListener,
    send_buffer: Option<usize>,
}

impl TcpInlet {
    /// Binds `host:port`, as [`listen::bind`] does. `send_buffer`: see
    /// [`super::super::Config::send_buffer`].
    ///
    /// # Errors
    /// No address can be bound; the text names those that were tried.
    pub async fn bind(host: &str, port: u16, send_buffer: Option<usize>) -> io::Result<Self> {
        Ok(Self { listener: listen::bind(host, port, BACKLOG).await?, send_buffer })
    }
}

impl Listener for TcpInlet {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        // These fail only on a dead connection; its first read will tell.
        let _dead = stream.set_nodelay(true);
        let socket = SockRef::from(&stream);
        let _dead = socket.set_keepalive(true);
        if let Some(bytes) = self.send_buffer {
            let _dead = socket.set_send_buffer_size(bytes);
        }
        Ok((stream, peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn near_end(stream: &TcpStream) -> Option<SocketAddr> {
        stream.local_addr().ok()
    }
}

/// Counts the bytes that have left and come: under TLS, bytes that are written to the layer above may still be in its
/// buffers, and bytes that have come may not be a whole message.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    inner: S,
    written: u64,
    read: u64,
    /// During a TLS handshake: takes the first bytes that come. They show the protocol of a peer that does not speak
    /// TLS.
    first: Option<FirstBytes>,
    /// Nothing is read after this number of bytes.
    most: u64,
}

/// Holds the first bytes of a connection while its TLS handshake lasts.
pub(crate) type FirstBytes = Arc<OnceLock<Box<[u8]>>>;

/// First bytes that are kept: enough for `GET / HTTP/1.1`.
const FIRST: usize = 16;

impl<S: Stream> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_held_back() {
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        let come = &buf.filled()[before..];
        if !come.is_empty()
            && let Some(first) = &self.first
        {
            first.get_or_init(|| come[..come.len().min(FIRST)].into());
        }
        self.read += come.len() as u64;
        polled
    }
}

impl<S> Metered<S> {
    fn new(inner: S, most: u64, first: Option<FirstBytes>) -> Self {
        Self { inner, written: 0, read: 0, most, first }
    }

    /// Bytes that have come so far.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Whether nothing more is read until it is [released](Self::release), which wakes no task.
    pub(crate) fn is_held_back(&self) -> bool {
        self.read >= self.most
    }

    /// Any number of bytes may be read from now on.
    pub(crate) fn release(&mut self) {
        self.most = u64::MAX;
    }
}

impl<S: Stream> Metered<S> {
    fn count(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.written += *bytes as u64;
        }
        polled
    }
}

impl<S: Stream> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.count(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.count(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A connection, without TLS or with it. Boxed: a TLS session is large, and connections without it should not pay for that.
pub(crate) type Transport<S> = Either<Metered<S>, Box<TlsStream<Metered<S>>>>;

/// A connection without TLS.
pub(crate) fn plain<S: Stream>(stream: S) -> Transport<S> {
    Either::Left(Metered::new(stream, u64::MAX, None))
}

/// Begins a TLS handshake on a connection, which is [held back](Metered::is_held_back) after `most` bytes and one read.
/// `first` takes the first bytes that come.
pub(crate) fn accept_tls<S: Stream>(
    acceptor: &TlsAcceptor,
    stream: S,
    most: u64,
    first: FirstBytes,
) -> Accept<Metered<S>> {
    acceptor.accept(Metered::new(stream, most, Some(first)))
}

/// For a connection whose TLS handshake is over.
pub(crate) fn tls<S: Stream>(mut stream: TlsStream<Metered<S>>) -> Transport<S> {
    let metered = stream.get_mut().0;
    metered.release();
    metered.first = None;
    Either::Right(Box::new(stream))
}

/// Bytes that have left a connection so far, TLS's own included.
pub(crate) fn written<S>(transport: &Transport<S>) -> u64 {
    match transport {
        Either::Left(stream) => stream.written,
        Either::Right(stream) => stream.get_ref().0.written,
    }
}
