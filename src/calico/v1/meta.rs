//! The part of an object's metadata that v1 values are made of. Whole objects keep all their metadata ([`resource`]).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::text::{Text, TextMap};
use crate::calico::resource::{self, ResourceError};
use crate::calico::schema::{Fields, Node};
use crate::model::gojson;
use crate::model::object::Dialect;

/// The metadata that v1 values need.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "'de: 'a")]
pub struct Meta<'a> {
    /// Name.
    pub name: Text<'a>,
    /// Prefix from which the name was generated.
    pub generate_name: Text<'a>,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Text<'a>,
    /// Unique id; empty where there is none.
    pub uid: Text<'a>,
    /// Labels.
    pub labels: TextMap<'a>,
    /// Annotations.
    pub annotations: TextMap<'a>,
    /// Resource version; empty where there is none.
    pub resource_version: Text<'a>,
    /// Time of creation, as written.
    pub creation_timestamp: Text<'a>,
    /// Start of deletion, as written.
    pub deletion_timestamp: Option<Text<'a>>,
}

/// A native object of Kubernetes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a, S: Default + Deserialize<'de>, T: Default + Deserialize<'de>")]
pub struct Native<'a, S, T> {
    /// The metadata.
    pub metadata: Meta<'a>,
    /// The spec.
    pub spec: S,
    /// The status.
    pub status: T,
}

/// An object of which only metadata and `spec` matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "'de: 'a, S: Default + Deserialize<'de>")]
pub struct Body<'a, S> {
    /// The metadata, not read yet.
    pub metadata: Option<&'a RawValue>,
    /// The spec.
    pub spec: S,
}

impl<'a, S> Body<'a, S> {
    /// The metadata as Calico's own clients see them.
    ///
    /// # Errors
    /// When they cannot be read or converted.
    pub fn meta(&self, dialect: Dialect) -> Result<Meta<'a>, ResourceError> {
        match self.metadata.map(RawValue::get) {
            None => Ok(Meta::default()),
            // The conversion needs all of the metadata.
            Some(json) if dialect == Dialect::CrdV1 => resource::metadata(json, dialect).map(Meta::of),
            Some(json) => gojson::from_str(json).map_err(ResourceError::Metadata),
        }
    }
}

impl Meta<'static> {
    /// The part of whole metadata that v1 values of Calico's resources are made of.
    fn of(mut fields: Fields) -> Self {
        let mut map = |name| match fields.get_mut(name) {
            Some(Node::Map(entries)) => std::mem::take(entries)
                .into_iter()
                .map(|(key, value)| (key.into(), value.as_text().unwrap_or_default().to_owned().into()))
                .collect(),
            _ => TextMap::default(),
        };
        let (labels, annotations) = (map("labels"), map("annotations"));
        let text = |name| fields.text(name).to_owned().into();
        Self { name: text("name"), generate_name: text("generateName"), labels, annotations, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(json: &str, dialect: Dialect) -> Result<Meta<'_>, String> {
        let metadata = Some(serde_json::from_str(json).unwrap());
        Body { metadata, spec: () }.meta(dialect).map_err(|error| error.to_string())
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
            assert!(meta.annotations.is_empty());
            assert_eq!(&*meta.name, "v3");
            assert_eq!(&*settled(&json, Dialect::V3).unwrap().name, "cr");
        }
    }

    #[test]
    fn invalid_custom_resources_are_refused() {
        assert!(settled(r#"{"uid":"zzz"}"#, Dialect::CrdV1).unwrap_err().contains("metadata.uid"));
        assert!(settled(r#"{"uid":"zzz"}"#, Dialect::Etcd).is_ok());
        for annotation in ["{bad", r#"{\"creationTimestamp\":\"today\"}"#, r#"{\"labels\":{\"a\":7}}"#] {
            let json = format!(r#"{{"annotations":{{"projectcalico.org/metadata":"{annotation}"}}}}"#);
            assert!(settled(&json, Dialect::CrdV1).unwrap_err().contains("projectcalico.org/metadata"), "{annotation}");
        }
    }
}
