//! JSON: one document or several, read with `serde_json`, and the position of a field when it is asked for.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::positions::{Position, steps};
use super::{DUPLICATE_KEY, Document, MAX_DEPTH, MAX_DOCUMENTS, MAX_REMARKS, Malformed, Places};
use crate::model::finding::{Finding, escaped};

/// The documents of a text.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Malformed> {
    let shared: Arc<str> = Arc::from(text);
    let mut documents = Vec::new();
    let mut start = 0;
    loop {
        start += text[start..].bytes().take_while(u8::is_ascii_whitespace).count();
        if start >= text.len() {
            return Ok(documents);
        }
        if documents.len() >= MAX_DOCUMENTS {
            return Err(Malformed {
                position: None,
                reason: format!("the text has more than {MAX_DOCUMENTS} documents"),
            });
        }
        let mut remarks = Vec::new();
        let mut stream = StreamOf { text: &text[start..], consumed: 0 };
        let value = stream.next(&mut remarks).map_err(|error| {
            let ahead = position(text, start);
            let (line, column) = (error.line() as u64, error.column() as u64);
            let column = if line == 1 { ahead.column + column.saturating_sub(1) } else { column };
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
            Malformed {
                position: Some(Position { line: ahead.line + line.saturating_sub(1), column: column.max(1) }),
                reason,
            }
        })?;
        if !value.is_null() {
            documents.push(Document { value, remarks, places: Places::Text(shared.clone(), start) });
        }
        start += stream.consumed;
    }
}

/// The rest of a text with JSON values.
struct StreamOf<'a> {
    text: &'a str,
    consumed: usize,
}

impl StreamOf<'_> {
    fn next(&mut self, remarks: &mut Vec<Finding>) -> Result<Value, serde_json::Error> {
        let mut path = Vec::new();
        // The value's end is found by reading it as raw JSON first: a seed cannot be streamed.
        let mut raw = serde_json::Deserializer::from_str(self.text).into_iter::<serde::de::IgnoredAny>();
        if let Some(ended) = raw.next() {
            ended?;
        }
        self.consumed = raw.byte_offset();
        let mut reader = serde_json::Deserializer::from_str(&self.text[..self.consumed]);
        Strict { path: &mut path, remarks }.deserialize(&mut reader)
    }
}

/// Reads a value, and notes keys that are there twice.
struct Strict<'a> {
    path: &'a mut Vec<String>,
    remarks: &'a mut Vec<Finding>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.path.len() >= MAX_DEPTH {
            return Err(A::Error::custom(format!("the document is nested more than {MAX_DEPTH} deep")));
        }
        let mut list = Vec::new();
        loop {
            self.path.push(list.len().to_string());
            let item = items.next_element_seed(Strict { path: self.path, remarks: self.remarks })?;
            self.path.pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        if self.path.len() >= MAX_DEPTH {
            return Err(A::Error::custom(format!("the document is nested more than {MAX_DEPTH} deep")));
        }
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.path.push(escaped(&key));
            let value = entries.next_value_seed(Strict { path: self.path, remarks: self.remarks })?;
            if map.insert(key, value).is_some() && self.remarks.len() < MAX_REMARKS {
                let fault = "the mapping has this key twice: readers take one or the other";
                self.remarks.push(Finding::of_field(DUPLICATE_KEY, format!("/{}", self.path.join("/")), fault));
            }
            self.path.pop();
        }
        Ok(Value::Object(map))
    }
}

/// The position of a byte.
fn position(text: &str, byte: usize) -> Position {
    let before = &text[..byte];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Position {
        line: before.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1,
        column: before[line_start..].chars().count() as u64 + 1,
    }
}

/// The position of a pointer in the value that begins at a byte. The text is known to be JSON.
pub(super) fn locate(text: &str, start: usize, pointer: &str) -> Position {
    let mut scan = Scan { bytes: text.as_bytes(), at: start };
    let mut found = start;
    for step in steps(pointer) {
        match scan.enter(&step) {
            Some(at) => found = at,
            None => break,
        }
    }
    position(text, found)
}

/// A place in text that is known to be JSON.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blank(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == b',' || byte == b':') {
            self.at += 1;
        }
    }

    /// Goes to the value of a field or item of the value here. Gives the place of its key, or of the item.
    fn enter(&mut self, step: &str) -> Option<usize> {
        self.blank();
        let close = match self.peek()? {
            b'{' => b'}',
            b'[' => b']',
            _ => return None,
        };
        self.at += 1;
        let wanted = step.parse::<usize>().ok();
        let (mut index, mut found) = (0, None);
        loop {
            self.blank();
            let start = self.at;
            if self.peek()? == close {
                break;
            }
            if close == b'}' {
                self.skip();
                let key: String = serde_json::from_slice(&self.bytes[start..self.at]).ok()?;
                self.blank();
                if key == step {
                    // The last of several counts, as it does for the value.
                    found = Some((start, self.at));
                }
            } else if wanted == Some(index) {
                found = Some((start, start));
                break;
            }
            self.skip();
            index += 1;
        }
        let (key, value) = found?;
        self.at = value;
        Some(key)
    }

    /// Goes behind the value here.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.at += 1;
                    while let Some(byte) = self.peek() {
                        self.at += if byte == b'\\' { 2 } else { 1 };
                        if byte == b'"' {
                            break;
                        }
                    }
                    if depth == 0 {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth <= 1 => {
                    // The end of this value, or of the one around it.
                    self.at += depth;
                    return;
                }
                b'}' | b']' => depth -= 1,
                b',' | b':' if depth == 0 => return,
                byte if byte.is_ascii_whitespace() && depth == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }
}
