//! The kinds of the objects that the folder has, for those who ask by patterns; and the objects that none of them asks for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Folder;
use super::live::Live;
use crate::datastore::file::status::FileError;
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::datastore::seen;
use crate::model::object::Kind;

/// Group and name of a kind.
type Name<'a> = (&'a str, &'a str);

impl Folder {
    /// Somebody asks for these kinds from now on. The status then names objects of such a kind in a version that nobody asks for.
    pub(in super::super) fn ask(&mut self, patterns: &[Pattern]) {
        self.asked.extend(patterns.iter().cloned());
    }

    /// The kinds that meet the patterns now.
    pub(in super::super) fn kinds(&self, patterns: &[Pattern]) -> KindsNow {
        // Whether any of the objects has a namespace.
        let mut names: BTreeMap<Name<'_>, bool> = BTreeMap::new();
        for identity in self.objects.keys() {
            *names.entry((&identity.group, &identity.kind)).or_default() |= !identity.id.namespace.is_empty();
        }
        let kinds = names.into_iter().map(|((group, name), namespaced)| Kind {
            group: Cow::Owned(group.to_owned()),
            version: Cow::Borrowed(seen::ANY_VERSION),
            name: Cow::Owned(name.to_owned()),
            plural: Cow::Borrowed(seen::plural(group, name)),
            namespaced: self.catalog.is_namespaced(group, name).unwrap_or(namespaced),
            etcd_prefix: None,
        });
        seen::kinds(patterns, &kinds.collect(), &self.catalog)
    }

    /// Remarks about objects of a kind that somebody asks for, in a version that nobody asks for.
    pub(super) fn unasked(&self) -> Vec<FileError> {
        if self.asked.is_empty() {
            return Vec::new();
        }
        // The objects of each kind and version: their number, and the first one.
        let mut versions: BTreeMap<(Name<'_>, &str), (usize, &Live)> = BTreeMap::new();
        for (identity, live) in &self.objects {
            let version = ((&*identity.group, &*identity.kind), &*live.resource.version);
            versions.entry(version).or_insert((0, live)).0 += 1;
        }
        let remark = |(((group, name), version), (count, first)): ((Name<'_>, &str), (usize, &Live))| {
            let asked = self.asked.iter().filter(|pattern| pattern.names(group, name));
            let wanted: Option<BTreeSet<&str>> = asked.map(|pattern| Some(&*pattern.kind.as_ref()?.0)).collect();
            // A pattern for the whole group takes any version.
            let wanted = wanted.filter(|wanted| !wanted.is_empty() && !wanted.contains(version))?;
            let (objects, are) = if count == 1 { ("object", "is") } else { ("objects", "are") };
            let reason = format!(
                "{count} {objects} of {} {are} in version {version}, which no syncer asks for: write {} into apiVersion, or add \
                 the version to Kinds",
                [group, name].join(" ").trim_start(),
                wanted.into_iter().collect::<Vec<_>>().join(" or "),
            );
            let line = first.resource.line;
            Some(FileError { file: first.file.display().to_string(), line: (line > 0).then_some(line), reason })
        };
        versions.into_iter().filter_map(remark).collect()
    }
}
