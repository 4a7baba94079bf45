//! The settings of a client, as values.

use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::finder::Finder;
use crate::calico::release::Release;
use crate::calico::syncers::FELIX;
use crate::model::SyncerName;
use crate::syncproto::native::{Compression, MAX_CLIENT_FRAME_BYTES, MAX_PREFIXES, MAX_TEXT_BYTES};

/// Bytes that all key prefixes may have together: the room of a frame beside the other fields of a hello, which take less than a
/// quarter of it.
const MAX_PREFIX_BYTES: usize = MAX_CLIENT_FRAME_BYTES / 4 * 3;

/// The protocol towards servers.
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

/// The client's part of a hello: its name, and the data that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the agent.
    pub agent: String,
    /// Its build version.
    pub version: String,
    /// The syncer to follow.
    pub syncer: SyncerName,
    /// Only keys that start with one of these. Empty: all.
    pub prefixes: Vec<String>,
    /// The release of Calico whose agent it speaks as, in Calico's protocol.
    pub dialect: Release,
}

/// Time-outs.
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

/// All settings except for the streams.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) addresses: Vec<String>,
    pub(super) finder: Option<Arc<dyn Finder>>,
    pub(super) identity: Identity,
    pub(super) protocol: Protocol,
    pub(super) timeouts: Timeouts,
    pub(super) max_attempts: Option<u32>,
    pub(super) seed: Option<u64>,
}

impl Settings {
    /// The defaults, with these addresses.
    pub(super) fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            finder: None,
            identity: Identity {
                agent: "bulrush-client".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                syncer: FELIX,
                prefixes: Vec::new(),
                dialect: Release::Master,
            },
            protocol: Protocol::Native { compressions: Compression::ALL.to_vec() },
            timeouts: Timeouts::default(),
            max_attempts: None,
            seed: None,
        }
    }

    /// Refuses settings that make no sense.
    pub(super) fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Settings { reason });
        if self.addresses.is_empty() && self.finder.is_none() {
            return refuse("no server address is given".to_owned());
        }
        let identity = &self.identity;
        if identity.prefixes.len() > MAX_PREFIXES {
            let given = identity.prefixes.len();
            return refuse(format!("{given} key prefixes are given, at most {MAX_PREFIXES} are possible"));
        }
        let texts = [&identity.agent, &identity.version];
        if let Some(long) = identity.prefixes.iter().chain(texts).find(|text| text.len() > MAX_TEXT_BYTES) {
            return refuse(format!("{:.40}… is longer than {MAX_TEXT_BYTES} bytes", *long));
        }
        let bytes: usize = identity.prefixes.iter().map(String::len).sum();
        if bytes > MAX_PREFIX_BYTES {
            return refuse(format!("the key prefixes have {bytes} bytes, at most {MAX_PREFIX_BYTES} are possible"));
        }
        Ok(())
    }
}
