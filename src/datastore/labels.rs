//! Label selectors in Kubernetes' syntax: `a=b,c!=d,e in (f,g),!h`.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kube::core::{Expression, Selector, SelectorExt as _};

/// Longest name or value of a label, in bytes. Kubernetes' own.
const MAX_NAME: usize = 63;
/// Longest prefix of a label's name, in bytes. Kubernetes' own.
const MAX_PREFIX: usize = 253;

/// Requirements that labels have to meet, all of them. None: all labels do. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// In an order of their own, so that it does not matter in which they were written.
    requirements: Arc<BTreeSet<Expression>>,
}

/// A text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("label selector {selector:?} is not usable: {reason}; write for example app=web,tier in (a,b),!old")]
pub struct BadSelector {
    /// The text.
    pub selector: String,
    /// The fault in it.
    pub reason: String,
}

impl Labels {
    /// Reads a selector; an empty text selects everything. Comparisons of numbers (`a>5`) are not understood.
    ///
    /// # Errors
    /// The text is no selector.
    pub fn parse(text: &str) -> Result<Self, BadSelector> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirements: Result<_, String> = split(text).map(|text| requirement(text.trim())).collect();
        match requirements {
            Ok(requirements) => Ok(Self { requirements: Arc::new(requirements) }),
            Err(reason) => Err(BadSelector { selector: text.to_owned(), reason }),
        }
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether these labels meet all requirements.
    #[must_use]
    pub fn select(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

/// The selector as Kubernetes reads it.
impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.requirements.iter().cloned().collect::<Selector>().fmt(f)
    }
}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}

/// The parts between commas that are in no parentheses.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

fn requirement(text: &str) -> Result<Expression, String> {
    if let Some(name) = text.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(name_of(name)?));
    }
    if let Some((name, value)) = text.split_once("!=") {
        return Ok(Expression::NotEqual(name_of(name)?, value_of(value)?));
    }
    if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Expression::Equal(name_of(name)?, value_of(value)?));
    }
    let Some((name, set)) = text.split_once(char::is_whitespace) else {
        return Ok(Expression::Exists(name_of(text)?));
    };
    let set = set.trim();
    let of: fn(String, BTreeSet<String>) -> Expression =
        if set.starts_with("notin") { Expression::NotIn } else { Expression::In };
    let values = set.strip_prefix("notin").or_else(|| set.strip_prefix("in")).map(str::trim);
    let values = values.and_then(|values| values.strip_prefix('(')?.strip_suffix(')'));
    let Some(values) = values.filter(|values| !values.trim().is_empty()) else {
        return Err(format!("after {name:?} belongs =, !=, in (...) or notin (...) with values"));
    };
    Ok(of(name_of(name)?, values.split(',').map(value_of).collect::<Result<_, _>>()?))
}

fn name_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_domain = |prefix: &str| {
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_part = |part: &str| part.starts_with(lower) && part.ends_with(lower);
        prefix.len() <= MAX_PREFIX
            && prefix.split('.').all(|part| is_part(part) && part.chars().all(|c| lower(c) || c == '-'))
    };
    if is_word(name) && prefix.is_none_or(is_domain) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?} is no name of a label"))
    }
}

fn value_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || is_word(text) { Ok(text.to_owned()) } else { Err(format!("{text:?} is no value of a label")) }
}

/// Letters and digits, and between them also `-`, `_` and `.`.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric();
    text.len() <= MAX_NAME
        && text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selectors_and_what_they_select() {
        let web = labels(&[("app", "web"), ("a.example/tier", "front"), ("empty", "")]);
        for (selector, selects) in [
            ("", true),
            ("  ", true),
            ("app", true),
            ("old", false),
            ("!app", false),
            ("! old", true),
            ("app=web", true),
            ("app == web", true),
            ("app=db", false),
            ("old=web", false),
            ("app!=web", false),
            ("app != db", true),
            ("old!=web", true),
            ("empty=", true),
            ("app=", false),
            ("app in (web, db)", true),
            ("app in(db)", false),
            ("old in (web)", false),
            ("app notin (web,db)", false),
            ("old notin (web)", true),
            ("empty in (,x)", true),
            ("in in (x)", false),
            ("a.example/tier=front,app in (web,db),!old", true),
            ("a.example/tier=front,app in (web,db),old", false),
        ] {
            let parsed = Labels::parse(selector).unwrap();
            assert_eq!(parsed.select(&web), selects, "{selector:?}");
            assert_eq!(Labels::parse(&parsed.to_string()), Ok(parsed), "{selector:?} written and read again");
        }
    }

    #[test]
    fn what_is_no_selector() {
        let long = "x".repeat(MAX_NAME + 1);
        for text in [
            ",",
            "a,",
            ",a",
            "=",
            "=b",
            "a=b=c",
            "a=-",
            "a b",
            "a in b",
            "a in ()",
            "a in (b",
            "a in (b))",
            "a in (b),(c)",
            "a notin",
            "a>5",
            "a<5",
            "A.example/x",
            "/x",
            "a.example/",
            "a/b/c",
            "a..b/c",
            "!",
            "!!a",
            "ä",
            "a=ä",
            "-a",
            &long,
        ] {
            let error = Labels::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn the_order_does_not_matter() {
        let one = Labels::parse("a=b,c in (e,d)").unwrap();
        assert_eq!(
            (&one, one.to_string().as_str()),
            (&Labels::parse("c in (d,e), a=b,a=b").unwrap(), "c in (d,e),a=b")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ab=!,() in>/.-]{0,30}") {
            if let Ok(labels) = Labels::parse(&text) {
                prop_assert_eq!(Labels::parse(&labels.to_string()), Ok(labels));
            }
        }
    }
}
