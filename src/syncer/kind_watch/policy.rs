//! Knowledge about kinds that decides how their watches treat absence, handed in from outside.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, pending};

use crate::datastore::Kind;

/// How often to look again for an absent kind that nobody expects. Calico waits 30 minutes, which is felt when the kind is
/// installed.
pub const LOOK_SELDOM: Duration = Duration::from_secs(60);

/// The treatment of kinds that are absent or not permitted.
pub trait KindPolicy: fmt::Debug + Send + Sync + 'static {
    /// How long to wait before an absent kind is looked for again, where the datastore cannot tell when it arrives.
    fn look_again(&self, _kind: &Kind) -> Duration {
        LOOK_SELDOM
    }

    /// Whether the kind is missed where it may not be listed.
    fn judge(&self, _kind: &Kind) -> Judgement {
        Judgement::missed()
    }
}

/// Whether a kind is missed, as things are.
pub struct Judgement {
    /// Why nobody misses it; `None`: it is missed.
    pub spared: Option<String>,
    /// Ends when that is no longer so; never if it stays so. May be dropped at any time.
    pub changed: BoxFuture<'static, ()>,
}

impl Judgement {
    /// The kind is missed, now and later.
    #[must_use]
    pub fn missed() -> Self {
        Self { spared: None, changed: pending().boxed() }
    }
}

impl fmt::Debug for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judgement").field("spared", &self.spared).finish_non_exhaustive()
    }
}

/// All kinds are alike, and missed.
#[derive(Debug)]
pub struct Plain;

impl KindPolicy for Plain {}
