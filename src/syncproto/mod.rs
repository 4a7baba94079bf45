//! What goes on the wire; no sockets here.

pub mod format;
pub mod messages;
pub mod native;
