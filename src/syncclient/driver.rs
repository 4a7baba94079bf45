//! The task behind a client: connects, feeds a session, passes events on, comes back when the connection is lost.
//!
//! All decisions are made elsewhere ([`super::session`], [`super::tracker`], [`super::rotation`]); this owns stream, clock and
//! channels.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connector::Connector;
use super::error::Error;
use super::event::{ServerInfo, SyncEvent};
use super::finder::Servers;
use super::rotation::Rotation;
use super::session::calico::CalicoSession;
use super::session::native::NativeSession;
use super::session::{Incoming, Session};
use super::settings::{Protocol, Settings};
use super::tracker::{Output, Tracker};
use crate::syncproto::native::KeyError;
use crate::tls::{Purpose, stream_error};

/// Time between two acknowledgements, while there is something to acknowledge.
const ACK_INTERVAL: Duration = Duration::from_secs(1);

/// Room for one read. A chunk of a compressed snapshot fits.
const READ_BYTES: usize = 64 << 10;

/// Longest time for a close with a goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time to read a server's last words when writing to it has failed. They are here already, or never come.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// The step that fails when the server has closed its end.
const WRITING: &str = "write to server";

/// The likely causes when a server closes before its hello.
const CLOSED_EARLY: &str =
    " before its hello: it may not speak this protocol, want TLS, or refuse this syncer; its log says why";

/// A consumer's position, and the connection that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    connection: u64,
    seq: u64,
}

/// A message to the consumer: an event, and the consumer's position once it has applied it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) event: Option<SyncEvent>,
    pub(super) applied: Option<Applied>,
}

/// See the module.
pub(super) struct Driver<C> {
    connector: C,
    settings: Settings,
    events: mpsc::Sender<Item>,
    applied: watch::Receiver<Applied>,
    errors: mpsc::Receiver<KeyError>,
    cancel: CancellationToken,
    tracker: Tracker,
    rotation: Rotation,
    /// The source of addresses that are not given.
    servers: Option<Servers>,
    /// Whether it had no address at the last look.
    none_found: bool,
    connection: u64,
}

/// A connection's own state.
struct Connection<S> {
    stream: S,
    session: Box<dyn Session>,
    address: String,
    /// The time at which the server took the client.
    since: Option<Instant>,
    /// The sequence number of the last acknowledgement.
    acknowledged: u64,
}

impl<C: Connector> Driver<C> {
    pub(super) fn new(
        connector: C,
        mut settings: Settings,
        events: mpsc::Sender<Item>,
        applied: watch::Receiver<Applied>,
        errors: mpsc::Receiver<KeyError>,
        cancel: CancellationToken,
    ) -> Self {
        let seed = settings.seed.unwrap_or_else(rand::random);
        // Given addresses count more than those of a search.
        let finder = settings.finder.take().filter(|_| settings.addresses.is_empty());
        let servers = finder.map(|finder| finder.start(seed, &cancel));
        let rotation = Rotation::new(std::mem::take(&mut settings.addresses), seed);
        Self {
            connector,
            settings,
            events,
            applied,
            errors,
            cancel,
            tracker: Tracker::default(),
            rotation,
            servers,
            none_found: false,
            connection: 0,
        }
    }

