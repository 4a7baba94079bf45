//! The part of an object's metadata that v1 values are made of.
//!
//! Whole objects keep all of their metadata and go another way; here only what endpoints, sets and pools need is read.

use serde::Deserialize;

use super::text::{Text, TextMap};
use crate::model::object::Dialect;
use crate::model::resource::{METADATA_ANNOTATION, reverse_uid};
use crate::model::strict;

/// Labels, annotations and little else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta<'a> {
    /// Name.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// What the name was made from.
    #[serde(borrow, default)]
    pub generate_name: Text<'a>,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(borrow, default)]
    pub namespace: Text<'a>,
    /// Unique id; empty where there is none.
    #[serde(borrow, default)]
    pub uid: Text<'a>,
    /// Labels.
    #[serde(borrow, default)]
    pub labels: TextMap<'a>,
    /// Annotations.
    #[serde(borrow, default)]
    pub annotations: TextMap<'a>,
    /// Resource version; empty where there is none.
    #[serde(borrow, default)]
    pub resource_version: Text<'a>,
    /// When it was created, as written.
    #[serde(borrow, default)]
    pub creation_timestamp: Text<'a>,
    /// When deletion began, as written.
    #[serde(borrow, default)]
    pub deletion_timestamp: Option<Text<'a>>,
}

/// An object of which only metadata and `spec` matter.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
pub struct Resource<'a, S> {
    /// The metadata; absent counts as empty.
    #[serde(borrow, default)]
    pub metadata: Option<Meta<'a>>,
    /// The spec; absent counts as empty.
    #[serde(default)]
    pub spec: Option<S>,
}

impl Meta<'_> {
    /// Makes the v3 object's metadata of what is stored.
    ///
    /// # Errors
    /// When a custom resource's UID is not one, or its metadata annotation cannot be read.
    pub fn settle(mut self, dialect: Dialect) -> Result<Self, String> {
        if dialect != Dialect::CrdV1 {
            return Ok(self);
        }
        if !self.uid.is_empty() && reverse_uid(&self.uid).is_none() {
            return Err(format!("metadata.uid: {:?} is not a UUID", &*self.uid));
        }
        if let Some(stored) = self.annotations.remove(METADATA_ANNOTATION) {
            let stored: Meta<'_> = strict::from_str(&stored).map_err(|error| {
                format!("metadata.annotations[{METADATA_ANNOTATION}]: not the metadata of an object: {error}")
            })?;
            if !stored.name.is_empty() {
                self.name = stored.name.into_owned();
            }
            // Labels that were there and empty stay so; annotations without this one are no longer there.
            overlay(&mut self.labels, stored.labels);
            overlay(&mut self.annotations, stored.annotations);
            if self.annotations.is_empty() {
                self.annotations = TextMap::default();
            }
        }
        Ok(self)
    }
}

fn overlay(map: &mut TextMap<'_>, over: TextMap<'_>) {
    map.overlay(over.iter().map(|(key, value)| (key.to_owned().into(), value.to_owned().into())).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(json: &str, dialect: Dialect) -> Result<Meta<'_>, String> {
        serde_json::from_str::<Meta<'_>>(json).unwrap().settle(dialect)
    }

    #[test]
    fn the_metadata_annotation_is_laid_over_a_custom_resource() {
        let json = r#"{"uid":"bb0f8c1e-2b3c-4d5e-8f70-112233445566","labels":{"a":"cr","b":"cr"},
            "annotations":{"x":"cr","projectcalico.org/metadata":"{\"labels\":{\"a\":\"meta\"},\"annotations\":{\"y\":\"meta\"}}"}}"#;
        let meta = settled(json, Dialect::CrdV1).unwrap();
        assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "meta"), ("b", "cr")]);
        assert_eq!(meta.annotations.iter().collect::<Vec<_>>(), [("x", "cr"), ("y", "meta")]);
        assert_eq!(settled(json, Dialect::V3).unwrap().annotations.iter().count(), 2);
    }

    #[test]
    fn an_annotation_without_labels_leaves_them_as_they_are() {
        let annotations = r#""annotations":{"projectcalico.org/metadata":"{\"name\":\"v3\"}"}"#;
        for (labels, absent) in [(r#""labels":{},"#, false), ("", true)] {
            let json = format!(r#"{{"name":"cr",{labels}{annotations}}}"#);
            let meta = settled(&json, Dialect::CrdV1).unwrap();
            assert_eq!(meta.labels.is_absent(), absent);
            assert!(meta.annotations.is_absent());
            assert_eq!(&*meta.name, "v3");
            assert_eq!(&*settled(&json, Dialect::V3).unwrap().name, "cr");
        }
    }

    #[test]
    fn what_cannot_be_a_custom_resource_is_refused() {
        assert!(settled(r#"{"uid":"zzz"}"#, Dialect::CrdV1).unwrap_err().contains("metadata.uid"));
        assert!(settled(r#"{"uid":"zzz"}"#, Dialect::Etcd).is_ok());
        let bad = settled(r#"{"annotations":{"projectcalico.org/metadata":"{bad"}}"#, Dialect::CrdV1);
        assert!(bad.unwrap_err().contains("projectcalico.org/metadata"));
    }
}
