//! Settings into a running client.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::connector::{Connector, TcpConnector};
use super::driver::{Applied, Driver};
use super::error::Error;
use super::finder::Finder;
use super::settings::{Protocol, Settings, Timeouts};
use crate::calico::release::Release;
use crate::model::SyncerName;
use crate::tls::ClientTls;

/// Events that wait for the consumer. A message of a server is one event, so this is some ten thousand updates at most
/// with the usual batches; more would only hide a consumer that is too slow.
const MAX_EVENTS_WAITING: usize = 32;

/// Key errors that wait to be sent. With more of them the consumer is broken, and the first errors say why.
const MAX_ERRORS_WAITING: usize = 1024;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    settings: Settings,
    tls: Option<ClientTls>,
}

impl Client {
    /// Settings for a client of the servers at these addresses (`host:port`), which are tried in this order. No address at
    /// all needs a [`ClientBuilder::finder`].
    pub fn builder<I>(addresses: I) -> ClientBuilder
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        ClientBuilder { settings: Settings::new(addresses.into_iter().map(Into::into).collect()), tls: None }
    }
}

impl ClientBuilder {
    /// The agent's name, for the server's logs and status. Default: `bulrush-client`.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.settings.identity.agent = name.into();
        self
    }

    /// The agent's build version. Default: that of this library.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.settings.identity.version = version.into();
        self
    }

    /// The release of Calico whose agent it speaks as, in Calico's protocol: a Bulrush then answers as to that release's agents. Typhas
    /// since 3.32 refuse those of older ones. Default: the newest.
    #[must_use]
    pub fn dialect(mut self, line: Release) -> Self {
        self.settings.identity.dialect = line;
        self
    }

    /// The syncer to follow. Default: felix.
    #[must_use]
    pub fn syncer(mut self, syncer: SyncerName) -> Self {
        self.settings.identity.syncer = syncer;
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
        self.settings.identity.prefixes = prefixes.into_iter().map(Into::into).collect();
        self
    }

    /// The protocol to speak. Default: the native one, with zstd, snappy or none.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.settings.protocol = protocol;
        self
    }

    /// Time-outs.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.settings.timeouts = timeouts;
        self
    }

    /// Speaks TLS. Default: plain TCP.
    #[must_use]
    pub fn tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Searches for servers, if no addresses are given.
    #[must_use]
    pub fn finder(mut self, finder: impl Finder) -> Self {
        self.settings.finder = Some(Arc::new(finder));
        self
    }

    /// Gives up after this many failed tries in a row. Default: never.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = Some(attempts.max(1));
        self
    }

    /// Seed of the random pauses, for tests that repeat. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
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
        self.settings.check()?;
        let (events, events_out) = mpsc::channel(MAX_EVENTS_WAITING);
        let (errors, errors_out) = mpsc::channel(MAX_ERRORS_WAITING);
        let (applied, applied_out) = watch::channel(Applied::default());
        let cancel = CancellationToken::new();
        let driver = Driver::new(connector, self.settings, events, applied_out, errors_out, cancel.clone());
        let task = tokio::spawn(driver.run());
        Ok(Client::new(events_out, applied, errors, cancel, task))
    }
}
