//! Whole objects: Calico v3 resources, Services and EndpointSlices, as agents receive them.
//!
//! [`Resource::decode`] reads an object in its datastore's dialect, and brings the metadata into the form that Calico's
//! own clients see. [`Resource::into_value`] takes the resource version out (it travels beside the value) and prints
//! the object.

use std::sync::Arc;

use bytes::Bytes;

use super::schema::{self, Case, Fields, Node, Struct, Type};
use crate::model::object::{Dialect, Kind, Object};
use crate::model::strict::ReadError;
use crate::model::timestamp::Timestamp;
use crate::model::{Revision, Value, no_revision};

/// The annotation in which `crd.projectcalico.org/v1` objects keep the metadata of their v3 resource.
pub const METADATA_ANNOTATION: &str = "projectcalico.org/metadata";
/// `apiVersion` of Calico's v3 resources.
pub const V3_API_VERSION: &str = "projectcalico.org/v3";

const CRD_API_VERSION: &str = "crd.projectcalico.org/v1";

/// An object cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// This kind is not carried whole.
    #[error("kind {0} has no declaration")]
    UnknownKind(String),
    /// A field does not fit.
    #[error(transparent)]
    Schema(#[from] ReadError),
    /// A field of the metadata does not fit.
    #[error("metadata: {0}")]
    Metadata(ReadError),
    /// The metadata annotation does not fit.
    #[error("metadata.annotations[{METADATA_ANNOTATION:?}]: {0}")]
    Annotation(ReadError),
    /// A UID that has to be rewritten is no UUID.
    #[error("{field}: {uid:?} is not a UUID")]
    Uid {
        /// The field.
        field: &'static str,
        /// Its value.
        uid: String,
    },
}

/// A whole object of a kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    kind: &'static str,
    /// The object. `metadata.resourceVersion` is part of it until [`Self::into_value`].
    pub root: Fields,
}

/// The kinds that are carried whole: name, declaration, whether the printed object names its kind.
const KINDS: [(&str, &str, bool); 11] = [
    ("BGPConfiguration", "v3.BGPConfiguration", true),
    ("BGPFilter", "v3.BGPFilter", true),
    ("BGPPeer", "v3.BGPPeer", true),
    ("CalicoNodeStatus", "v3.CalicoNodeStatus", true),
    ("ClusterInformation", "v3.ClusterInformation", true),
    ("EndpointSlice", "v1.EndpointSlice", false),
    ("FelixConfiguration", "v3.FelixConfiguration", true),
    ("LiveMigration", "internalapi.LiveMigration", true),
    ("Node", "internalapi.Node", true),
    ("Profile", "v3.Profile", true),
    ("Service", "v1.Service", false),
];

fn declaration(kind: &str) -> Option<(&'static str, &'static Struct, bool)> {
    let (name, declaration, named) = KINDS.into_iter().find(|(name, ..)| *name == kind)?;
    Some((name, schema::find(declaration)?, named))
}

/// Whether a kind is carried whole, so that [`Resource::decode`] accepts it.
#[must_use]
pub fn is_known(kind: &Kind) -> bool {
    declaration(&kind.name).is_some()
}

impl Resource {
    /// Reads an object of the kind with this name.
    ///
    /// # Errors
    /// When the kind has no declaration, a field does not fit it, or the metadata cannot be converted.
    pub fn decode(kind: &str, object: &Object) -> Result<Self, ResourceError> {
        let mut resource = Self::decode_json(kind, &object.body, Case::of(object.dialect))?;
        if object.dialect == Dialect::CrdV1
            && let Some(metadata) = resource.metadata_mut()
        {
            convert_crd_metadata(metadata)?;
        }
        Ok(resource)
    }

