//! The names of definitions, as they are known: which there are, which there were, and when each group last changed. No I/O.

use std::collections::{BTreeSet, HashMap, HashSet};

/// The sight of one kind's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    /// Definitions are not known (now): not asked for yet, or the server is away.
    Unseen,
    /// We are not permitted to see definitions.
    Hidden,
    /// It is there.
    Defined {
        /// A number that is another one after each change of it.
        change: u64,
    },
    /// It was there, and is removed.
    Removed,
    /// It was never there.
    Never,
}

/// How well the definitions can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sight {
    /// Not (now): not asked for yet, or the server is away.
    #[default]
    None,
    /// All of them.
    Full,
    /// We are not permitted to.
    Forbidden,
}

/// The definitions of the cluster, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) sight: Sight,
    /// Names, with a number that grows when one changes.
    names: HashMap<String, u64>,
    /// All names that were ever there. Only installing kinds under ever new names would make it grow.
    ever: HashSet<String>,
    /// The last change within each group that ever had a definition.
    groups: HashMap<String, u64>,
    changes: u64,
}

impl Known {
    /// A definition is new, or was changed.
    pub(super) fn put(&mut self, name: String) {
        self.changes += 1;
        self.add(name);
    }

    /// A definition is removed.
    pub(super) fn remove(&mut self, name: &str) {
        self.changes += 1;
        self.touch(name);
        self.names.remove(name);
    }

    /// All definitions were read, and these there are.
    pub(super) fn replace(&mut self, names: impl IntoIterator<Item = String>) {
        self.changes += 1;
        self.sight = Sight::Full;
        for name in std::mem::take(&mut self.names).into_keys() {
            self.touch(&name);
        }
        for name in names {
            self.add(name);
        }
    }

    fn add(&mut self, name: String) {
        self.touch(&name);
        self.ever.insert(name.clone());
        self.names.insert(name, self.changes);
    }

    /// The definition's group has changed.
    fn touch(&mut self, name: &str) {
        self.groups.insert(group_of(name).to_owned(), self.changes);
    }

    /// The definition with one of these names, as it is seen.
    pub(super) fn sighting(&self, names: &[String]) -> Sighting {
        match self.sight {
            Sight::None => Sighting::Unseen,
            Sight::Forbidden => Sighting::Hidden,
            Sight::Full => match names.iter().filter_map(|name| self.names.get(name)).max() {
                Some(change) => Sighting::Defined { change: *change },
                None if names.iter().any(|name| self.ever.contains(name)) => Sighting::Removed,
                None => Sighting::Never,
            },
        }
    }

    /// The last change of a definition of one of the groups.
    pub(super) fn change_of(&self, groups: &BTreeSet<String>) -> u64 {
        groups.iter().filter_map(|group| self.groups.get(group)).max().copied().unwrap_or_default()
    }

    /// Whether any kind of the group is defined; `None` if definitions cannot be seen.
    pub(super) fn defines(&self, group: &str) -> Option<bool> {
        (self.sight == Sight::Full).then(|| self.names.keys().any(|name| group_of(name) == group))
    }
}

/// The group of a definition, whose name is `plural.group`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_changes_of_groups_are_told_apart() {
        let mut known = Known::default();
        let group = |group: &str| BTreeSet::from([group.to_owned()]);
        assert_eq!((known.change_of(&group("a.io")), known.defines("a.io")), (0, None));
        known.replace(names(&["xs.a.io", "ys.b.io"]));
        let (a, b) = (known.change_of(&group("a.io")), known.change_of(&group("b.io")));
        known.put("zs.a.io".to_owned());
        assert!(known.change_of(&group("a.io")) > a);
        assert_eq!(known.change_of(&group("b.io")), b);
        known.remove("ys.b.io");
        assert!(known.change_of(&group("b.io")) > b);
        assert_eq!((known.defines("a.io"), known.defines("b.io")), (Some(true), Some(false)));
        let a = known.change_of(&group("a.io"));
        known.replace(names(&[]));
        assert!(known.change_of(&group("a.io")) > a, "what went while nobody looked is a change");
        assert_eq!(known.sighting(&names(&["xs.a.io"])), Sighting::Removed);
    }
}
