//! The wire formats of connections.

use std::sync::Arc;

use crate::syncproto::format::WireFormat;
use crate::syncproto::gob_format::{GobPlain, GobSnappy};
use crate::syncproto::native::Compression;
use crate::syncproto::native::format::wire_format;

/// Updates per message of a snapshot. Typha's figure.
const SNAPSHOT_ENTRIES: usize = 1000;

/// Size of a piece of a snapshot, before compression: the smaller, the less a change costs the next snapshot. Snappy
/// works in blocks of 64 KiB and loses nothing by this.
const SNAPSHOT_PIECE_BYTES: usize = 64 << 10;

/// The same for zstd, which compresses larger pieces better: endpoints take 10 % more room in pieces of 64 KiB than in
/// these, and 1 % less in one of 512 KiB.
const ZSTD_PIECE_BYTES: usize = 128 << 10;

/// Protocol and compression of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wire {
    /// Calico's protocol, uncompressed.
    GobPlain,
    /// Calico's protocol in a snappy stream.
    GobSnappy,
    /// Our protocol, uncompressed.
    NativePlain,
    /// Our protocol with snappy.
    NativeSnappy,
    /// Our protocol with zstd.
    NativeZstd,
}

impl From<Compression> for Wire {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::NativePlain,
            Compression::Snappy => Self::NativeSnappy,
            Compression::Zstd => Self::NativeZstd,
        }
    }
}

impl Wire {
    /// The compression of our own protocol; `None` for Calico's.
    pub(crate) fn native(self) -> Option<Compression> {
        match self {
            Self::GobPlain | Self::GobSnappy => None,
            Self::NativePlain => Some(Compression::None),
            Self::NativeSnappy => Some(Compression::Snappy),
            Self::NativeZstd => Some(Compression::Zstd),
        }
    }

    /// The encoder.
    pub(crate) fn format(self) -> Arc<dyn WireFormat> {
        match self {
            Self::GobPlain => Arc::new(GobPlain),
            Self::GobSnappy => Arc::new(GobSnappy),
            Self::NativePlain => wire_format(Compression::None),
            Self::NativeSnappy => wire_format(Compression::Snappy),
            Self::NativeZstd => wire_format(Compression::Zstd),
        }
    }

    /// Short name for logs and status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GobPlain => "gob-plain",
            Self::GobSnappy => "gob-snappy",
            Self::NativePlain => "native-plain",
            Self::NativeSnappy => "native-snappy",
            Self::NativeZstd => "native-zstd",
        }
    }

    /// Updates per message of a snapshot. Typha streams plain ones in small messages.
    pub(crate) fn snapshot_entries(self, max_message_size: usize) -> usize {
        if self == Self::GobPlain { max_message_size.max(1) } else { SNAPSHOT_ENTRIES }
    }

    /// Size of a piece of a snapshot, before compression.
    pub(crate) fn snapshot_piece_bytes(self) -> usize {
        if self == Self::NativeZstd { ZSTD_PIECE_BYTES } else { SNAPSHOT_PIECE_BYTES }
    }

    /// Whether clients follow sequence numbers, so that they must also be told of a part of the history without changes
    /// for them.
    pub(crate) fn is_numbered(self) -> bool {
        self.native().is_some()
    }
}
