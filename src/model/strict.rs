//! Typed reading of JSON, as strict as Kubernetes' own reader where serde is not: an object is an object.
//!
//! serde lets a struct be read from a list of its fields in order, which no API server and no Go program would; here that is
//! a wrong type like any other, at every depth. Errors name the place. Feeds the processors; text stays borrowed.
//!
//! Not followed into enums with content: none of our types is one.

use std::fmt::{self, Write as _};

use serde::Deserialize;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

/// Longest path that an error prints, in bytes: names come from outside and may be absurd.
const MAX_PATH: usize = 256;

/// JSON does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ReadError {
    /// Where, for example `spec.ports[0].port`; `.` for the whole.
    pub path: String,
    /// What is there and what is accepted.
    pub reason: String,
}

/// Reads JSON into a type that may borrow from it.
///
/// # Errors
/// When the text is not JSON or does not fit the type.
pub fn from_slice<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ReadError> {
    read(json, serde_json::Deserializer::from_slice(json))
}

/// [`from_slice`] for what is known to be UTF-8: its strings need not be looked at again one by one.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, ReadError> {
    read(json.as_bytes(), serde_json::Deserializer::from_str(json))
}

fn read<'de, R, T>(json: &[u8], mut reader: serde_json::Deserializer<R>) -> Result<T, ReadError>
where
    R: serde_json::de::Read<'de>,
    T: Deserialize<'de>,
{
    let value = T::deserialize(Strict(&mut reader)).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| ReadError::new(json, &error))
}

/// Reads one field of an object and nothing after it. `Ok(None)`: the object has no such field. The text must be known to
/// be JSON, since its end is not looked at.
///
/// # Errors
/// When the text is no object, or the field does not fit the type.
pub fn field<'de, T: Deserialize<'de>>(json: &'de str, name: &str) -> Result<Option<T>, ReadError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut found = None;
    match reader.deserialize_map(Seek { name, found: &mut found }) {
        // The reader does not like to be left in the middle.
        Err(error) if found.is_none() => Err(ReadError::new(json.as_bytes(), &error)),
        _ => Ok(found),
    }
}

