//! JSON as Go's `encoding/json` reads and writes it, over serde.
//!
//! Values go to agents byte for byte as Calico's Typha would send them, so processors serialise them with [`to_bytes`].
//! Types see to field order, omitted fields and sorted maps (declaration order, `skip_serializing_if`, `BTreeMap`);
//! escapes and numbers are handled here.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, Write};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter};

use super::strict::{self, ReadError};

/// Exponents below this print in exponent form.
const SMALL: f64 = 1e-6;
/// Absolute values from this on print in exponent form.
const LARGE: f64 = 1e21;

/// Largest vector that a thread keeps for its next value. Nearly all values are smaller.
const MAX_SCRATCH: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The value as Go would write it.
///
/// # Panics
/// When a map has keys that are not text, or a `Serialize` implementation fails: neither exists among our types.
#[must_use]
pub fn to_bytes<T: Serialize + ?Sized>(value: &T) -> Bytes {
    written(|out| write(out, value))
}

/// The bytes that `write` appends to an empty vector. The vector grows once per thread and is used again; the returned
/// bytes have no spare capacity, which would be kept as long as they are, with a further allocation to record it.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    // Taken, not borrowed: `write` may call this function again, and then finds an empty vector.
    let mut out = SCRATCH.take();
    out.clear();
    write(&mut out);
    let bytes = Bytes::copy_from_slice(&out);
    if out.capacity() <= MAX_SCRATCH {
        SCRATCH.set(out);
    }
    bytes
}

/// [`to_bytes`], appended to `out`.
///
/// # Panics
/// As [`to_bytes`].
pub fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let mut serializer = serde_json::Serializer::with_formatter(out, GoFormatter);
    value.serialize(&mut serializer).expect("our values have text keys and a vector takes all bytes");
}

/// The value as text; see [`to_bytes`].
///
/// # Panics
/// As [`to_bytes`].
#[must_use]
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    write(&mut out, value);
    String::from_utf8(out).expect("JSON of text is text")
}

/// Reads JSON exactly as leniently as Go ([`strict`]): bytes that are not UTF-8 and lone surrogate escapes become
/// U+FFFD.
///
/// # Errors
/// When the text is not JSON or does not fit the type.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ReadError> {
    parse_with(body, |text| from_str(text))
}

/// Reads JSON into a type that may borrow from it, with `null` for the zero value of any field, item or entry. The
/// whole may be `null` only where the type is an option.
///
/// # Errors
/// When the text is not JSON or does not fit the type.
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, ReadError> {
    strict::from_str_as_go(json)
}

/// [`parse`] with the caller's reader, which runs a second time, on mended text, when it fails on text with lone
/// surrogates.
///
/// # Errors
/// The error of `read` for the mended text.
pub fn parse_with<T, E>(body: &[u8], mut read: impl FnMut(&str) -> Result<T, E>) -> Result<T, E> {
    let text = mend_utf8(body);
    read(&text).or_else(|error| match mend_surrogates(&text) {
        None => Err(error),
        Some(mended) => read(&mended),
    })
}

/// The same text, with bytes that are not UTF-8 replaced as by Go. Otherwise JSON could not even be split into its
/// parts.
#[must_use]
pub fn utf8(text: &Bytes) -> Bytes {
    match mend_utf8(text) {
        Cow::Borrowed(_) => text.clone(),
        Cow::Owned(mended) => mended.into(),
    }
}

/// Copies JSON text without blanks between tokens and with HTML characters escaped, as Go writes raw messages.
pub fn write_raw(out: &mut Vec<u8>, json: &str) {
    let mut in_string = false;
    let mut escaped = false;
    let mut copied = 0;
    let bytes = json.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
        } else if byte == b'"' {
            in_string = true;
        } else if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            write_fragment(out, &json[copied..at]).expect("a vector takes all bytes");
            copied = at + 1;
        }
    }
    write_fragment(out, &json[copied..]).expect("a vector takes all bytes");
}

/// A float as Go prints it in JSON: shortest form, exponent only for the very small and very large, no `.0`.
#[must_use]
pub fn float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(SMALL..LARGE).contains(&magnitude) {
        let text = format!("{value:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
            _ => text,
        }
    } else {
        format!("{value}")
    }
}

