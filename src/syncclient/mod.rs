//! The client library: follow a syncer of a Bulrush or a Typha, whatever happens to the server.
//!
//! ```no_run
//! use bulrush::syncclient::{Client, SyncEvent};
//!
//! # async fn example() -> Result<(), bulrush::syncclient::Error> {
//! let mut client = Client::builder(["localhost:5473"]).agent("my-agent").start()?;
//! while let Some(event) = client.next().await {
//!     match event {
//!         SyncEvent::Updates(updates) => println!("{} changes", updates.len()),
//!         SyncEvent::Status(status) => println!("now {status}"),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is the near end of a bounded channel; a task at the far end owns the connection. [`session`] is a protocol
//! without a socket, [`tracker`] knows what the consumer holds, [`rotation`] where to go next, [`discovery`] where servers are, [`driver`] ties them to a
//! [`connector`]'s stream and to the clock.
//!
//! Invariants: those of [`tracker`]; and an event that was not taken yet stops the reading of more, so a slow consumer costs
//! a bounded amount of memory here and is the server's slow client.

pub mod connector;
pub mod discovery;
pub mod driver;
#[cfg(any(test, fuzzing))]
pub mod exercise;
pub mod rotation;
pub mod session;
pub mod tracker;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::model::SyncerType;
use crate::model::release::Release;
use crate::model::{AsOf, Key, SyncStatus, Update};
use crate::syncproto::native::{Compression, KeyError, MAX_CLIENT_FRAME_BYTES, MAX_PREFIXES, MAX_TEXT_BYTES};
use crate::tls::ClientTls;
use connector::{Connector, TcpConnector};
use discovery::Discovery;
use driver::{Applied, Driver, Item};

/// Events that wait for the consumer. A message of a server is one event, so this is some ten thousand updates at most
/// with the usual batches; more would only hide a consumer that is too slow.
const MAX_EVENTS_WAITING: usize = 32;

/// Key errors that wait to be sent. Beyond it the consumer is broken, and the first errors say why.
const MAX_ERRORS_WAITING: usize = 1024;

/// Bytes that all key prefixes may have together: what a frame takes beside the other fields of a hello, which are less than a
/// quarter of it.
const MAX_PREFIX_BYTES: usize = MAX_CLIENT_FRAME_BYTES / 4 * 3;

/// How to talk to servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Calico's, which Typha and Bulrush speak.
    Calico {
        /// Whether to offer snappy.
        compression: bool,
    },
    /// Bulrush's own, with these compressions offered, best first.
    Native {
        /// Empty: none.
        compressions: Vec<Compression>,
    },
}

/// Who the client is and what it wants; what goes into a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the agent.
    pub agent: String,
    /// Its build version.
    pub version: String,
    /// Which syncer to follow.
    pub syncer: SyncerType,
    /// Only keys that start with one of these. Empty: all.
    pub prefixes: Vec<String>,
    /// The release of Calico whose agent it speaks as, in Calico's protocol.
    pub dialect: Release,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, TLS included.
    pub connect: Duration,
    /// From one whole message to the next. Servers ping every 10 seconds.
    pub read: Duration,
    /// To write an answer.
    pub write: Duration,
}

impl Default for Timeouts {
    /// Those of Calico's client.
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), read: Duration::from_secs(30), write: Duration::from_secs(10) }
    }
}

/// A server as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its name; Calico's protocol has none.
    pub name: String,
    /// Its build version.
    pub version: String,
    /// `native` or `calico`.
    pub protocol: &'static str,
    /// The compression that is in use; `none` if none is.
    pub compression: String,
    /// The server's id of this connection.
    pub conn_id: u64,
    /// Names the life of the server's cache; native only.
    pub epoch: Option<u64>,
}

/// Applies updates to what a consumer holds.
pub fn apply(content: &mut BTreeMap<Key, Update>, updates: Vec<Update>) {
    for update in updates {
        if update.value.is_some() {
            content.insert(update.key.clone(), update);
        } else {
            content.remove(&update.key);
        }
    }
}

