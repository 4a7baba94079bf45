//! Calico's wire: Go's gob encoding of the messages of [`super::messages`].
//!
//! [`Decoder`] takes the bytes of one direction as they arrive and gives envelopes. It assumes nothing about type ids, and
//! stays within its [`Limits`] on any input. [`encode()`] and [`encode_updates`] write values with the
//! fixed type ids of [`server_prefix`] and [`client_prefix`], so that the bytes of a message do not depend on a connection
//! and can be shared. The server, the client and the wire formats use both. No I/O happens here.
//!
//! | file | duty |
//! |---|---|
//! | `number` | integers, the basic parts of all values |
//! | `reader` | a cursor over the frames of one message |
//! | `schema` | the structs we know: names, fields, the ids that we send |
//! | `types` | the definitions that a peer has sent, and their comparison with ours |
//! | `decode`, `revision`, `skip` | values: messages, revisions, unknown fields |
//! | `decoder` | frames in, envelopes out |
//! | `define`, `encode`, `time` | encoding |

mod decode;
mod decoder;
mod define;
mod encode;
mod error;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod limits;
mod number;
mod reader;
mod revision;
mod schema;
mod skip;
mod time;
mod types;

#[cfg(test)]
mod tests;

pub use decoder::{Decoder, Envelope};
pub use define::{client_prefix, server_prefix};
pub use encode::{encode, encode_updates};
pub use error::{Error, ErrorClass};
pub use limits::{Limits, MAX_CLIENT_MESSAGE_BYTES, MAX_HELLO_BYTES};