/// Escapes the characters that Go escapes beyond the JSON grammar.
fn write_fragment<W: Write + ?Sized>(out: &mut W, fragment: &str) -> io::Result<()> {
    let bytes = fragment.as_bytes();
    // Nearly all text has none of these; without an early exit, many bytes are compared at once.
    if !bytes.iter().fold(false, |found, byte| found | matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
        return out.write_all(bytes);
    }
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        let (escape, width): (&[u8], usize) = match bytes[at] {
            b'<' => (b"\\u003c", 1),
            b'>' => (b"\\u003e", 1),
            b'&' => (b"\\u0026", 1),
            0xe2 if bytes[at..].starts_with(b"\xe2\x80\xa8") => (b"\\u2028", 3),
            0xe2 if bytes[at..].starts_with(b"\xe2\x80\xa9") => (b"\\u2029", 3),
            _ => {
                at += 1;
                continue;
            }
        };
        out.write_all(&bytes[copied..at])?;
        out.write_all(escape)?;
        at += width;
        copied = at;
    }
    out.write_all(&bytes[copied..])
}

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_fragment(writer, fragment)
    }

    fn write_f64<W: Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn write_raw_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut out = Vec::with_capacity(fragment.len());
        write_raw(&mut out, fragment);
        CompactFormatter.write_raw_fragment(writer, &String::from_utf8_lossy(&out))
    }
}

/// Replaces each byte that is not UTF-8, as Go does.
fn mend_utf8(body: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(body) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(body.len() + 16);
    for chunk in body.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// Replaces each lone surrogate escape, which serde refuses and Go replaces. `None`: the text has none.
fn mend_surrogates(text: &str) -> Option<String> {
    let text = text.as_bytes();
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    while at < text.len() {
        if text[at] != b'\\' {
            at += 1;
            continue;
        }
        match escaped_unit(&text[at..]) {
            Some(0xd800..=0xdbff) if matches!(escaped_unit(&text[at + 6..]), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                out.get_or_insert_with(|| text.to_vec())[at..at + 6].copy_from_slice(b"\\ufffd");
                at += 6;
            }
            _ => at += 2,
        }
    }
    out.map(|out| String::from_utf8(out).expect("ASCII took the place of ASCII"))
}

/// The UTF-16 unit of a `\u` escape with its four digits at the start of `text`.
fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        assert_eq!(
            to_string("<a & b> \u{2028}\u{2029} caf\u{e9} \t\u{8}\u{c}\u{1}\u{7f}\"\\/"),
            "\"\\u003ca \\u0026 b\\u003e \\u2028\\u2029 caf\u{e9} \\t\\b\\f\\u0001\u{7f}\\\"\\\\/\""
        );
    }

    #[test]
    fn floats_print_as_go_prints_them() {
        for (value, text) in [
            (1.0, "1"),
            (-5.25, "-5.25"),
            (0.0, "0"),
            (1e21, "1e+21"),
            (1.5e21, "1.5e+21"),
            (1e20, "100000000000000000000"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e-300, "1e-300"),
            (12.5, "12.5"),
        ] {
            assert_eq!(to_string(&value), text);
        }
    }

    #[test]
    fn raw_json_is_compacted_and_escaped() {
        let mut out = Vec::new();
        write_raw(&mut out, "{ \"f:a b\" : { \"<\\\" x\" : [ 1 ,\n2 ] } }");
        assert_eq!(out, b"{\"f:a b\":{\"\\u003c\\\" x\":[1,2]}}");
    }

    #[test]
    fn broken_text_is_mended() {
        assert_eq!(parse::<String>(b"\"a\xff\xfeb\"").unwrap(), "a\u{fffd}\u{fffd}b");
        assert_eq!(parse::<String>(br#""x\ud800y""#).unwrap(), "x\u{fffd}y");
        assert_eq!(parse::<String>(br#""\udc00\ud83d\ude00""#).unwrap(), "\u{fffd}\u{1f600}");
        assert!(parse::<String>(br#""\\ud800""#).is_ok_and(|text| text == "\\ud800"));
        assert!(parse::<String>(b"7").is_err());
    }

    proptest! {
        #[test]
        fn any_text_survives(text in ".*") {
            let json = to_string(&text);
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            prop_assert!(!json.contains(['<', '>', '&', char::from_u32(0x2028).unwrap()]), "{}", json);
        }

        #[test]
        fn any_float_survives(value in proptest::num::f64::NORMAL) {
            prop_assert_eq!(float(value).parse::<f64>().unwrap().to_bits(), value.to_bits());
        }

        #[test]
        fn mending_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse::<serde_json::Value>(&bytes);
        }
    }
}