/// What a consumer hears.
#[derive(Clone, Debug, PartialEq)]
pub enum SyncEvent {
    /// A server was reached and took the client.
    Connected {
        /// Where.
        address: String,
        /// Who.
        server: ServerInfo,
    },
    /// The status after everything before it; only when it changes.
    Status(SyncStatus),
    /// Changes, in order, with the types that are right for this consumer. Never empty.
    Updates(Vec<Update>),
    /// All changes up to this moment of the datastore came before; native only.
    Progress(AsOf),
    /// A try to connect failed, or a connection was lost. What the consumer holds stays valid, but may be outdated.
    Disconnected {
        /// Where.
        address: String,
        /// Why.
        reason: Error,
        /// When the next try is made. `None`: no more tries; this is the last event.
        retry_in: Option<Duration>,
    },
}

/// Why there is no (or no longer a) connection, or why a client cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The settings make no sense.
    #[error("start client: {reason}")]
    Settings {
        /// What is wrong.
        reason: String,
    },
    /// No server to go to.
    #[error("find servers of service {service}: {reason}")]
    Discovery {
        /// Whose servers.
        service: String,
        /// Why none is known, and what to check.
        reason: String,
    },
    /// No stream to the address.
    #[error("connect: {reason}")]
    Connect {
        /// Why.
        reason: String,
    },
    /// Something took too long.
    #[error("{doing}: nothing for {} s", after.as_secs_f64())]
    Timeout {
        /// What was waited for.
        doing: &'static str,
        /// How long.
        after: Duration,
    },
    /// Reading or writing failed.
    #[error("{doing}: {reason}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// The server closed the connection.
    #[error("server closed the connection{hint}")]
    Closed {
        /// A likely cause, or empty.
        hint: &'static str,
    },
    /// The server does not take the client.
    #[error("server refused: {reason}")]
    Refused {
        /// The server's words.
        reason: String,
        /// Where it says to go instead.
        alternatives: Vec<String>,
    },
    /// The server said goodbye.
    #[error("server said goodbye: {reason}")]
    Goodbye {
        /// The server's words.
        reason: String,
        /// Where it says to go instead.
        alternatives: Vec<String>,
    },
    /// The server breaks the protocol, or speaks another one.
    #[error("protocol error: {reason}")]
    Protocol {
        /// What it did.
        reason: String,
    },
    /// The client was closed.
    #[error("client was closed")]
    Stopped,
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    addresses: Vec<String>,
    discovery: Option<Discovery>,
    identity: Identity,
    protocol: Protocol,
    timeouts: Timeouts,
    tls: Option<ClientTls>,
    max_attempts: Option<u32>,
    seed: Option<u64>,
}

impl ClientBuilder {
    /// The agent's name, for the server's logs and status. Default: `bulrush-client`.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.identity.agent = name.into();
        self
    }

    /// The agent's build version. Default: that of this library.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.identity.version = version.into();
        self
    }

    /// The release of Calico whose agent it speaks as, in Calico's protocol: a Bulrush then answers as to that release's agents. Typhas
    /// since 3.32 refuse those of older ones. Default: the newest.
    #[must_use]
    pub fn dialect(mut self, line: Release) -> Self {
        self.identity.dialect = line;
        self
    }

    /// Which syncer to follow. Default: felix.
    #[must_use]
    pub fn syncer(mut self, syncer: SyncerType) -> Self {
        self.identity.syncer = syncer;
        self
    }

    /// Follows only keys that start with one of `prefixes`. With Calico's protocol the client sorts them out, with
    /// the native one the server does. Default: all keys.
    #[must_use]
    pub fn prefixes<I>(mut self, prefixes: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.identity.prefixes = prefixes.into_iter().map(Into::into).collect();
        self
    }

    /// Which protocol to speak. Default: the native one, with zstd, snappy or none.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// How long things may take.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Speaks TLS. Default: plain TCP.
    #[must_use]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Finds servers by their Kubernetes service, if no addresses are given.
    #[must_use]
    pub fn discovery(mut self, discovery: Discovery) -> Self {
        self.discovery = Some(discovery);
        self
    }

    /// Gives up after this many failed tries in a row. Default: never.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Seed of the random pauses, for tests that repeat. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the client over TCP, on the current tokio runtime.
    ///
    /// # Errors
    /// The settings make no sense. Failures to connect are events.
    pub fn start(mut self) -> Result<Client, Error> {
        let connector = TcpConnector::new(self.tls.take());
        self.start_with(connector)
    }

    /// Starts the client over another connector's streams; a TLS setting is ignored.
    ///
    /// # Errors
    /// The settings make no sense. Failures to connect are events.
    pub fn start_with<C: Connector>(self, connector: C) -> Result<Client, Error> {
        let refuse = |reason: String| Err(Error::Settings { reason });
        if self.addresses.is_empty() && self.discovery.is_none() {
            return refuse("no server address is given".to_owned());
        }
        if self.identity.prefixes.len() > MAX_PREFIXES {
            let given = self.identity.prefixes.len();
            return refuse(format!("{given} key prefixes are given, at most {MAX_PREFIXES} are possible"));
        }
        let texts = [&self.identity.agent, &self.identity.version];
        if let Some(long) = self.identity.prefixes.iter().chain(texts).find(|text| text.len() > MAX_TEXT_BYTES) {
            return refuse(format!("{:.40}… is longer than {MAX_TEXT_BYTES} bytes", *long));
        }
        let bytes: usize = self.identity.prefixes.iter().map(String::len).sum();
        if bytes > MAX_PREFIX_BYTES {
            return refuse(format!("the key prefixes have {bytes} bytes, at most {MAX_PREFIX_BYTES} are possible"));
        }
        let (events, events_out) = mpsc::channel(MAX_EVENTS_WAITING);
        let (errors, errors_out) = mpsc::channel(MAX_ERRORS_WAITING);
        let (applied, applied_out) = watch::channel(Applied::default());
        let cancel = CancellationToken::new();
        let driver = Driver::new(connector, self, events, applied_out, errors_out, cancel.clone());
        let task = tokio::spawn(driver.run());
        Ok(Client { events: events_out, taken: None, applied, handle: Handle { errors }, cancel, task: Some(task) })
    }
}

