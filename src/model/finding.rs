//! The seam between values and validation: a value lists the rules that it breaks. The pipeline decides the
//! consequences.

use std::fmt;

/// Most findings of one value. People mend a few at a time, and a hostile value may break rules without end.
pub const MAX_FINDINGS: usize = 16;
/// Longest part of an invalid value in a finding, in characters.
const MAX_SHOWN: usize = 80;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The value is valid, but deserves attention.
    Warning,
    /// The value is invalid.
    Error,
}

/// A rule that a value breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, the same for every value that breaks it, for example `bad-value`.
    pub id: &'static str,
    /// Whether it makes the value invalid.
    pub severity: Severity,
    /// Path of the invalid field, for example `spec.ingress[2].protocol`.
    pub path: String,
    /// The invalid value, shortened when long.
    pub value: String,
    /// The accepted values.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} is not valid: {}", self.path, self.value, self.expected)
    }
}

/// Rule: the value is not accepted.
pub const BAD_VALUE: &str = "bad-value";
/// Rule: the field has to be set.
pub const MISSING_FIELD: &str = "missing-field";
/// Rule: the list has an item twice.
pub const REPEATED: &str = "repeated";

/// The findings of a value, [`MAX_FINDINGS`] at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    list: Vec<Finding>,
    /// Path of the part under examination: new findings are below it.
    within: String,
}

impl Findings {
    /// No findings.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Notes an error: the field at `path`, below the part under examination, has a `value` that breaks the rule `id`.
    pub fn error(&mut self, id: &'static str, path: &str, value: &str, expected: impl Into<String>) {
        if self.list.len() >= MAX_FINDINGS {
            return;
        }
        let value = match value.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => format!("{}…", &value[..end]),
            None => value.to_owned(),
        };
        let path = if self.within.is_empty() { path.to_owned() } else { format!("{}.{path}", self.within) };
        self.list.push(Finding { id, severity: Severity::Error, path, value, expected: expected.into() });
    }

    /// Adds further findings.
    pub fn extend(&mut self, further: Self) {
        self.list.extend(further.list);
        self.list.truncate(MAX_FINDINGS);
    }

    /// Examines the part at `path`: findings of `look` are below it.
    pub fn within(&mut self, path: &str, look: impl FnOnce(&mut Self)) {
        let outer = if self.within.is_empty() { path.to_owned() } else { format!("{}.{path}", self.within) };
        let outer = std::mem::replace(&mut self.within, outer);
        look(self);
        self.within = outer;
    }

    /// Whether the value is valid all the same.
    #[must_use]
    pub fn are_harmless(&self) -> bool {
        self.list.iter().all(|finding| finding.severity < Severity::Error)
    }

    /// The findings, in the order in which the rules were checked.
    #[must_use]
    pub fn as_slice(&self) -> &[Finding] {
        &self.list
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings: Vec<String> = self.list.iter().map(Finding::to_string).collect();
        f.write_str(&findings.join("; "))
    }
}

/// A typed value that can be checked.
pub trait Validate: Send + Sync + fmt::Debug {
    /// All rules that the value breaks.
    fn validate(&self) -> Findings;

    /// The same for a value that takes the place of another one, whose bytes these are: with the rules for changes.
    fn validate_change(&self, _old: &[u8]) -> Findings {
        self.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_show_a_bounded_piece_of_the_value() {
        let mut findings = Findings::none();
        findings.error(BAD_VALUE, "f", &"é".repeat(1000), "y");
        findings.error(BAD_VALUE, "f", "short", "y");
        let shown: Vec<usize> = findings.as_slice().iter().map(|finding| finding.value.chars().count()).collect();
        assert_eq!(shown, [MAX_SHOWN + 1, 5]);
    }

    #[test]
    fn paths_are_below_the_part_that_is_looked_at_and_the_number_is_bounded() {
        let mut findings = Findings::none();
        findings.within("spec", |spec| {
            spec.within("rules[0]", |rule| rule.error(MISSING_FIELD, "action", "", "an action"));
            spec.error(BAD_VALUE, "order", "x", "a number");
        });
        assert!(!findings.are_harmless());
        let text = r#"spec.rules[0].action: "" is not valid: an action; spec.order: "x" is not valid: a number"#;
        assert_eq!(findings.to_string(), text);
        for _ in 0..100 {
            findings.error(REPEATED, "f", "v", "once");
        }
        assert_eq!(findings.as_slice().len(), MAX_FINDINGS);
    }
}
