//! The names of syncers.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Longest name of a syncer, in bytes. Names are in metric labels, task names and every log line.
pub const MAX_SYNCER_NAME: usize = 63;

/// Names made at run time, each kept once for the life of the process. They come from configuration and arguments,
/// never from clients.
static INTERNED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The name of a syncer, which is a stream of keys and values for agents. Its text appears on the wire, in metric
/// labels and in logs.
///
/// Copied like a number. The valid names are those of the running pipelines; a client of an unknown one is refused by
/// the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncerName(&'static str);

/// A text that cannot name a syncer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a syncer: lower-case letters, digits and - inside, at most {MAX_SYNCER_NAME} of them")]
pub struct BadSyncerName(String);

impl SyncerName {
    /// A name that is known when the program is built. The caller sees to its form.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Whether the text has the form of a name: lower-case letters, digits and `-` inside, at most [`MAX_SYNCER_NAME`] of them.
    #[must_use]
    pub fn has_form(text: &str) -> bool {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let good = (1..=MAX_SYNCER_NAME).contains(&text.len()) && text.bytes().all(inner);
        good && !text.starts_with('-') && !text.ends_with('-')
    }

    /// The name with this text, which is kept for the life of the process. Not for text from the network.
    ///
    /// # Errors
    /// When the text has another form than a name.
    pub fn intern(text: &str) -> Result<Self, BadSyncerName> {
        if !Self::has_form(text) {
            return Err(BadSyncerName(text.chars().take(MAX_SYNCER_NAME).collect()));
        }
        // A panic cannot leave half of a name.
        let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = interned.get(text) {
            return Ok(Self(known));
        }
        let name: &'static str = text.to_owned().leak();
        interned.insert(name);
        Ok(Self(name))
    }

    /// Its text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for SyncerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_same_text_are_the_same() {
        assert_eq!(SyncerName::intern("felix"), Ok(SyncerName::new("felix")));
        let (one, other) = (SyncerName::intern("mesh-2").unwrap(), SyncerName::intern("mesh-2").unwrap());
        assert!(std::ptr::eq(one.as_str(), other.as_str()), "it is kept once");
    }

    #[test]
    fn other_text_is_refused() {
        let long = "x".repeat(MAX_SYNCER_NAME + 1);
        for text in ["", "Felix", "a b", "-a", "a-", "a/b", "é", &long] {
            assert!(SyncerName::intern(text).is_err(), "{text:?}");
        }
    }
}