    /// Runs until cancelled, until the consumer is gone, or until it gives up.
    pub(super) async fn run(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            let cancel = self.cancel.clone();
            let picked = tokio::select! {
                () = cancel.cancelled() => return,
                picked = self.next_address(pause) => picked,
            };
            let (address, reason, held) = match picked {
                Err((nowhere, error)) => (nowhere, error, None),
                Ok(address) => {
                    let (reason, held) = tokio::select! {
                        () = cancel.cancelled() => return,
                        connected = self.connect(&address) => match connected {
                            Err(error) => (error, None),
                            Ok(stream) => self.serve(stream, &address).await,
                        },
                    };
                    (address, reason, held)
                }
            };
            if reason == Error::Stopped {
                return;
            }
            pause = match (held, &reason) {
                (Some(held), Error::Goodbye { alternatives, .. }) => self.rotation.on_lost(held, alternatives.clone()),
                (None, Error::Refused { alternatives, .. }) => {
                    self.rotation.on_lost(Duration::ZERO, alternatives.clone())
                }
                (Some(held), _) => self.rotation.on_lost(held, Vec::new()),
                (None, _) => self.rotation.on_failed(),
            };
            let give_up = self.settings.max_attempts.is_some_and(|max| self.rotation.failures() >= max);
            let retry_in = (!give_up).then_some(pause);
            tracing::debug!(%address, %reason, ?retry_in, "not connected");
            let event = SyncEvent::Disconnected { address, reason, retry_in };
            if self.emit(event, None).await.is_err() || give_up {
                return;
            }
            if held.is_some() {
                let outputs = self.tracker.on_disconnected();
                if self.emit_all(outputs, None).await.is_err() {
                    return;
                }
            }
        }
    }

    /// The address for the next try, after a pause; or the reason why there is none, and the place of the search. If none was
    /// found before, a new one ends the pause.
    ///
    /// # Cancel safety
    /// A cancelled call has picked nothing.
    async fn next_address(&mut self, pause: Duration) -> Result<String, (String, Error)> {
        let pausing = tokio::time::sleep(pause);
        let Some(servers) = &mut self.servers else {
            pausing.await;
            let nothing = || ("no address".to_owned(), Error::Connect { reason: "no address is given".to_owned() });
            return self.rotation.pick().ok_or_else(nothing);
        };
        if self.none_found {
            tokio::select! {
                () = pausing => {}
                () = servers.changed() => {}
            }
        } else {
            pausing.await;
        }
        let problem = match servers.addresses().await {
            Ok(addresses) => {
                self.rotation.set_addresses(addresses);
                None
            }
            Err(error) => Some(error),
        };
        self.none_found = problem.is_some();
        // A server that a goodbye named counts even when nothing is found now; so do the servers that were found before.
        let nowhere = || {
            let error = problem.unwrap_or(Error::Connect { reason: "no address was found".to_owned() });
            (format!("service {}", servers.service()), error)
        };
        self.rotation.pick().ok_or_else(nowhere)
    }

    async fn connect(&self, address: &str) -> Result<C::Stream, Error> {
        match timeout(self.settings.timeouts.connect, self.connector.connect(address)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(Error::Connect { reason: error.to_string() }),
            Err(_) => Err(Error::Timeout { doing: "connect", after: self.settings.timeouts.connect }),
        }
    }

    /// Serves a connection to its end. Returns the reason of the end, and the time since the server's hello.
    async fn serve(&mut self, stream: C::Stream, address: &str) -> (Error, Option<Duration>) {
        self.connection += 1;
        let conn_id = rand::random();
        let session: Box<dyn Session> = match &self.settings.protocol {
            Protocol::Native { compressions } => {
                Box::new(NativeSession::new(self.settings.identity.clone(), compressions.clone(), conn_id))
            }
            Protocol::Calico { compression } => {
                Box::new(CalicoSession::new(self.settings.identity.clone(), *compression, conn_id))
            }
        };
        let mut connection = Connection { stream, session, address: address.to_owned(), since: None, acknowledged: 0 };
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let Err(reason) = self.converse(&mut connection, &mut input).await;
        let reason = match reason {
            Error::Io { doing: WRITING, .. } => last_words(&mut connection, &mut input).await.unwrap_or(reason),
            reason => reason,
        };
        if reason == Error::Stopped {
            let mut out = BytesMut::new();
            connection.session.goodbye("client stops", &mut out);
            // Whether the goodbye arrives changes nothing: the close behind it says the same.
            let _ = timeout(CLOSE_TIMEOUT, async {
                connection.stream.write_all(&out).await?;
                connection.stream.shutdown().await
            })
            .await;
        }
        (reason, connection.since.map(|since| since.elapsed()))
    }

    async fn converse(
        &mut self,
        connection: &mut Connection<C::Stream>,
        input: &mut BytesMut,
    ) -> Result<std::convert::Infallible, Error> {
        let mut out = BytesMut::new();
        connection.session.start(&mut out);
        self.send(&mut connection.stream, &mut out).await?;
        let cancel = self.cancel.clone();
        let mut acks = tokio::time::interval(ACK_INTERVAL);
        acks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deadline = Instant::now() + self.settings.timeouts.read;
        loop {
            input.reserve(READ_BYTES);
            let read = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Error::Stopped),
                // Before the read, which may be ready always; the tick is so once a second.
                _ = acks.tick() => {
                    self.acknowledge(connection, &mut out);
                    self.send(&mut connection.stream, &mut out).await?;
                    continue;
                }
                read = timeout_at(deadline, connection.stream.read_buf(input)) => read,
            };
            match read {
                Err(_) => return Err(Error::Timeout { doing: "read from server", after: self.settings.timeouts.read }),
                Ok(Err(error)) => {
                    return Err(Error::Io { doing: "read from server", reason: stream_error(&error, Purpose::Server) });
                }
                Ok(Ok(0)) => {
                    let hint = if connection.since.is_none() { CLOSED_EARLY } else { "" };
                    return Err(Error::Closed { hint });
                }
                Ok(Ok(_)) => {}
            }
            while let Some(incoming) = connection.session.on_input(input, &mut out)? {
                self.send(&mut connection.stream, &mut out).await?;
                self.on_incoming(incoming, connection).await?;
                // Counted from here: the time that a slow consumer takes is not the server's.
                deadline = Instant::now() + self.settings.timeouts.read;
            }
            self.send(&mut connection.stream, &mut out).await?;
        }
    }

    async fn on_incoming(&mut self, incoming: Incoming, connection: &mut Connection<C::Stream>) -> Result<(), Error> {
        match incoming {
            Incoming::Hello(server) => self.on_hello(server, connection).await,
            Incoming::Updates(mut updates, seq) => {
                if !self.settings.identity.prefixes.is_empty() {
                    let prefixes = &self.settings.identity.prefixes;
                    updates.retain(|update| prefixes.iter().any(|prefix| update.key.starts_with(prefix.as_str())));
                }
                let applied = seq.map(|seq| Applied { connection: self.connection, seq });
                let outputs = self.tracker.on_updates(updates);
                self.emit_all(outputs, applied).await
            }
            Incoming::Status(status) => {
                let outputs = self.tracker.on_status(status);
                self.emit_all(outputs, None).await
            }
            Incoming::Progress { as_of, seq } => {
                let applied = seq.map(|seq| Applied { connection: self.connection, seq });
                match as_of {
                    Some(as_of) => self.emit(SyncEvent::Progress(as_of), applied).await,
                    None => self.emit_all(Vec::new(), applied).await,
                }
            }
            Incoming::Goodbye(goodbye) => {
                Err(Error::Goodbye { reason: goodbye.reason, alternatives: goodbye.alternatives })
            }
        }
    }

    async fn on_hello(&mut self, server: ServerInfo, connection: &mut Connection<C::Stream>) -> Result<(), Error> {
        connection.since = Some(Instant::now());
        self.emit(SyncEvent::Connected { address: connection.address.clone(), server }, None).await?;
        let outputs = self.tracker.on_connected();
        self.emit_all(outputs, None).await
    }

    /// Appends an acknowledgement if there is something to acknowledge.
    fn acknowledge(&mut self, connection: &mut Connection<C::Stream>, out: &mut BytesMut) {
        if connection.since.is_none() {
            return;
        }
        let applied = *self.applied.borrow_and_update();
        let seq = if applied.connection == self.connection { applied.seq } else { 0 };
        let errors: Vec<KeyError> = std::iter::from_fn(|| self.errors.try_recv().ok()).collect();
        if seq > connection.acknowledged || !errors.is_empty() {
            connection.session.acknowledge(seq, errors, out);
            connection.acknowledged = seq;
        }
    }

    /// Sends and clears `out`.
    async fn send(&self, stream: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        let write = async {
            stream.write_all(out).await?;
            stream.flush().await
        };
        match timeout(self.settings.timeouts.write, write).await {
            Ok(Ok(())) => {
                out.clear();
                Ok(())
            }
            Ok(Err(error)) => Err(Error::Io { doing: WRITING, reason: stream_error(&error, Purpose::Server) }),
            Err(_) => Err(Error::Timeout { doing: WRITING, after: self.settings.timeouts.write }),
        }
    }

    /// Passes outputs on; the position counts once the last of them is applied.
    async fn emit_all(&mut self, outputs: Vec<Output>, applied: Option<Applied>) -> Result<(), Error> {
        if outputs.is_empty() && applied.is_some() {
            // Only the position moved. If there is no room, a later one will say so, too.
            let _ = self.events.try_send(Item { event: None, applied });
            return Ok(());
        }
        let last = outputs.len().saturating_sub(1);
        for (index, output) in outputs.into_iter().enumerate() {
            let event = match output {
                Output::Updates(updates) => SyncEvent::Updates(updates),
                Output::Status(status) => SyncEvent::Status(status),
            };
            self.emit(event, applied.filter(|_| index == last)).await?;
        }
        Ok(())
    }

    async fn emit(&self, event: SyncEvent, applied: Option<Applied>) -> Result<(), Error> {
        let cancel = &self.cancel;
        tokio::select! {
            () = cancel.cancelled() => Err(Error::Stopped),
            sent = self.events.send(Item { event: Some(event), applied }) => sent.map_err(|_| Error::Stopped),
        }
    }
}

/// The goodbye of a server that has closed its end, if it said one: bytes that it sent before can still be read when writing fails.
async fn last_words<S: AsyncRead + Unpin>(connection: &mut Connection<S>, input: &mut BytesMut) -> Option<Error> {
    let mut unsent = BytesMut::new();
    let reading = async {
        loop {
            while let Some(incoming) = connection.session.on_input(input, &mut unsent).ok()? {
                if let Incoming::Goodbye(goodbye) = incoming {
                    return Some(Error::Goodbye { reason: goodbye.reason, alternatives: goodbye.alternatives });
                }
            }
            if connection.stream.read_buf(input).await.ok()? == 0 {
                return None;
            }
        }
    };
    timeout(LAST_WORDS, reading).await.ok()?
}
