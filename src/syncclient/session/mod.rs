//! One connection's protocol without its socket: bytes in, messages and answers out.
//!
//! The driver owns stream and time-outs; a [`Session`] makes the bytes to send, and reads those that arrive. A session lives as
//! long as its connection.

pub mod calico;
pub mod native;
mod seam;

use seam::protocol;
pub use seam::{Incoming, Session};
