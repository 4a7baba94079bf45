//! The server as its clients see it. Time is paused, pipes are in memory; nothing here waits for real.

mod drain;
mod handshake;
mod harness;
mod pairing;
mod slow;
mod stream;
mod timers;
