//! Go's binary form of a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};

use super::super::messages::GobTime;
use super::error::Error;

/// Seconds from the year 1, Go's epoch, to 1970.
const UNIX_TO_GO: i64 = 62_135_596_800;
/// Zone offset that means UTC.
const UTC: i16 = -1;
/// Bytes of version 1, which has zone offsets in whole minutes; version 2 has one byte more.
const V1_LEN: usize = 15;

impl GobTime {
    /// The time as Go sends it for UTC. Times that Go cannot express (292 billion years away) become the zero time.
    #[must_use]
    pub fn from_system_time(time: SystemTime) -> Self {
        let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
            Ok(since) => (i64::try_from(since.as_secs()).ok(), since.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let whole = i64::try_from(before.as_secs()).ok().map(|seconds| -seconds);
                match before.subsec_nanos() {
                    0 => (whole, 0),
                    part => (whole.and_then(|seconds| seconds.checked_sub(1)), 1_000_000_000 - part),
                }
            }
        };
        let Some(seconds) = seconds.and_then(|seconds| seconds.checked_add(UNIX_TO_GO)) else {
            return Self::default();
        };
        let mut bytes = BytesMut::with_capacity(V1_LEN);
        bytes.put_u8(1);
        bytes.put_i64(seconds);
        bytes.put_u32(nanoseconds);
        bytes.put_i16(UTC);
        Self(bytes.freeze())
    }

    /// The time, or `None` for the zero time and for times that a [`SystemTime`] cannot express.
    #[must_use]
    pub fn to_system_time(&self) -> Option<SystemTime> {
        let seconds = i64::from_be_bytes(self.0.get(1..9)?.try_into().ok()?).checked_sub(UNIX_TO_GO)?;
        let nanoseconds = u32::from_be_bytes(self.0.get(9..13)?.try_into().ok()?);
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) }?;
        second.checked_add(Duration::from_nanos(nanoseconds.into()))
    }

    /// A time from the wire, if it has a form that Go accepts.
    pub(super) fn from_wire(bytes: Bytes) -> Result<Self, Error> {
        match (bytes.first(), bytes.len()) {
            (Some(1), V1_LEN) | (Some(2), 16) => Ok(Self(bytes)),
            (version, length) => Err(Error::Time { version: version.copied().unwrap_or(0), length }),
        }
    }
}
