//! Heap profiles in pprof's format, from jemalloc's sampling.
//!
//! Sampling costs a little on every allocation, so it is on only if the environment of the process has
//! `MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19`. Without it there is an error that says so.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::logging::timestamp;

/// Placeholder for the time in the path of a profile.
const TIMESTAMP: &str = "<timestamp>";

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// jemalloc does not sample.
    #[error(
        "heap profiling is off: start the process with \
         MALLOC_CONF=prof:true,prof_active:true,lg_prof_sample:19 (or _RJEM_MALLOC_CONF) in its environment"
    )]
    Off,
    /// The program was built without jemalloc.
    #[error("this build has no heap profiles: it was made without the feature jemalloc")]
    NotBuilt,
    /// The profile could not be made.
    #[error("take a heap profile: {0}")]
    Failed(String),
    /// The profile could not be written.
    #[error("write heap profile {}: {source}; check DebugMemoryProfilePath", path.display())]
    Write {
        /// Its path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// The profile of the memory that is allocated now, as gzipped protobuf.
///
/// # Errors
/// When sampling is off or not built in, or jemalloc fails.
///
/// # Cancel safety
/// Cancel safe; the work of a dropped call is finished in the background and thrown away.
#[cfg(feature = "jemalloc")]
pub async fn profile() -> Result<Vec<u8>, Error> {
    let control = jemalloc_pprof::PROF_CTL.clone().ok_or(Error::Off)?;
    let mut control = control.lock_owned().await;
    if !control.activated() {
        return Err(Error::Off);
    }
    let dump = tokio::task::spawn_blocking(move || control.dump_pprof());
    let result = dump.await.map_err(|error| Error::Failed(error.to_string()))?;
    result.map_err(|error| Error::Failed(format!("{error:#}")))
}

/// The error of a build without jemalloc, which has no profiles.
///
/// # Errors
/// Always.
#[cfg(not(feature = "jemalloc"))]
pub async fn profile() -> Result<Vec<u8>, Error> {
    Err(Error::NotBuilt)
}

/// Takes a profile and writes it to `path`, in which `<timestamp>` becomes `now`. Returns the file's path.
///
/// # Errors
/// When there is no profile, or the file cannot be written.
///
/// # Cancel safety
/// May be dropped at any time; the file may then be missing or incomplete.
pub async fn write(path: &Path, now: SystemTime) -> Result<PathBuf, Error> {
    let path = with_time(path, now);
    let profile = profile().await?;
    match tokio::fs::write(&path, profile).await {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::Write { path, source }),
    }
}

/// The path with `<timestamp>` replaced, once, by the time in UTC.
fn with_time(path: &Path, now: SystemTime) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains(TIMESTAMP) => {
            let time = timestamp(now, '-');
            let seconds = time.split('.').next().unwrap_or_default();
            PathBuf::from(text.replacen(TIMESTAMP, seconds, 1))
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_time_goes_into_the_path_once() {
        let now = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let path = with_time(Path::new("/p/<timestamp>-<timestamp>.pb.gz"), now);
        assert_eq!(path, Path::new("/p/2023-11-14-22:13:20-<timestamp>.pb.gz"));
        assert_eq!(with_time(Path::new("/p/heap"), now), Path::new("/p/heap"));
    }
}
