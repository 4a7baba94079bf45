//! CPU profiles in pprof's format, by sampling stacks on a timer signal.

use std::time::Duration;

use pprof::ProfilerGuardBuilder;
use pprof::protos::Message;

/// How long a profile runs when nobody says, as in Go.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(30);
/// Longest profile. The samples of one are held in memory.
pub const MAX_DURATION: Duration = Duration::from_secs(300);
/// Samples per second and processor: close to Go's 100, and odd, so as not to march in step with timers.
const FREQUENCY: i32 = 99;
/// Libraries in which a stack is not taken: unwinding there can wait for a lock that the sampled thread holds.
const NOT_SAMPLED: &[&str] = &["libc", "libgcc", "pthread", "vdso"];

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One is being taken. There is one timer signal per process.
    #[error("a CPU profile is being taken already; try again when it is done")]
    Busy,
    /// The profiler failed.
    #[error("take a CPU profile: {0}")]
    Failed(String),
}

/// Takes a profile of the whole process, gives it as protobuf. At most [`MAX_DURATION`].
///
/// # Errors
/// When a profile is being taken already, or the profiler fails.
///
/// # Cancel safety
/// Dropping the future ends the profile.
pub async fn profile(duration: Duration) -> Result<Vec<u8>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Failed(error.to_string());
    let guard = match ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(NOT_SAMPLED).build() {
        Ok(guard) => guard,
        Err(pprof::Error::Running) => return Err(Error::Busy),
        Err(error) => return Err(failed(&error)),
    };
    tokio::time::sleep(duration.min(MAX_DURATION)).await;
    // Looking symbols up takes seconds for a big program.
    let report = tokio::task::spawn_blocking(move || {
        let profile = guard.report().build().and_then(|report| report.pprof())?;
        Ok::<_, pprof::Error>(profile.encode_to_vec())
    });
    report.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}
