//! The kinds of the objects that the folder has, for those who ask by patterns; and the objects that none of them asks for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::Folder;
use crate::datastore::file::status::FileError;
use crate::datastore::pattern::{KindsNow, Pattern};
use crate::datastore::seen;
use crate::model::object::Kind;

/// Group and name of a kind.
type Name<'a> = (&'a str, &'a str);

/// Objects of a kind in one version.
struct Found<'a> {
    count: usize,
    /// File and line of the first one.
    file: String,
    line: u64,
    version: &'a str,
}

impl Folder {
    /// Somebody asks for these kinds from now on. The status then names objects of such a kind in a version that nobody asks for.
    pub(in super::super) fn ask(&mut self, patterns: &[Pattern]) {
        self.asked.extend(patterns.iter().cloned());
    }

    /// The kinds that meet the patterns now.
    pub(in super::super) fn kinds(&self, patterns: &[Pattern]) -> KindsNow {
        // Whether any of the objects has a namespace, and the versions that they are in.
        let mut names: BTreeMap<Name<'_>, (bool, BTreeSet<&str>)> = BTreeMap::new();
        for (identity, live) in &self.objects {
            let (namespaced, versions) = names.entry((&identity.group, &identity.kind)).or_default();
            *namespaced |= !identity.id.namespace.is_empty();
            versions.insert(&live.resource.version);
        }
        let kinds = names.into_iter().flat_map(|((group, name), (namespaced, versions))| {
            let namespaced = self.catalog.is_namespaced(group, name).unwrap_or(namespaced);
            versions.into_iter().map(move |version| Kind {
                group: Cow::Owned(group.to_owned()),
                version: Cow::Owned(version.to_owned()),
                name: Cow::Owned(name.to_owned()),
                plural: Cow::Borrowed(seen::plural(group, name)),
                namespaced,
                etcd_prefix: None,
            })
        });
        seen::kinds(patterns, &kinds.collect(), &self.catalog)
    }

    /// Remarks about objects of a kind that somebody asks for, in a version that nobody asks for.
    pub(super) fn unasked(&self) -> Vec<FileError> {
        if self.asked.is_empty() {
            return Vec::new();
        }
        let mut found: BTreeMap<(Name<'_>, &str), Found<'_>> = BTreeMap::new();
        for (identity, live) in &self.objects {
            let (group, name, version) = (&*identity.group, &*identity.kind, &*live.resource.version);
            let named = self.asked.iter().any(|pattern| pattern.names(group, name));
            if !named || self.asked.iter().any(|pattern| pattern.matches(group, version, name)) {
                continue;
            }
            let first = || Found { count: 0, file: live.file.display().to_string(), line: live.resource.line, version };
            found.entry(((group, name), version)).or_insert_with(first).count += 1;
        }
        let remark = |((group, name), found): (Name<'_>, Found<'_>)| {
            let versions: BTreeSet<&str> = self
                .asked
                .iter()
                .filter(|pattern| pattern.names(group, name))
                .filter_map(|pattern| Some(&*pattern.kind.as_ref()?.0))
                .collect();
            let versions: Vec<&str> = versions.into_iter().collect();
            let (objects, are) = if found.count == 1 { ("object", "is") } else { ("objects", "are") };
            let reason = format!(
                "{} {objects} of {} {are} in version {}, which no syncer asks for: write {} into apiVersion, or add the version to Kinds",
                found.count,
                [group, name].join(" ").trim_start(),
                found.version,
                versions.join(" or "),
            );
            FileError { file: found.file, line: (found.line > 0).then_some(found.line), reason }
        };
        found.into_iter().map(|((name, _), found)| remark((name, found))).collect()
    }
}
