//! What a server listens on and talks through: TCP, or anything else that tests come up with; TLS as a layer on top.

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

use crate::listen;

/// How many connections the kernel may hold for us until we accept them: room for all agents of a large cluster that come
/// back at the same time.
const BACKLOG: i32 = 4096;

/// Gives the acceptor of the moment for each connection, so that certificates can be exchanged while the server runs.
pub type TlsSource = Arc<dyn Fn() -> TlsAcceptor + Send + Sync>;

/// A byte stream in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Where connections come from.
pub trait Listener: Send + 'static {
    /// A connection.
    type Stream: Stream;

    /// The next connection and its other end.
    ///
    /// # Errors
    /// Whatever the system says; the server pauses and tries again.
    ///
    /// # Cancel safety
    /// Must be cancel safe: no connection may be lost when the future is dropped.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Where it listens.
    ///
    /// # Errors
    /// Whatever the system says.
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
    /// [`super::Config::send_buffer`].
    ///
    /// # Errors
    /// When no address can be bound; the text says which was tried.
    pub async fn bind(host: &str, port: u16, send_buffer: Option<usize>) -> io::Result<Self> {
        Ok(Self { listener: listen::bind(host, port, BACKLOG).await?, send_buffer })
    }
}

impl Listener for TcpInlet {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        // These fail only on a connection that is dead already; its first read will tell.
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

/// Counts what has really left and come: under TLS, what is written to the layer above may still sit in its buffers, and
/// what has come may not be a whole message.
#[derive(Debug)]
pub(super) struct Metered<S> {
    inner: S,
    written: u64,
    read: u64,
    /// During a TLS handshake: takes the first bytes that come, which tell what a peer speaks that does not speak TLS.
    first: Option<FirstBytes>,
    /// Nothing is read after this number of bytes.
    most: u64,
}

/// Where the first bytes of a connection are kept while its TLS handshake lasts.
pub(super) type FirstBytes = Arc<OnceLock<Box<[u8]>>>;

/// How many of the first bytes are kept: enough for `GET / HTTP/1.1`.
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
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Whether it reads nothing more until it is [let go](Self::let_go). Nobody is woken by that.
    pub(super) fn is_held_back(&self) -> bool {
        self.read >= self.most
    }

    /// It may read as much as it likes from now on.
    pub(super) fn let_go(&mut self) {
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

/// A connection, with or without TLS.
#[derive(Debug)]
pub(super) enum Transport<S> {
    Plain(Metered<S>),
    /// Boxed: a TLS session is large, and connections without it should not pay for that.
    Tls(Box<TlsStream<Metered<S>>>),
}

impl<S: Stream> Transport<S> {
    /// A connection without TLS.
    pub(super) fn plain(stream: S) -> Self {
        Self::Plain(Metered::new(stream, u64::MAX, None))
    }

    /// Begins a TLS handshake on a connection, which is [held back](Metered::is_held_back) after `most` bytes and one read.
    /// `first` gets the first bytes that come.
    pub(super) fn accept_tls(acceptor: &TlsAcceptor, stream: S, most: u64, first: FirstBytes) -> Accept<Metered<S>> {
        acceptor.accept(Metered::new(stream, most, Some(first)))
    }

    /// A TLS handshake is over.
    pub(super) fn tls(mut stream: TlsStream<Metered<S>>) -> Self {
        let metered = stream.get_mut().0;
        metered.let_go();
        metered.first = None;
        Self::Tls(Box::new(stream))
    }

    /// Bytes that have left so far, TLS's own included.
    pub(super) fn written(&self) -> u64 {
        match self {
            Self::Plain(stream) => stream.written,
            Self::Tls(stream) => stream.get_ref().0.written,
        }
    }
}

impl<S: Stream> AsyncRead for Transport<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: Stream> AsyncWrite for Transport<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
