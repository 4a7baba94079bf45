//! The seam between the client and a search for servers: addresses that are not given, but found, and change with time.
//!
//! `discovery` (feature `discovery`) searches a Kubernetes service; a user of the library may search in another way.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::Error;

/// The client waits this long for a search's first result before it says that there is none. It goes on waiting.
const FIRST_RESULT: Duration = Duration::from_secs(10);

/// Searches for servers, and goes on searching.
pub trait Finder: fmt::Debug + Send + Sync + 'static {
    /// Starts a search on the current tokio runtime. It ends when cancelled, or when its [`Servers`] are dropped. Random
    /// numbers follow from `seed`.
    fn start(&self, seed: u64, cancel: &CancellationToken) -> Servers;
}

/// The result of a search: addresses in the order to try them, or the reason why there are none.
pub type Found = Result<Vec<String>, String>;

/// The near end of a search that runs.
pub struct Servers {
    service: String,
    found: watch::Receiver<Option<Found>>,
    trouble: Box<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("service", &self.service)
            .field("found", &*self.found.borrow())
            .finish_non_exhaustive()
    }
}

impl Servers {
    /// The servers of `service`, which is a name for people. `found` has the newest result, and `None` before the first one;
    /// `trouble` says why there is no result yet.
    pub fn new(
        service: impl Into<String>,
        found: watch::Receiver<Option<Found>>,
        trouble: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        Self { service: service.into(), found, trouble: Box::new(trouble) }
    }

    /// The service that is searched, for people.
    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// The addresses now; waits for the first result, but not for ever.
    pub(super) async fn addresses(&mut self) -> Result<Vec<String>, Error> {
        // When the time is over or the search has ended, the rest of this function says why.
        let _known = timeout(FIRST_RESULT, self.found.wait_for(Option::is_some)).await.is_ok();
        let found = self.found.borrow_and_update().clone();
        found
            .unwrap_or_else(|| Err((self.trouble)()))
            .map_err(|reason| Error::Discovery { service: self.service.clone(), reason })
    }

    /// Waits until the result is another one.
    pub(super) async fn changed(&mut self) {
        if self.found.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
