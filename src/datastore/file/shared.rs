//! The state that driver, lists and watches of one folder share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::{Notify, watch};

use super::config::FileConfig;
use super::folder::Folder;
use super::status::FileStatus;
use crate::datastore::pattern::Pattern;

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

    /// Somebody asks for these kinds from now on: the status may name objects that are not among them.
    pub(super) fn ask(&self, patterns: &[Pattern]) {
        let mut folder = self.folder();
        folder.ask(patterns);
        self.publish(folder.status());
    }

    /// Publishes a status, if it is another one. To be called with the folder locked that it is of: then the last one is the newest.
    pub(super) fn publish(&self, status: FileStatus) {
        self.status.send_if_modified(|current| {
            let modified = *current != status;
            *current = status;
            modified
        });
    }

    /// The moment that the folder is vouched for. To be asked *before* the content that it is used for.
    pub(super) fn vouched_at(&self) -> Option<SystemTime> {
        *self.vouched.borrow()
    }
}
