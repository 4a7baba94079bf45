//! Byte streams to an address: TCP, TLS over TCP, or the streams of a test or simulation.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::tls::{ClientTls, Purpose, client, handshake_error};

/// Makes streams. The driver bounds the time for it.
pub trait Connector: Send + Sync + 'static {
    /// The stream.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Connects to `host:port`.
    ///
    /// # Cancel safety
    /// May be dropped at any time; nothing is left open.
    fn connect(&self, address: &str) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// Connects by TCP, with TLS if it has some.
#[derive(Clone, Debug, Default)]
pub struct TcpConnector {
    tls: Option<Arc<ClientTls>>,
}

impl TcpConnector {
    /// TCP, with TLS where given.
    #[must_use]
    pub fn new(tls: Option<ClientTls>) -> Self {
        Self { tls: tls.map(Arc::new) }
    }
}

impl Connector for TcpConnector {
    type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

    async fn connect(&self, address: &str) -> io::Result<Self::Stream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Either::Left(stream)) };
        let reload = tls.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || reload.reload()).await {
            tracing::warn!(%error, "TLS files changed but cannot be used, keeping those loaded before");
        }
        let connecting = tls.connector().connect(client::server_name(address), stream);
        match connecting.await {
            Ok(stream) => Ok(Either::Right(Box::new(stream))),
            Err(error) => {
                let why = handshake_error(&error, Purpose::Server, &[]);
                Err(io::Error::new(error.kind(), format!("TLS handshake: {why}")))
            }
        }
    }
}