    /// Reads a v3 resource or Kubernetes object whose metadata needs no conversion.
    ///
    /// # Errors
    /// When the kind has no declaration or a field does not fit it.
    pub fn decode_json(kind: &str, json: &[u8], case: Case) -> Result<Self, ResourceError> {
        let (kind, schema, _) = declaration(kind).ok_or_else(|| ResourceError::UnknownKind(kind.to_owned()))?;
        Ok(Self { kind, root: schema::decode(schema, json, case)? })
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The object's metadata.
    #[must_use]
    pub fn metadata(&self) -> Option<&Fields> {
        self.root.get("metadata").and_then(Node::as_struct)
    }

    /// The object's metadata, to change it.
    pub fn metadata_mut(&mut self) -> Option<&mut Fields> {
        match self.root.get_mut("metadata") {
            Some(Node::Struct(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The value for agents, to be validated, and its `metadata.resourceVersion`.
    #[must_use]
    pub fn into_value(mut self) -> (Value, Revision) {
        let mut version = no_revision();
        if let Some(Node::Text(text)) = self.metadata_mut().and_then(|metadata| metadata.get_mut("resourceVersion"))
            && !text.is_empty()
        {
            version = Arc::from(std::mem::take(text));
        }
        let named = declaration(self.kind).is_some_and(|(_, _, named)| named);
        for (field, text) in [("kind", self.kind), ("apiVersion", V3_API_VERSION)] {
            if let Some(node) = self.root.get_mut(field) {
                *node = Node::Text(if named { text.to_owned() } else { String::new() });
            }
        }
        let unset = if WITH_REQUIRED_LISTS.contains(&self.kind) { unset_list(&self.root) } else { None };
        let mut json = Vec::with_capacity(512);
        self.root.write(&mut json);
        let json = Bytes::from(json);
        (Value::checked(json.clone(), Arc::new(Printed { kind: self.kind, json, unset })), version)
    }
}

/// Kinds with lists that are required and not printed when empty.
const WITH_REQUIRED_LISTS: [&str; 2] = ["BGPConfiguration", "CalicoNodeStatus"];

/// The path of the first required list that is absent; an empty list is present.
fn unset_list(fields: &Fields) -> Option<String> {
    fields.iter().find_map(|(field, node)| {
        let name = &field.json;
        let inside = |node: &Node| node.as_struct().and_then(unset_list);
        match node {
            Node::Nil => {
                let is_required = field.validate.split(',').any(|rule| rule == "required");
                (is_required && matches!(field.ty, Type::List(_))).then(|| name.clone())
            }
            Node::List(items) => items
                .iter()
                .enumerate()
                .find_map(|(at, item)| inside(item).map(|inner| format!("{name}[{at}].{inner}"))),
            node => inside(node).map(|inner| format!("{name}.{inner}")),
        }
    })
}

/// The object as agents would receive it, for validation.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) kind: &'static str,
    pub(crate) json: Bytes,
    /// Path of a required list that is absent: in print it looks like an empty one.
    pub(crate) unset: Option<String>,
}

/// Reads the metadata of an object in this dialect, into the form that Calico's own clients see.
///
/// # Errors
/// When a field does not fit, or the metadata cannot be converted.
pub fn metadata(json: &str, dialect: Dialect) -> Result<Fields, ResourceError> {
    let declaration = schema::find("v1.ObjectMeta").expect("part of the table");
    let mut metadata =
        schema::decode(declaration, json.as_bytes(), Case::of(dialect)).map_err(ResourceError::Metadata)?;
    if dialect == Dialect::CrdV1 {
        convert_crd_metadata(&mut metadata)?;
    }
    Ok(metadata)
}

/// Turns the metadata of a `crd.projectcalico.org/v1` object into its v3 resource's: the UID is rewritten, and the
/// metadata in [`METADATA_ANNOTATION`] replace the rest, with labels and annotations merged.
fn convert_crd_metadata(metadata: &mut Fields) -> Result<(), ResourceError> {
    rewrite_uid(metadata, "metadata.uid")?;
    let Some(Node::Map(annotations)) = metadata.get_mut("annotations") else { return Ok(()) };
    let Some(Node::Text(stored)) = annotations.remove(METADATA_ANNOTATION) else { return Ok(()) };
    let mut stored =
        schema::decode(metadata.schema, stored.as_bytes(), Case::FoldedLean).map_err(ResourceError::Annotation)?;
    // Policies keep their v3 name there, since the custom resource may have another name.
    if stored.text("name").is_empty() {
        copy(metadata, &mut stored, "name");
    }
    for field in ["namespace", "resourceVersion", "uid"] {
        copy(metadata, &mut stored, field);
    }
    if stored.get("creationTimestamp") == Some(&Node::Time(Timestamp::ZERO)) {
        copy(metadata, &mut stored, "creationTimestamp");
    }
    for field in ["labels", "annotations"] {
        overlay(metadata, &mut stored, field);
    }
    if let Some(Node::List(owners)) = stored.get_mut("ownerReferences") {
        for owner in owners {
            convert_owner(owner)?;
        }
    }
    *metadata = stored;
    Ok(())
}

/// Checks the metadata annotation of a policy in etcd, which Calico's client reads there too.
///
/// # Errors
/// When the annotation is present and cannot be read; Calico's client then cannot read the policy.
pub fn check_metadata_annotation(metadata: &Fields) -> Result<(), ResourceError> {
    let annotations = metadata.get("annotations").and_then(Node::as_map);
    let stored = annotations.into_iter().flatten().find(|(name, _)| name.as_str() == METADATA_ANNOTATION);
    match stored.and_then(|(_, text)| text.as_text()).filter(|text| !text.is_empty()) {
        Some(text) => schema::decode(metadata.schema, text.as_bytes(), Case::FoldedLean)
            .map_err(ResourceError::Annotation)
            .map(drop),
        None => Ok(()),
    }
}

fn copy(from: &mut Fields, to: &mut Fields, field: &str) {
    if let (Some(from), Some(to)) = (from.get_mut(field), to.get_mut(field)) {
        *to = std::mem::replace(from, Node::Nil);
    }
}

/// Merges a map of `under` into the same map of `over`, whose entries win. Without any entries in `over`, the map of
/// `under` is kept as it is, absent or empty.
fn overlay(under: &mut Fields, over: &mut Fields, field: &str) {
    let (Some(under), Some(over)) = (under.get_mut(field), over.get_mut(field)) else { return };
    let won = std::mem::replace(over, std::mem::replace(under, Node::Nil));
    match (won, over) {
        (Node::Map(won), Node::Map(merged)) => merged.extend(won),
        (Node::Map(won), over) if !won.is_empty() => *over = Node::Map(won),
        _ => {}
    }
}

fn convert_owner(owner: &mut Node) -> Result<(), ResourceError> {
    let Node::Struct(owner) = owner else { return Ok(()) };
    if matches!(owner.text("apiVersion"), CRD_API_VERSION | V3_API_VERSION) {
        if let Some(version) = owner.get_mut("apiVersion") {
            *version = Node::Text(V3_API_VERSION.to_owned());
        }
        rewrite_uid(owner, "metadata.ownerReferences[].uid")?;
    }
    Ok(())
}

fn rewrite_uid(fields: &mut Fields, name: &'static str) -> Result<(), ResourceError> {
    match fields.get_mut("uid") {
        Some(Node::Text(uid)) if !uid.is_empty() => {
            *uid = reverse_uid(uid).ok_or_else(|| ResourceError::Uid { field: name, uid: uid.clone() })?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The UID under which Calico shows an object: the datastore's UID with the bits of every byte reversed, except in the
/// two bytes that hold UUID version and variant. Applied twice, it gives the first UID back.
#[must_use]
pub fn reverse_uid(uid: &str) -> Option<String> {
    let mut bytes = parse_uuid(uid)?;
    for (index, byte) in bytes.iter_mut().enumerate() {
        if !matches!(index, 6 | 8) {
            *byte = byte.reverse_bits();
        }
    }
    let number = u128::from_be_bytes(bytes);
    Some(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        number >> 96,
        (number >> 80) & 0xffff,
        (number >> 64) & 0xffff,
        (number >> 48) & 0xffff,
        number & 0xffff_ffff_ffff
    ))
}

/// A UUID in one of its spellings: with dashes, without, in braces, as URN.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = match text.get(..9) {
        Some(urn) if urn.eq_ignore_ascii_case("urn:uuid:") => &text[9..],
        _ => text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text),
    };
    let digits = match text.len() {
        36 => {
            let dashes = [8, 13, 18, 23];
            if dashes.iter().any(|&at| text.as_bytes()[at] != b'-') {
                return None;
            }
            text.bytes().enumerate().filter(|(at, _)| !dashes.contains(at)).map(|(_, byte)| byte).collect()
        }
        32 => text.as_bytes().to_vec(),
        _ => return None,
    };
    let digits =
        std::str::from_utf8(&digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uids_are_reversed() {
        assert_eq!(
            reverse_uid("30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6a").as_deref(),
            Some("0c8fe343-f9da-4a1c-8afa-f874bc32da56")
        );
        assert_eq!(
            reverse_uid("30F1C7C29F5B4A388A5F1F2E3D4C5B6A"),
            reverse_uid("{30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6a}")
        );
        for bad in ["", "not-a-uuid", "30f1c7c2-9f5b-4a38-8a5f-1f2e3d4c5b6", "+0f1c7c29f5b4a388a5f1f2e3d4c5b6a"] {
            assert_eq!(reverse_uid(bad), None, "{bad}");
        }
    }

    fn verdict(kind: &str, json: &str) -> Result<String, String> {
        let (value, _) = Resource::decode_json(kind, json.as_bytes(), Case::Exact).unwrap().into_value();
        let findings = value.subject.as_ref().map(|subject| subject.validate()).unwrap_or_default();
        match findings.as_slice().first() {
            None => Ok(String::from_utf8(value.bytes.to_vec()).unwrap()),
            Some(finding) => Err(finding.path.clone()),
        }
    }

    #[test]
    fn lists_that_have_to_be_set_may_be_empty() {
        let status = |classes: &str| {
            let json =
                format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"node":"n","updatePeriodSeconds":1{classes}}}}}"#);
            verdict("CalicoNodeStatus", &json).map(|json| json.contains("classes"))
        };
        assert_eq!(status(r#","classes":["BGP"]"#), Ok(true));
        assert_eq!(status(r#","classes":[]"#), Ok(false), "valid, and sent without it");
        for unset in ["", r#","classes":null"#] {
            assert_eq!(status(unset), Err("spec.classes".to_owned()));
        }
        let advertisement = |communities: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"x"}},"spec":{{"prefixAdvertisements":[{{"cidr":"10.0.0.0/8"{communities}}}]}}}}"#
            );
            verdict("BGPConfiguration", &json).map(drop)
        };
        assert_eq!(advertisement(r#","communities":[]"#), Ok(()));
        assert_eq!(advertisement(""), Err("spec.prefixAdvertisements[0].communities".to_owned()));
    }

    #[test]
    fn a_protocol_of_digits_is_a_number() {
        let json = r#"{"metadata":{"name":"x"},"spec":{"ingress":[{"action":"Allow","protocol":"17"}]}}"#;
        let printed = verdict("Profile", json).unwrap();
        assert!(printed.contains(r#""protocol":17"#), "{printed}");
        let json = r#"{"metadata":{"name":"x"},"spec":{"istioDSCPMark":"20"}}"#;
        let printed = verdict("FelixConfiguration", json).unwrap();
        assert!(printed.contains(r#""istioDSCPMark":20"#), "{printed}");
    }

    #[test]
    fn the_name_in_the_metadata_annotation_wins() {
        for (stored, expected) in [(r#"{\"name\":\"v3\"}"#, "v3"), ("{}", "cr")] {
            let json =
                format!(r#"{{"metadata":{{"name":"cr","annotations":{{"projectcalico.org/metadata":"{stored}"}}}}}}"#);
            let mut resource = Resource::decode_json("BGPPeer", json.as_bytes(), Case::Exact).unwrap();
            convert_crd_metadata(resource.metadata_mut().unwrap()).unwrap();
            assert_eq!(resource.metadata().unwrap().text("name"), expected);
        }
    }

    #[test]
    fn a_service_has_no_kind_and_loses_its_resource_version() {
        let json = br#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"s","resourceVersion":"7"},"spec":{}}"#;
        let (value, version) = Resource::decode_json("Service", json, Case::Exact).unwrap().into_value();
        assert_eq!(value.bytes, r#"{"metadata":{"name":"s"},"spec":{},"status":{"loadBalancer":{}}}"#);
        assert_eq!(&*version, "7");
    }

    proptest! {
        #[test]
        fn reversing_twice_is_nothing(bytes in any::<u128>()) {
            let uid = reverse_uid(&format!("{bytes:032x}")).unwrap();
            prop_assert_eq!(reverse_uid(&reverse_uid(&uid).unwrap()).unwrap(), uid);
        }

        #[test]
        fn no_text_panics(text in "[0-9a-f{}urn:é-]{0,40}") {
            let _ = reverse_uid(&text);
        }
    }
}
