//! Paused time for loops over cases and for properties, in which a test's attribute cannot ask for it.

/// Runs a future to its end on a runtime of its own, in paused time.
pub(crate) fn in_paused_time<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime can be built");
    runtime.block_on(future)
}
