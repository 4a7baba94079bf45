//! A larger stack for work that calls itself deeply: the parser of CEL takes some 500 kB for each nested bracket of a debug build.

use std::thread;

/// Size of the stack, in bytes: four times what the largest accepted rule takes in a debug build. Only what is used becomes memory.
const STACK: usize = 64 * 1024 * 1024;

/// Does the work on a thread of its own and waits for it.
///
/// # Errors
/// The system gives no thread, or the work panics; the text says which.
pub(super) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("schema".to_owned()).stack_size(STACK).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| format!("there is no thread to compile the schema on: {error}"))?;
        thread.join().map_err(|_| "the compiler of CEL panicked on this schema: please report it".to_owned())
    })
}
