//! Gob's integers and floats.
//!
//! An unsigned integer below 128 is one byte; otherwise a byte with the negated number of bytes comes first and the value
//! follows big-endian. Signed integers keep their sign in bit 0. A float is its bits with the bytes in reverse order, as an
//! unsigned integer.

use bytes::{BufMut, BytesMut};

/// The error of a first byte that announces more bytes than an integer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    /// That byte.
    pub(super) first: u8,
}

/// Number of bytes that [`put_uint`] writes for this value.
pub(super) const fn uint_len(value: u64) -> usize {
    if value < 0x80 { 1 } else { 1 + significant_bytes(value) }
}

/// Number of bytes that [`put_int`] writes for this value.
pub(super) const fn int_len(value: i64) -> usize {
    uint_len(fold_sign(value))
}

/// Writes an unsigned integer in its shortest form.
pub(super) fn put_uint(out: &mut BytesMut, value: u64) {
    if value < 0x80 {
        out.put_u8(value.to_le_bytes()[0]);
        return;
    }
    let count = significant_bytes(value);
    out.put_u8(0u8.wrapping_sub(u8::try_from(count).expect("a u64 has at most 8 bytes")));
    out.put_slice(&value.to_be_bytes()[8 - count..]);
}

/// Writes a signed integer in its shortest form.
pub(super) fn put_int(out: &mut BytesMut, value: i64) {
    put_uint(out, fold_sign(value));
}

/// Number of bytes of an integer that begins with this byte.
pub(super) fn announced_len(first: u8) -> Result<usize, Excess> {
    match first {
        0..=0x7f => Ok(1),
        0xf8.. => Ok(1 + usize::from(0u8.wrapping_sub(first))),
        _ => Err(Excess { first }),
    }
}

/// The value of a whole integer of [`announced_len`] bytes.
pub(super) fn uint_value(bytes: &[u8]) -> u64 {
    match bytes {
        [single] => u64::from(*single),
        [_, big_endian @ ..] => big_endian.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        [] => 0,
    }
}

/// The signed value that an unsigned one encodes.
pub(super) const fn unfold_sign(value: u64) -> i64 {
    let magnitude = (value >> 1).cast_signed();
    if value & 1 == 1 { !magnitude } else { magnitude }
}

/// The float that an unsigned integer encodes.
pub(super) const fn float(value: u64) -> f64 {
    f64::from_bits(value.swap_bytes())
}

const fn fold_sign(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn significant_bytes(value: u64) -> usize {
    8 - value.leading_zeros() as usize / 8
}
