//! Messages and their bytes on the wire. No sockets here.

pub mod format;
pub mod gob;
pub mod gob_format;
pub mod messages;
pub mod native;
pub mod snappy;
#[cfg(test)]
pub(crate) mod vectors_tests;
