//! Calico's label selectors: read, check, print in canonical form with a prefix on every label.
//!
//! Policies carry selectors as text. Most are passed on verbatim; selectors of namespaces and service accounts are
//! read, and printed again with [`Selector::with_prefix`]. Validation reads every selector and drops the result.

use std::collections::BTreeSet;
use std::fmt;

mod parser;
mod tokens;

pub use tokens::ParseError;

/// A selector, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All,
    Global,
    Has(String),
    Compare(String, Operator, String),
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
    Not(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Contains,
    StartsWith,
    EndsWith,
}

impl Operator {
    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => " == ",
            Self::NotEqual => " != ",
            Self::Contains => " contains ",
            Self::StartsWith => " starts with ",
            Self::EndsWith => " ends with ",
        }
    }
}

impl Selector {
    /// Reads a selector. Blank text selects everything.
    ///
    /// # Errors
    /// When the text departs from the grammar.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parser::parse(text).map(Self)
    }

    /// The selector over the same labels with `prefix` put before their names. `all()` and `global()` have no label.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        self.0.add_prefix(prefix);
        self
    }
}

impl Node {
    fn add_prefix(&mut self, prefix: &str) {
        match self {
            Self::All | Self::Global => {}
            Self::Has(label) | Self::Compare(label, ..) | Self::In(label, _) | Self::NotIn(label, _) => {
                label.insert_str(0, prefix);
            }
            Self::Not(operand) => operand.add_prefix(prefix),
            Self::And(operands) | Self::Or(operands) => {
                for operand in operands {
                    operand.add_prefix(prefix);
                }
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all()"),
            Self::Global => f.write_str("global()"),
            Self::Has(label) => write!(f, "has({label})"),
            Self::Compare(label, operator, value) => {
                write!(f, "{label}{}{}", operator.as_str(), Quoted(value))
            }
            Self::In(label, values) => write!(f, "{label} in {}", Set(values)),
            Self::NotIn(label, values) => write!(f, "{label} not in {}", Set(values)),
            Self::Not(operand) => write!(f, "!{operand}"),
            Self::And(operands) => group(f, operands, " && "),
            Self::Or(operands) => group(f, operands, " || "),
        }
    }
}

fn group(f: &mut fmt::Formatter<'_>, operands: &[Node], operator: &str) -> fmt::Result {
    f.write_str("(")?;
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            f.write_str(operator)?;
        }
        write!(f, "{operand}")?;
    }
    f.write_str(")")
}

/// A literal; the grammar has no escapes, so it never holds both kinds of quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(f, "{quote}{}{quote}", self.0)
    }
}

struct Set<'a>(&'a BTreeSet<String>);

impl fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.0.iter().map(|value| Quoted(value).to_string()).collect();
        write!(f, "{{{}}}", values.join(", "))
    }
}

#[cfg(test)]
mod tests;
