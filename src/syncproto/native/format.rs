//! The wire formats of the native protocol. A feed encodes once for all connections with the same compression.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;

use super::codec::{
    Compression, FrameBuilder, PING, SNAPSHOT_BEGIN, SNAPSHOT_CHUNK, SNAPSHOT_END, STATUS, UPDATES, encode_goodbye,
    frame,
};
use super::payload;
use super::{MAX_SERVER_FRAME_BYTES, MAX_UPDATES_PER_FRAME, TARGET_FRAME_BYTES};
use crate::model::{AsOf, SyncStatus, Update};
use crate::syncproto::format::{SeqRange, WireFormat};
use crate::syncproto::snappy;

/// Smaller payloads are not compressed: a delta of one endpoint would get only some 20 % smaller.
const MIN_COMPRESSED_BYTES: usize = 256;

/// A compressed payload must save at least 1/8, as in snappy's framing, else it is sent uncompressed.
const MIN_SAVING: usize = 8;

/// zstd's own default, near snappy's speed at a much better ratio.
const ZSTD_LEVEL: i32 = 3;

/// Compresses payloads. `None`: compression failed, and the payload is sent uncompressed.
trait Compress: Send + Sync + fmt::Debug + 'static {
    const NAME: &'static str;
    const COMPRESSION: Compression;

    fn compress(&self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()>;
}

/// No compression.
#[derive(Debug, Default)]
pub struct Plain;

impl Compress for Plain {
    const NAME: &'static str = "native-plain";
    const COMPRESSION: Compression = Compression::None;

    fn compress(&self, _payload: &[u8], _frame: &mut Vec<u8>) -> Option<()> {
        None
    }
}

/// A raw snappy block per frame.
#[derive(Debug, Default)]
pub struct Snappy;

impl Compress for Snappy {
    const NAME: &'static str = "native-snappy";
    const COMPRESSION: Compression = Compression::Snappy;

    fn compress(&self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        let packed = snappy::with_encoder(|encoder| encoder.compress_vec(payload)).ok()?;
        frame.extend_from_slice(&packed);
        Some(())
    }
}

/// An independent zstd frame per frame. The compressor is kept: making one costs more than compressing a small payload.
#[derive(Default)]
pub struct Zstd {
    compressor: Mutex<Option<zstd::bulk::Compressor<'static>>>,
}

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("level", &ZSTD_LEVEL).finish_non_exhaustive()
    }
}

impl Compress for Zstd {
    const NAME: &'static str = "native-zstd";
    const COMPRESSION: Compression = Compression::Zstd;

    fn compress(&self, payload: &[u8], frame: &mut Vec<u8>) -> Option<()> {
        // A panic while it was locked does no harm, because each frame resets the compressor.
        let mut slot = self.compressor.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?);
        }
        let packed = slot.as_mut()?.compress(payload).ok()?;
        frame.extend_from_slice(&packed);
        Some(())
    }
}

/// The native protocol with one compression.
#[derive(Debug, Default)]
pub struct Native<C> {
    compress: C,
}

/// The native protocol, uncompressed.
pub type NativePlain = Native<Plain>;
/// The native protocol with snappy.
pub type NativeSnappy = Native<Snappy>;
/// The native protocol with zstd.
pub type NativeZstd = Native<Zstd>;

/// The wire format for a negotiated compression.
#[must_use]
pub fn wire_format(compression: Compression) -> Arc<dyn WireFormat> {
    match compression {
        Compression::None => Arc::new(NativePlain::default()),
        Compression::Snappy => Arc::new(NativeSnappy::default()),
        Compression::Zstd => Arc::new(NativeZstd::default()),
    }
}

#[expect(private_bounds, reason = "there are only these three compressions")]
impl<C: Compress> Native<C> {
    /// Finishes a frame, compressed if that makes it smaller.
    fn seal(&self, frame: FrameBuilder) -> Vec<u8> {
        let payload = frame.payload_bytes();
        if C::COMPRESSION == Compression::None || payload.len() < MIN_COMPRESSED_BYTES {
            return frame.finish();
        }
        let mut packed = FrameBuilder::new(frame.frame_type() | C::COMPRESSION.bits(), payload.len() / 2);
        let worked = self.compress.compress(payload, packed.payload());
        if worked.is_some() && packed.payload_bytes().len() <= payload.len() - payload.len() / MIN_SAVING {
            packed.finish()
        } else {
            frame.finish()
        }
    }

