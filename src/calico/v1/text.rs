//! Text and maps of text, borrowed from the JSON that they were read from.
//!
//! There may be hundreds of thousands of endpoints; most of their text is copied only once, into the serialised value.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

/// A text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// The same text, owned.
    #[must_use]
    pub fn into_owned(self) -> Text<'static> {
        Text(Cow::Owned(self.0.into_owned()))
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A map of text to text that may be absent. Sorted by key, each key once; the last of equal keys in the JSON wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextMap<'a>(Option<Vec<(Text<'a>, Text<'a>)>>);

impl<'a> TextMap<'a> {
    /// A map that is present and empty.
    #[must_use]
    pub fn empty() -> Self {
        Self(Some(Vec::new()))
    }

    /// Whether the map is absent, which is not the same as empty.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(Vec::is_empty)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let entries = self.0.as_ref()?;
        entries.binary_search_by(|(known, _)| (**known).cmp(key)).ok().map(|at| &*entries[at].1)
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flatten().map(|(key, value)| (&**key, &**value))
    }

    /// Sets a key; makes the map if it is absent.
    pub fn set(&mut self, key: impl Into<Text<'a>>, value: impl Into<Text<'a>>) {
        let (key, value) = (key.into(), value.into());
        let entries = self.0.get_or_insert_default();
        match entries.binary_search_by(|(known, _)| known.cmp(&key)) {
            Ok(at) => entries[at].1 = value,
            Err(at) => entries.insert(at, (key, value)),
        }
    }

    /// Keeps the entries whose key satisfies `keep`.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        if let Some(entries) = &mut self.0 {
            entries.retain(|(key, _)| keep(key));
        }
    }

    /// Lays another map over this one: its entries win.
    pub fn overlay(&mut self, over: Self) {
        for (key, value) in over.0.into_iter().flatten() {
            self.set(key, value);
        }
    }

    fn sorted(mut entries: Vec<(Text<'a>, Text<'a>)>) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            // A stable sort: the last of equal keys stays last, and wins.
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.reverse();
            entries.dedup_by(|a, b| a.0 == b.0);
            entries.reverse();
        }
        Self(Some(entries))
    }
}

impl<'a> FromIterator<(Text<'a>, Text<'a>)> for TextMap<'a> {
    fn from_iter<I: IntoIterator<Item = (Text<'a>, Text<'a>)>>(entries: I) -> Self {
        Self::sorted(entries.into_iter().collect())
    }
}

impl Serialize for TextMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(entries) = &self.0 else { return serializer.serialize_none() };
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (key, value) in entries {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;

        impl<'de> Visitor<'de> for MapVisitor {
            type Value = TextMap<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of text to text")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(TextMap::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(TextMap::sorted(entries))
            }
        }

        deserializer.deserialize_any(MapVisitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::model::gojson;

    #[test]
    fn plain_text_is_borrowed_and_null_is_empty() {
        use crate::model::gojson::from_str;
        assert!(matches!(from_str::<Text<'_>>("\"abc\"").unwrap().0, Cow::Borrowed("abc")));
        assert_eq!(&*from_str::<Text<'_>>("\"a\\nc\"").unwrap(), "a\nc");
        assert_eq!(from_str::<Vec<Text<'_>>>("[null]").unwrap(), [Text::default()]);
        assert!(from_str::<Text<'_>>("false").is_err());
        assert!(from_str::<Text<'_>>("7").is_err());
    }

    #[test]
    fn maps_are_sorted_and_the_last_of_equal_keys_counts() {
        let map: TextMap<'_> = gojson::from_str(r#"{"b":"1","a":"2","b":"3","B":null}"#).unwrap();
        assert_eq!(gojson::to_string(&map), r#"{"B":"","a":"2","b":"3"}"#);
        assert_eq!(map.get("b"), Some("3"));
        assert_eq!(map.get("c"), None);
        assert_eq!(gojson::to_string(&TextMap::default()), "null");
        assert_eq!(gojson::to_string(&gojson::from_str::<TextMap<'_>>("{}").unwrap()), "{}");
        assert!(gojson::from_str::<TextMap<'_>>("[]").is_err());
    }

    proptest! {
        #[test]
        fn a_map_behaves_like_a_map(steps in proptest::collection::vec(("[a-e]", proptest::option::of("[x-z]")), 0..20)) {
            let mut map = TextMap::default();
            let mut model = BTreeMap::new();
            for (key, value) in steps {
                if let Some(value) = value {
                    map.set(key.clone(), value.clone());
                    model.insert(key, value);
                } else {
                    prop_assert_eq!(map.get(&key), model.get(&key).map(String::as_str));
                    map.retain(|known| *known != key);
                    model.remove(&key);
                }
            }
            let entries: Vec<(String, String)> =
                map.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(entries, model.into_iter().collect::<Vec<_>>());
        }
    }
}
