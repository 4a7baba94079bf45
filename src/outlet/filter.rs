//! The keys that a client wants: those that begin with one of some prefixes.

use std::sync::Arc;

/// A set of key prefixes in a normal form, so that equal filters share a feed. Empty: every key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter(Arc<[String]>);

impl Filter {
    /// The filter for some prefixes. No prefix at all, or an empty one among them, admits everything.
    #[must_use]
    pub fn new(mut prefixes: Vec<String>) -> Self {
        if prefixes.iter().any(String::is_empty) {
            return Self::default();
        }
        prefixes.sort_unstable();
        // In order, a prefix comes right before all that it covers.
        prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter.as_str()));
        Self(prefixes.into())
    }

    /// Whether every key passes.
    #[must_use]
    pub fn admits_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this key passes.
    #[must_use]
    pub fn admits(&self, key: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        // No prefix covers another, so only the last one that is not greater than the key can match.
        let greater = self.0.partition_point(|prefix| prefix.as_str() <= key);
        greater > 0 && key.starts_with(&self.0[greater - 1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_wishes_have_equal_filters() {
        let filter = |prefixes: &[&str]| Filter::new(prefixes.iter().map(ToString::to_string).collect());
        assert_eq!(filter(&["/b", "/a", "/a/c", "/a"]), filter(&["/a", "/b"]));
        assert_eq!(filter(&["/a", ""]), Filter::default());
        assert!(filter(&[]).admits("/anything"));
        assert!(!filter(&["/a"]).admits("/"));
    }

    proptest! {
        #[test]
        fn a_key_passes_when_it_has_one_of_the_prefixes(
            prefixes in proptest::collection::vec("[ab/]{1,4}", 1..6), key in "[ab/]{0,6}",
        ) {
            let expected = prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
            prop_assert_eq!(Filter::new(prefixes).admits(&key), expected);
        }
    }
}
