//! Typed reading of JSON, as strict as Kubernetes' own reader: only an object is read as a struct.
//!
//! serde also reads a struct from a list of its fields in order, which no API server and no Go program does; here a
//! list is a wrong type, at every depth. Errors name the place. Text stays borrowed.
//!
//! The rules do not reach into enums with content: none of our types is one.

use std::fmt::{self, Write as _};
use std::iter;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

/// Longest path that an error prints, in bytes: names come from outside and may be absurd.
const MAX_PATH: usize = 256;

/// JSON does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ReadError {
    /// The place, for example `spec.ports[0].port`; `.` for the whole.
    pub path: String,
    /// The found value and the accepted ones.
    pub reason: String,
}

/// Reads JSON into a type that may borrow from it.
///
/// # Errors
/// When the text is not JSON or does not fit the type.
pub fn from_slice<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ReadError> {
    read(json, serde_json::Deserializer::from_slice(json), PhantomData, Nulls::Refused)
}

/// [`from_slice`] for text known to be UTF-8: its strings need not be checked again one by one.
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, ReadError> {
    seeded(json, PhantomData)
}

/// [`from_str`] with a seed.
///
/// # Errors
/// As [`from_slice`].
pub fn seeded<'de, S: DeserializeSeed<'de>>(json: &'de str, seed: S) -> Result<S::Value, ReadError> {
    read(json.as_bytes(), serde_json::Deserializer::from_str(json), seed, Nulls::Refused)
}

/// [`from_str`], with `null` for the zero value of any type below the top: of fields, items and entries.
pub(super) fn from_str_as_go<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, ReadError> {
    let nulls = if json.trim_ascii() == "null" { Nulls::Refused } else { Nulls::Zero };
    read(json.as_bytes(), serde_json::Deserializer::from_str(json), PhantomData, nulls)
}

fn read<'de, R, S>(
    json: &[u8],
    mut reader: serde_json::Deserializer<R>,
    inner: S,
    nulls: Nulls,
) -> Result<S::Value, ReadError>
where
    R: serde_json::de::Read<'de>,
    S: DeserializeSeed<'de>,
{
    let value = Strict { inner, nulls }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| ReadError::new(json, &error))
}

/// Reads one field of an object and nothing after it. `Ok(None)`: the object has no such field. The text must be known
/// to be JSON, since its end is not read.
///
/// # Errors
/// When the text is no object, or the field does not fit the type.
pub fn field<'de, T: Deserialize<'de>>(json: &'de str, name: &str) -> Result<Option<T>, ReadError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let mut found = None;
    match reader.deserialize_map(Seek { name, found: &mut found }) {
        // Stopping after the field is an error to the reader.
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
                *self.found = Some(Strict { inner: entries, nulls: Nulls::Refused }.next_value()?);
                break;
            }
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Compares a key with this name, without copying it.
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

/// An error of the JSON reader without line and column: objects are one long line, and a path tells more.
fn without_place(mut text: String) -> String {
    if let Some(place) = text.rfind(" at line ") {
        text.truncate(place);
    }
    text
}

/// Number of bytes before this place.
fn offset(json: &[u8], line: usize, column: usize) -> usize {
    let lines = json.split_inclusive(|byte| *byte == b'\n');
    lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum::<usize>().saturating_add(column)
}

/// The path to the value that ends, or has begun, `end` bytes into the text.
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
    // No item was read: the error is about the list itself.
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

/// The meaning of `null` for types other than options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// A wrong type.
    Refused,
    /// The zero value of the type, as in Go.
    Zero,
}

/// The types that visitors ask for, as far as the rules depend on them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Bool,
    Number,
    Text,
    List,
    Map,
    Struct,
}

/// A deserializer, list, map or seed to which the rules of this module apply, at every depth.
struct Strict<T> {
    inner: T,
    nulls: Nulls,
}

/// A visitor behind [`Strict`].
struct Through<V> {
    visitor: V,
    wanted: Wanted,
    nulls: Nulls,
}

impl<T> Strict<T> {
    fn through<V>(&self, visitor: V, wanted: Wanted) -> Through<V> {
        Through { visitor, wanted, nulls: self.nulls }
    }
}

/// JSON tells the type of a value itself, so all of these read any value, and the visitor judges it.
macro_rules! any {
    ($($method:ident $wanted:ident;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let through = self.through(visitor, Wanted::$wanted);
            self.inner.deserialize_any(through)
        })*
    };
}

