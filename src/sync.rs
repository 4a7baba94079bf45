//! Atomics, locks and wakers for hand-made concurrency.
//!
//! A file that takes these from here, and nothing else from the rest of the program, can be built a second time by
//! `tests/models`, whose own module of this name takes them from loom. That tries every order in which threads can meet.

pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, atomic};

pub(crate) use futures_util::task::AtomicWaker;
pub(crate) use tokio::sync::watch;
