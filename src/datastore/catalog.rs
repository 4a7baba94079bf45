//! Knowledge about kinds that no datastore can find out by itself, handed to it as data.
//!
//! Made by the room that knows the kinds, read by the datastores. With an empty catalog every kind is as the datastore shows it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::object::{Dialect, Kind};

/// A word of an API: a group, a version, the name of a kind.
type Word = Cow<'static, str>;

/// The knowledge about kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Groups whose objects some datastores keep in other groups.
    pub families: Vec<Family>,
    /// Whether the objects of a kind live in namespaces, by the kind's group and name.
    pub scopes: BTreeMap<(Word, Word), bool>,
    /// The form of values in etcd, where it is not [`ValueForm::Json`].
    pub values: BTreeMap<Kind, ValueForm>,
}

/// Kinds of one group that a datastore may keep in another one, and in other forms.
///
/// A kind of a family that is missing is looked for soon: its definition is probably just being installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The group that the kinds carry.
    pub group: Word,
    /// All places where objects may be, at least one. An API server has them in the first of these that it serves, and in the
    /// first of all while it serves none. One alone is not asked for.
    pub places: Vec<Place>,
}

/// A group and version in which the objects of a family may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// API group.
    pub group: Word,
    /// Version within the group.
    pub version: Word,
    /// The form of the objects there.
    pub dialect: Dialect,
    /// The annotation that keeps the metadata of a new object which the API server would overwrite; `None`: they are given up.
    pub kept_metadata: Option<Word>,
}

/// The form of a kind's values in etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueForm {
    /// A JSON object. Bytes that are no UTF-8 are replaced, an empty value cannot be read.
    #[default]
    Json,
    /// The same, but an empty value is an object without fields.
    JsonOrEmpty,
    /// Any bytes, which are passed on as they are.
    Raw,
}

impl Catalog {
    /// The family of a group.
    #[must_use]
    pub fn family(&self, group: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.group == group)
    }

    /// The group that the kinds of an `apiVersion` carry, and the form of the objects.
    ///
    /// # Errors
    /// The family, if the group is one of its places in other versions only.
    pub fn place<'a>(&'a self, group: &'a str, version: &str) -> Result<(&'a str, Dialect), &'a Family> {
        let at = |family: &&Family| family.group == group || family.places.iter().any(|place| place.group == group);
        let Some(family) = self.families.iter().find(at) else { return Ok((group, Dialect::Kubernetes)) };
        let place = family.places.iter().find(|place| place.group == group && place.version == version);
        place.map(|place| (&*family.group, place.dialect)).ok_or(family)
    }

    /// Whether objects of the kind live in namespaces; `None` if that is not known.
    #[must_use]
    pub fn is_namespaced(&self, group: &str, kind: &str) -> Option<bool> {
        self.scopes.get(&(Cow::Borrowed(group), Cow::Borrowed(kind))).copied()
    }

    /// The namespace of an object of the kind whose file or value gives this one, or none: `default` where the kind's objects live in
    /// namespaces, and none where they do not.
    #[must_use]
    pub fn namespace<'a>(&self, group: &str, kind: &str, given: &'a str) -> &'a str {
        match self.is_namespaced(group, kind) {
            Some(true) if given.is_empty() => "default",
            Some(false) => "",
            _ => given,
        }
    }

    /// Whether a kind claims to be of a family and is not known: a typing error, or a newer member of the family.
    #[must_use]
    pub fn is_unknown(&self, group: &str, kind: &str) -> bool {
        self.family(group).is_some() && self.is_namespaced(group, kind).is_none()
    }

    /// The form of a kind's values in etcd.
    #[must_use]
    pub fn value_form(&self, kind: &Kind) -> ValueForm {
        self.values.get(kind).copied().unwrap_or_default()
    }
}

impl Family {
    /// All places as people write them: `a.example/v1 and b.example/v2`.
    #[must_use]
    pub fn places_in_words(&self) -> String {
        let words: Vec<String> = self.places.iter().map(|place| format!("{}/{}", place.group, place.version)).collect();
        words.join(" and ")
    }
}
