//! The seam between values and validation: a value lists the rules that it breaks. The pipeline decides the
//! consequences.

use std::fmt;

/// Most findings of one value in a pipeline. People mend a few at a time, and a hostile value may break rules without end.
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

impl Severity {
    /// Its word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A rule that a value breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, the same for every value that breaks it, for example `bad-value`.
    pub id: &'static str,
    /// Whether it makes the value invalid.
    pub severity: Severity,
    /// Place of the field: `spec.ingress[2].protocol`, or the same as a JSON pointer, `/spec/ingress/2/protocol`. Empty: the whole.
    pub path: String,
    /// The invalid value, shortened when long. `None`: the finding is not about a value, but about the field.
    pub value: Option<String>,
    /// With a value the accepted ones, else the fault itself. May be empty if there is a suggestion.
    pub expected: String,
    /// The name or word that was probably meant.
    pub suggestion: Option<String>,
}

impl Finding {
    /// A finding about the value of a field, which is shortened if it is long.
    #[must_use]
    pub fn of_value(id: &'static str, path: impl Into<String>, value: &str, expected: impl Into<String>) -> Self {
        Self { value: Some(shown(value)), ..Self::of_field(id, path, expected) }
    }

    /// A finding about a field.
    #[must_use]
    pub fn of_field(id: &'static str, path: impl Into<String>, fault: impl Into<String>) -> Self {
        Self { id, severity: Severity::Error, path: path.into(), value: None, expected: fault.into(), suggestion: None }
    }

    /// The same, with the name that was probably meant.
    #[must_use]
    pub fn suggesting(self, suggestion: Option<impl Into<String>>) -> Self {
        Self { suggestion: suggestion.map(Into::into), ..self }
    }

    /// The same as a warning.
    #[must_use]
    pub fn as_warning(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }

    /// The place as a JSON pointer, whichever form it has.
    #[must_use]
    pub fn pointer(&self) -> String {
        if self.path.is_empty() || self.path.starts_with('/') {
            return self.path.clone();
        }
        let steps = self.path.split(['.', '[']).map(|step| step.strip_suffix(']').unwrap_or(step));
        steps.filter(|step| !step.is_empty()).map(|step| format!("/{}", escaped(step))).collect()
    }

    /// The fault in words, without its place.
    #[must_use]
    pub fn text(&self) -> String {
        let fault = match &self.value {
            Some(value) => format!("{value:?} is not valid: {}", self.expected),
            None => self.expected.clone(),
        };
        match &self.suggestion {
            Some(word) if fault.is_empty() => format!("did you mean {word:?}?"),
            Some(word) => format!("{fault}; did you mean {word:?}?"),
            None => fault,
        }
    }

    /// The finding as a line of output: `error unknown-field /spec/http/0/mach: did you mean "match"?`.
    #[must_use]
    pub fn line(&self) -> String {
        let pointer = self.pointer();
        let place = if pointer.is_empty() { String::new() } else { format!(" {pointer}") };
        format!("{} {}{place}: {}", self.severity.as_str(), self.id, self.text())
    }
}

/// A step of a JSON pointer (RFC 6901).
#[must_use]
pub fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn shown(value: &str) -> String {
    match value.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.text()) } else { write!(f, "{}: {}", self.path, self.text()) }
    }
}

/// Rule: the value is not accepted.
pub const BAD_VALUE: &str = "bad-value";
/// Rule: the field has to be set.
pub const MISSING_FIELD: &str = "missing-field";
/// Rule: the list has an item twice.
pub const REPEATED: &str = "repeated";
/// Rule: the field is none of the kind's.
pub const UNKNOWN_FIELD: &str = "unknown-field";
/// Rule: the value has another type than the field.
pub const WRONG_TYPE: &str = "wrong-type";
/// Rule: the value is larger than a limit.
pub const TOO_LARGE: &str = "too-large";
/// Rule: a rule of the kind's schema, written in CEL, does not hold.
pub const RULE_BROKEN: &str = "rule-broken";