/// Passes a call on unchanged.
macro_rules! forward {
    ($($method:ident($($argument:ident: $ty:ty),*);)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $ty,)* visitor: V) -> Result<V::Value, D::Error> {
            let through = self.through(visitor, Wanted::Any);
            self.inner.$method($($argument,)* through)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    any! {
        deserialize_any Any; deserialize_bool Bool;
        deserialize_i8 Number; deserialize_i16 Number; deserialize_i32 Number; deserialize_i64 Number;
        deserialize_u8 Number; deserialize_u16 Number; deserialize_u32 Number; deserialize_u64 Number;
        deserialize_f32 Number; deserialize_f64 Number;
        deserialize_str Text; deserialize_string Text; deserialize_seq List; deserialize_map Map;
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }

    forward! {
        deserialize_option();
        deserialize_ignored_any();
        deserialize_newtype_struct(name: &'static str);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let through = self.through(visitor, Wanted::Struct);
        self.inner.deserialize_any(through)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Passes a value to the visitor, unless the visitor wants a struct.
macro_rules! show {
    ($($method:ident $ty:ty, $unexpected:ident;)*) => {
        $(fn $method<E: de::Error>(self, value: $ty) -> Result<V::Value, E> {
            match self.wanted {
                Wanted::Struct => Err(E::invalid_type(Unexpected::$unexpected(value), &self)),
                _ => self.visitor.$method(value),
            }
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Through<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wanted == Wanted::Struct { f.write_str("an object") } else { self.visitor.expecting(f) }
    }

    show! {
        visit_bool bool, Bool; visit_i64 i64, Signed; visit_u64 u64, Unsigned; visit_f64 f64, Float;
        visit_str &str, Str; visit_borrowed_str &'de str, Str;
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        let zero = if self.nulls == Nulls::Zero { self.wanted } else { Wanted::Any };
        match zero {
            Wanted::Any if self.wanted == Wanted::Struct => Err(E::invalid_type(Unexpected::Unit, &self)),
            Wanted::Any => self.visitor.visit_unit(),
            Wanted::Bool => self.visitor.visit_bool(false),
            Wanted::Number => self.visitor.visit_u64(0),
            Wanted::Text => self.visitor.visit_borrowed_str(""),
            Wanted::List => self.visitor.visit_seq(SeqDeserializer::new(iter::empty::<()>())),
            Wanted::Map | Wanted::Struct => self.visitor.visit_map(MapDeserializer::new(iter::empty::<((), ())>())),
        }
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict { inner, nulls: self.nulls })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict { inner, nulls: self.nulls })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        match self.wanted {
            Wanted::Struct => Err(de::Error::invalid_type(Unexpected::Seq, &self)),
            _ => self.visitor.visit_seq(Strict { inner, nulls: self.nulls }),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Strict { inner, nulls: self.nulls })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(data)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Strict { inner, nulls: self.nulls })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(Strict { inner, nulls: self.nulls })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, inner: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Strict { inner, nulls: self.nulls })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
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
    fn all_else_is_read_as_by_serde() {
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
    fn null_is_the_zero_value_below_the_top_for_go_alone() {
        let json = r#"{"text":null,"inner":{"port":null,"names":["a",null]},"maybe":null,"many":[null],"map":{"k":null},"raw":null}"#;
        let outer: Outer<'_> = from_str_as_go(json).unwrap();
        assert!(matches!(outer.text, Cow::Borrowed("")));
        assert_eq!(outer.inner, Inner { port: 0, names: vec!["a".to_owned(), String::new()] });
        assert_eq!((outer.maybe, outer.many, outer.map["k"].port), (None, vec![Inner::default()], 0));
        assert!(outer.raw.is_none());
        let outer: Outer<'_> = from_str_as_go(r#"{"inner":null,"many":null,"map":null}"#).unwrap();
        assert_eq!((outer.inner, outer.many, outer.map), Default::default());
        let top = from_str_as_go::<Outer<'_>>(" null").unwrap_err().to_string();
        assert_eq!(top, ".: invalid type: null, expected an object");
        for (json, expected) in [
            (r#"{"text":null}"#, "text: invalid type: null, expected a string"),
            (r#"{"inner":{"port":null}}"#, "inner.port: invalid type: null, expected i32"),
            (r#"{"many":[null]}"#, "many[0]: invalid type: null, expected an object"),
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
