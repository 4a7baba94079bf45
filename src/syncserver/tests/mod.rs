//! The server as its clients see it. Time is paused, pipes are in memory; nothing here waits in real time (except in
//! [`sockets`], where the kernel takes part).

mod client;
mod counted;
mod drain;
mod failures;
mod handshake;
pub(super) mod harness;
mod large;
mod pairing;
mod slow;
mod snapshots;
mod sockets;
mod stream;
mod timers;
mod tls;