/// A visitor that looks for a field.
struct Seek<'n, 'f, T> {
    name: &'n str,
    found: &'f mut Option<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Seek<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(is_wanted) = entries.next_key_seed(Name(self.name))? {
            if is_wanted {
                *self.found = Some(Strict(entries).next_value()?);
                break;
            }
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Whether a key is this name, without copying it.
struct Name<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

impl ReadError {
    fn new(json: &[u8], error: &serde_json::Error) -> Self {
        Self {
            path: path_at(json, offset(json, error.line(), error.column())),
            reason: without_place(error.to_string()),
        }
    }
}

/// What an error of the JSON reader says, without line and column: objects are one long line, and a path says more.
pub(super) fn without_place(mut text: String) -> String {
    if let Some(place) = text.rfind(" at line ") {
        text.truncate(place);
    }
    text
}

/// How many bytes come before this place.
fn offset(json: &[u8], line: usize, column: usize) -> usize {
    let lines = json.split_inclusive(|byte| *byte == b'\n');
    lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum::<usize>().saturating_add(column)
}

/// The way to the value that ends, or has begun, `end` bytes into the text.
fn path_at(json: &[u8], end: usize) -> String {
    enum Step<'j> {
        Field(Option<&'j [u8]>),
        Item(usize),
    }
    let json = &json[..end.min(json.len())];
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'{' => steps.push(Step::Field(None)),
            b'[' => steps.push(Step::Item(0)),
            b'}' | b']' => drop(steps.pop()),
            b',' => match steps.last_mut() {
                Some(Step::Field(name)) => *name = None,
                Some(Step::Item(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let start = at + 1;
                at = start;
                while at < json.len() && json[at] != b'"' {
                    at += if json[at] == b'\\' { 2 } else { 1 };
                }
                if let Some(Step::Field(name @ None)) = steps.last_mut() {
                    *name = Some(&json[start..at.min(json.len())]);
                }
            }
            _ => {}
        }
        at += 1;
    }
    // Nothing of the list was read: it is about the list itself.
    if json.trim_ascii_end().ends_with(b"[") {
        steps.pop();
    }
    let mut path = String::new();
    for step in &steps {
        let _ = match step {
            Step::Field(None) => Ok(()),
            Step::Field(Some(name)) => {
                let dot = if path.is_empty() { "" } else { "." };
                write!(path, "{dot}{}", String::from_utf8_lossy(&name[..name.len().min(MAX_PATH)]))
            }
            Step::Item(index) => write!(path, "[{index}]"),
        };
        if path.len() > MAX_PATH {
            while path.len() > MAX_PATH {
                path.pop();
            }
            path.push('…');
            break;
        }
    }
    if path.is_empty() { ".".to_owned() } else { path }
}

/// A deserializer, and what it gives to visitors, that refuses lists where structs are asked for.
struct Strict<T>(T);

/// A visitor that sees the same through [`Strict`]. `STRUCT`: it wants a struct.
struct Through<V, const STRUCT: bool>(V);

macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method(Through::<V, false>(visitor))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_unit_struct(name, Through::<V, false>(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Through::<V, false>(visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple(len, Through::<V, false>(visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_tuple_struct(name, len, Through::<V, false>(visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_struct(name, fields, Through::<V, true>(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, Through::<V, false>(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! pass {
    ($($method:ident $ty:ty;)*) => {
        $(fn $method<E: de::Error>(self, value: $ty) -> Result<V::Value, E> {
            self.0.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>, const STRUCT: bool> Visitor<'de> for Through<V, STRUCT> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if STRUCT { f.write_str("an object") } else { self.0.expecting(f) }
    }

    pass! {
        visit_bool bool; visit_i8 i8; visit_i16 i16; visit_i32 i32; visit_i64 i64; visit_i128 i128;
        visit_u8 u8; visit_u16 u16; visit_u32 u32; visit_u64 u64; visit_u128 u128; visit_f32 f32; visit_f64 f64;
        visit_char char; visit_str &str; visit_borrowed_str &'de str; visit_string String;
        visit_bytes &[u8]; visit_borrowed_bytes &'de [u8]; visit_byte_buf Vec<u8>;
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        if STRUCT {
            return Err(de::Error::invalid_type(Unexpected::Seq, &self));
        }
        self.0.visit_seq(Strict(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(data)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Inner {
        port: i32,
        names: Vec<String>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Outer<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
        inner: Inner,
        maybe: Option<Inner>,
        many: Vec<Inner>,
        map: BTreeMap<String, Inner>,
        raw: Option<Box<RawValue>>,
        pair: (u8, u8),
    }

    fn refused(json: &str) -> String {
        from_slice::<Outer<'_>>(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_list_is_not_an_object_at_any_depth() {
        for (json, path) in [
            (r#"["x",[1,[]]]"#, "."),
            (r#"{"text":"x","inner":[80,["a"]]}"#, "inner"),
            (r#"{"maybe":[80]}"#, "maybe"),
            (r#"{"many":[{"port":1},[2]]}"#, "many[1]"),
            (r#"{"map":{"k":[]}}"#, "map.k"),
        ] {
            assert_eq!(refused(json), format!("{path}: invalid type: sequence, expected an object"), "{json}");
        }
    }

    #[test]
    fn what_serde_reads_otherwise_is_read_the_same() {
        let json = r#"{"text":"b\u0061","inner":{"port":1,"names":["a"]},"maybe":null,"many":[{}],"map":{"k":{}},
            "raw":{"any":[1]},"pair":[1,2],"unknown":[[{"deep":[]}]]}"#;
        let outer: Outer<'_> = from_slice(json.as_bytes()).unwrap();
        assert_eq!(outer.text, "ba");
        assert_eq!(outer.inner, Inner { port: 1, names: vec!["a".to_owned()] });
        assert_eq!((outer.maybe, outer.many.len(), outer.map.len(), outer.pair), (None, 1, 1, (1, 2)));
        assert_eq!(outer.raw.unwrap().get(), r#"{"any":[1]}"#);
        assert!(matches!(from_slice::<Outer<'_>>(br#"{"text":"a"}"#).unwrap().text, Cow::Borrowed("a")));
        assert!(from_slice::<Outer<'_>>(b"{} {}").is_err());
    }

    #[test]
    fn errors_name_the_place() {
        for (json, expected) in [
            (r#"{"inner":{"names":["a",7]}}"#, "inner.names[1]: invalid type: integer `7`, expected a string"),
            (r#"{"many":[{"port":"x"}]}"#, "many[0].port: invalid type: string \"x\", expected i32"),
            ("{\n \"inner\": {\n  \"port\": {}\n }\n}", "inner.port: invalid type: map, expected i32"),
            (r#"{"many":7,"text":""}"#, "many: invalid type: integer `7`, expected a sequence"),
            (r#"{"text":"","text":""}"#, "text: duplicate field `text`"),
            ("7", ".: invalid type: integer `7`, expected an object"),
        ] {
            assert_eq!(refused(json), expected, "{json}");
        }
    }

    #[test]
    fn one_field_is_read_and_nothing_after_it() {
        let read = |json: &'static str| field::<Option<Inner>>(json, "inner").map_err(|error| error.to_string());
        let inner = |port| Some(Some(Inner { port, names: Vec::new() }));
        assert_eq!(read(r#"{"other":{"inner":7},"inner":{"port":1},"many":"#), Ok(inner(1)));
        assert_eq!(read(r#"{"i\u006ener":{"port":2}}"#), Ok(inner(2)));
        assert_eq!(read(r#"{"inner":null}"#), Ok(Some(None)));
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read(r#"{"inner":[1]}"#), Err("inner: invalid type: sequence, expected an object".to_owned()));
        assert_eq!(read(r#"{"inner":{"port":{}}}"#), Err("inner.port: invalid type: map, expected i32".to_owned()));
        assert_eq!(read("[]"), Err(".: invalid type: sequence, expected an object".to_owned()));
        assert_eq!(read("7"), Err(".: invalid type: integer `7`, expected an object".to_owned()));
    }

    #[test]
    fn absurd_names_make_no_absurd_errors() {
        let name = "é".repeat(100_000);
        let error = from_slice::<BTreeMap<String, u8>>(format!("{{\"{name}\":\"x\"}}").as_bytes()).unwrap_err();
        assert!(error.path.len() < 2 * MAX_PATH, "{}", error.path.len());
        let deep = "{\"a\":".repeat(200);
        assert!(refused(&deep).len() < 2 * MAX_PATH);
    }

    proptest! {
        #[test]
        fn no_text_panics(json in "[\\[\\]{}:,\"\\\\ a-z0-9\né]{0,40}", line in 0_usize..4, column in 0_usize..50) {
            let _ = from_slice::<Outer<'_>>(json.as_bytes());
            let _ = path_at(json.as_bytes(), offset(json.as_bytes(), line, column));
        }
    }
}