/// Reports keys that the agent could not apply, from anywhere in it.
#[derive(Clone, Debug)]
pub struct Handle {
    errors: mpsc::Sender<KeyError>,
}

impl Handle {
    /// Reports a key, to be told to the server with the next acknowledgement (native protocol only). Returns false if too many
    /// reports wait already; the report is dropped.
    pub fn report_error(&self, key: Key, reason: impl Into<String>) -> bool {
        self.errors.try_send(KeyError { key, reason: reason.into() }).is_ok()
    }
}

/// Follows a syncer. Dropping it closes the connection.
///
/// Asking for the next event tells that all earlier ones have been applied; servers are told (native protocol only).
pub struct Client {
    events: mpsc::Receiver<Item>,
    /// Where the consumer stands once it has applied the event that it took last.
    taken: Option<Applied>,
    applied: watch::Sender<Applied>,
    handle: Handle,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("applied", &*self.applied.borrow()).finish_non_exhaustive()
    }
}

impl Client {
    /// Settings for a client of the servers at these addresses (`host:port`), which are tried in this order. No address at
    /// all needs a [`ClientBuilder::discovery`].
    pub fn builder<I>(addresses: I) -> ClientBuilder
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        ClientBuilder {
            addresses: addresses.into_iter().map(Into::into).collect(),
            discovery: None,
            identity: Identity {
                agent: "bulrush-client".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                syncer: SyncerType::Felix,
                prefixes: Vec::new(),
                dialect: Release::Master,
            },
            protocol: Protocol::Native { compressions: Compression::ALL.to_vec() },
            timeouts: Timeouts::default(),
            tls: None,
            max_attempts: None,
            seed: None,
        }
    }

    /// The next event. `None`: the client gave up or was closed.
    ///
    /// # Cancel safety
    /// Cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<SyncEvent> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// For reports of keys that could not be applied.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Closes the connection in good manner and waits until that is done.
    pub async fn close(mut self) {
        self.cancel.cancel();
        self.events.close();
        if let Some(task) = self.task.take() {
            // A panic in the task has been reported by its hook; there is nothing left to close.
            let _ = task.await;
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<SyncEvent>> {
        if let Some(applied) = self.taken.take() {
            self.applied.send_replace(applied);
        }
        loop {
            let Some(item) = ready!(self.events.poll_recv(cx)) else { return Poll::Ready(None) };
            match item {
                Item { event: Some(event), applied } => {
                    self.taken = applied;
                    return Poll::Ready(Some(event));
                }
                Item { event: None, applied: Some(applied) } => {
                    self.applied.send_replace(applied);
                }
                Item { event: None, applied: None } => {}
            }
        }
    }
}

impl Stream for Client {
    type Item = SyncEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SyncEvent>> {
        self.poll_event(cx)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

#[cfg(test)]
mod tests;
