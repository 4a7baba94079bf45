//! Exit statuses.

use std::io;

pub use crate::config::EXIT_USAGE;

/// A command failed.
pub const EXIT_FAILURE: u8 = 1;

/// The exit status after printing. It is no failure when the reader ends first (`| head`).
pub(super) fn ended(printed: io::Result<()>) -> io::Result<u8> {
    match printed {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(error),
    }
}