/// The findings of a value, as many as the limit says, [`MAX_FINDINGS`] if nobody said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    list: Vec<Finding>,
    /// Path of the part under examination: new findings are below it.
    within: String,
    limit: usize,
    left_out: usize,
}

impl Default for Findings {
    fn default() -> Self {
        Self::up_to(MAX_FINDINGS)
    }
}

impl Findings {
    /// No findings.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// No findings, and room for this many.
    #[must_use]
    pub fn up_to(limit: usize) -> Self {
        Self { list: Vec::new(), within: String::new(), limit, left_out: 0 }
    }

    /// Notes an error: the field at `path`, below the part under examination, has a `value` that breaks the rule `id`.
    pub fn error(&mut self, id: &'static str, path: &str, value: &str, expected: impl Into<String>) {
        let path = if self.within.is_empty() { path.to_owned() } else { format!("{}.{path}", self.within) };
        self.add(Finding::of_value(id, path, value, expected));
    }

    /// Adds a finding with its whole path. Where there is no room, an error takes the place of a warning.
    pub fn add(&mut self, finding: Finding) {
        if self.list.len() < self.limit {
            return self.list.push(finding);
        }
        self.left_out += 1;
        let harmless = self.list.iter().rposition(|noted| noted.severity < finding.severity);
        if let Some(at) = harmless {
            self.list.remove(at);
            self.list.push(finding);
        }
    }

    /// Adds further findings.
    pub fn extend(&mut self, further: Self) {
        self.left_out += further.left_out;
        for finding in further.list {
            self.add(finding);
        }
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

    /// The findings, to keep.
    #[must_use]
    pub fn into_vec(self) -> Vec<Finding> {
        self.list
    }

    /// Counts findings that were left out before they came here.
    pub fn leave_out(&mut self, count: usize) {
        self.left_out += count;
    }

    /// The number of findings for which there was no room.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.left_out
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

    /// The places of fields in the text that the value came from, as in `reviews.yaml:14:7`; none if there is no such text. May read a
    /// file, so it is only for values about which people are told.
    fn places(&self, _pointers: &[String]) -> Vec<String> {
        Vec::new()
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
        let shown: Vec<usize> =
            findings.as_slice().iter().filter_map(|finding| Some(finding.value.as_ref()?.chars().count())).collect();
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
        assert_eq!((findings.as_slice().len(), findings.left_out()), (MAX_FINDINGS, 102 - MAX_FINDINGS));
    }

    #[test]
    fn an_error_is_never_left_out_for_a_warning() {
        let mut findings = Findings::up_to(2);
        for n in 0..3 {
            findings.add(Finding::of_field(BAD_VALUE, format!("/{n}"), "odd").as_warning());
        }
        assert!(findings.are_harmless());
        findings.add(Finding::of_field(BAD_VALUE, "/x", "wrong"));
        findings.add(Finding::of_field(BAD_VALUE, "/y", "wrong"));
        findings.add(Finding::of_field(BAD_VALUE, "/z", "odd").as_warning());
        let paths: Vec<&str> = findings.as_slice().iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!((paths, findings.left_out()), (vec!["/x", "/y"], 4));
    }

    #[test]
    fn lines_have_one_form_for_both_kinds_of_paths() {
        for (finding, line) in [
            (
                Finding::of_value(BAD_VALUE, "spec.ports[0].port", "x", "a number"),
                r#"error bad-value /spec/ports/0/port: "x" is not valid: a number"#,
            ),
            (
                Finding::of_field(UNKNOWN_FIELD, "/spec/mach", "").suggesting(Some("match")),
                r#"error unknown-field /spec/mach: did you mean "match"?"#,
            ),
            (
                Finding::of_field(UNKNOWN_FIELD, "/a~1b", "no such field").suggesting(Some("c")),
                r#"error unknown-field /a~1b: no such field; did you mean "c"?"#,
            ),
            (Finding::of_field(TOO_LARGE, "", "too much").as_warning(), "warning too-large: too much"),
        ] {
            assert_eq!(finding.line(), line);
        }
        assert_eq!(Finding::of_field(BAD_VALUE, "metadata.labels[a/b]", "").pointer(), "/metadata/labels/a~1b");
    }
}
