//! CPU profiles in pprof's format, by sampling stacks on a timer signal.

use std::time::Duration;

use pprof::protos::Message;
use pprof::{Frames, ProfilerGuardBuilder, Symbol};

/// Default length of a profile, as in Go.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(30);
/// Longest profile. Its samples are held in memory.
pub const MAX_DURATION: Duration = Duration::from_secs(300);
/// Samples per second and processor: close to Go's 100, and odd, so as not to march in step with timers.
const FREQUENCY: i32 = 99;
/// Libraries in which a stack is not taken: unwinding there can wait for a lock that the sampled thread holds.
const NOT_SAMPLED: &[&str] = &["libc", "libgcc", "pthread", "vdso"];

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another profile is being taken. There is one timer signal per process.
    #[error("a CPU profile is being taken already; try again when it is done")]
    Busy,
    /// The profiler failed.
    #[error("take a CPU profile: {0}")]
    Failed(String),
}

/// Takes a profile of the whole process, for at most [`MAX_DURATION`]. Returns it as protobuf.
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
        let report = guard.report().frames_post_processor(without_profiler).build()?;
        let profile = report.pprof()?;
        Ok::<_, pprof::Error>(profile.encode_to_vec())
    });
    report.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

/// Removes the profiler's own frames, which are the innermost ones, from a stack.
fn without_profiler(stack: &mut Frames) {
    let own = |symbol: &Symbol| {
        let name = symbol.name();
        name.starts_with("backtrace::") || name.contains("pprof::")
    };
    let count = stack.frames.iter().take_while(|frame| frame.iter().any(own)).count();
    stack.frames.drain(..count);
}

/// For tests: there is one profiler per process, and tests run beside each other.
#[cfg(test)]
pub(crate) static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use pprof::protos::Profile;

    use super::*;

    #[inline(never)]
    fn spin_for_the_profile(stop: &AtomicBool) -> u64 {
        let mut count = 0_u64;
        while !stop.load(Relaxed) {
            count = std::hint::black_box(count.wrapping_mul(3) + 1);
        }
        count
    }

    #[tokio::test]
    async fn a_profile_names_who_is_busy_and_not_the_profiler() {
        let _one = ONE_AT_A_TIME.lock().await;
        let stop = Arc::new(AtomicBool::new(false));
        let busy = std::thread::spawn({
            let stop = stop.clone();
            move || spin_for_the_profile(&stop)
        });
        let bytes = profile(Duration::from_secs(1)).await.unwrap();
        stop.store(true, Relaxed);
        busy.join().unwrap();
        let profile = Profile::decode(bytes.as_slice()).unwrap();
        assert!(!profile.sample.is_empty());
        let has = |part: &str| profile.string_table.iter().any(|text| text.contains(part));
        assert!(has("spin_for_the_profile"));
        assert!(!has("trace_unsynchronized"), "the profiler's own frames are left out");
    }
}
