//! The state that driver, lists and watches of one folder share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::{Notify, watch};

use super::config::FileConfig;
use super::folder::Folder;
use super::status::FileStatus;

/// Shared by driver, lists and watches.
pub(super) struct Shared {
    pub(super) config: FileConfig,
    pub(super) folder: Mutex<Folder>,
    pub(super) status: watch::Sender<FileStatus>,
    /// The last look at the folder that found nothing wrong with the content that we have.
    pub(super) vouched: watch::Sender<Option<SystemTime>>,
    pub(super) operator: Notify,
}

impl Shared {
    /// The content of the folder.
    pub(super) fn folder(&self) -> MutexGuard<'_, Folder> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment that the folder is vouched for. To be asked *before* the content that it is used for.
    pub(super) fn vouched_at(&self) -> Option<SystemTime> {
        *self.vouched.borrow()
    }
}