    /// Encodes `updates` as frames of a bounded size. `start` writes the start of each frame's payload; its argument is true for
    /// the last frame. Returns the frames, and their payloads' size before compression.
    fn frames(
        &self,
        frame_type: u8,
        updates: &[Arc<Update>],
        as_new: bool,
        start: impl Fn(&mut Vec<u8>, bool),
    ) -> (Bytes, usize) {
        let (mut out, mut raw) = (Vec::new(), 0);
        let mut left = updates;
        loop {
            let mut bytes = 0;
            let count = left
                .iter()
                .take(MAX_UPDATES_PER_FRAME)
                .take_while(|update| {
                    let room = bytes == 0 || bytes < TARGET_FRAME_BYTES;
                    bytes += payload::update_bytes(update);
                    room
                })
                .count();
            let (now, later) = left.split_at(count);
            left = later;
            let mut frame = FrameBuilder::new(frame_type, bytes + 32);
            start(frame.payload(), left.is_empty());
            payload::put_number(frame.payload(), now.len() as u64);
            for update in now {
                put_bounded(frame.payload(), update, as_new);
            }
            raw += frame.payload_bytes().len();
            let frame = self.seal(frame);
            if left.is_empty() && out.is_empty() {
                return (frame.into(), raw);
            }
            out.extend_from_slice(&frame);
            if left.is_empty() {
                return (out.into(), raw);
            }
        }
    }
}

/// Appends an update, without its value if that is so large that no client would accept the frame.
fn put_bounded(out: &mut Vec<u8>, update: &Update, as_new: bool) {
    let bytes = payload::update_bytes(update);
    if bytes < MAX_SERVER_FRAME_BYTES - 2 * TARGET_FRAME_BYTES {
        payload::put_update(out, update, as_new);
        return;
    }
    tracing::error!(key = %update.key, bytes, "value is too large for the native protocol, clients get it as absent");
    payload::put_update(out, &Update { value: None, ..update.clone() }, as_new);
}

impl<C: Compress> WireFormat for Native<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn prefix(&self) -> Bytes {
        Bytes::new()
    }

    fn snapshot_begin(&self, sequence: u64, entries: usize) -> Bytes {
        frame(SNAPSHOT_BEGIN, 18, |out| {
            payload::put_number(out, sequence);
            payload::put_number(out, entries as u64);
        })
    }

    fn snapshot_chunk(&self, entries: &[Arc<Update>]) -> (Bytes, usize) {
        self.frames(SNAPSHOT_CHUNK, entries, true, |_, _| {})
    }

    fn snapshot_end(&self, sequence: u64, as_of: Option<&AsOf>) -> Bytes {
        frame(SNAPSHOT_END, 48, |out| {
            payload::put_number(out, sequence);
            payload::put_as_of(out, as_of);
        })
    }

    fn updates(&self, range: SeqRange, updates: &[Arc<Update>]) -> Bytes {
        let start = |out: &mut Vec<u8>, last: bool| {
            payload::put_number(out, range.after);
            payload::put_number(out, if last { range.upto } else { range.after });
        };
        self.frames(UPDATES, updates, false, start).0
    }

    fn status(&self, sequence: u64, status: SyncStatus) -> Bytes {
        frame(STATUS, 16, |out| {
            payload::put_number(out, sequence);
            payload::put_status(out, status);
            payload::put_as_of(out, None);
        })
    }

    fn ping(&self, now: SystemTime, as_of: Option<&AsOf>) -> Bytes {
        frame(PING, 48, |out| {
            payload::put_time(out, now);
            payload::put_as_of(out, as_of);
        })
    }

    fn goodbye(&self, reason: &str, alternatives: &[String]) -> Option<Bytes> {
        Some(encode_goodbye(reason, alternatives))
    }
}
