//! The result of looking a cluster over: findings for people, facts for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Nothing is in the way.
pub const EXIT_READY: u8 = 0;
/// Something is in the way, or two servers tell different things.
pub const EXIT_OBSTACLES: u8 = 1;
/// Something that decides could not be looked at.
pub const EXIT_UNKNOWN: u8 = 2;

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done before the change.
    Note,
    /// It could not be looked at.
    Unknown,
    /// Bulrush would not work, or agents would lose something.
    Obstacle,
}

impl Verdict {
    /// The word in tables and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Obstacle => "obstacle",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part of the cluster or of the installation, for example `rights`.
    pub topic: &'static str,
    /// Its weight.
    pub verdict: Verdict,
    /// The observation, in a sentence.
    pub text: String,
    /// A command, or another step, that removes the obstacle, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order in which it was looked at.
    pub findings: Vec<Finding>,
    /// The same for programs, by name.
    pub facts: BTreeMap<&'static str, Value>,
}

impl Finding {
    /// Adds the way to remove it.
    pub fn remedy(&mut self, remedy: impl Into<String>) -> &mut Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl Report {
    /// Something is as it should be.
    pub fn ok(&mut self, topic: &'static str, text: impl Into<String>) -> &mut Finding {
        self.add(topic, Verdict::Ok, text.into())
    }

    /// Something is good to know.
    pub fn note(&mut self, topic: &'static str, text: impl Into<String>) -> &mut Finding {
        self.add(topic, Verdict::Note, text.into())
    }

    /// Something could not be looked at.
    pub fn unknown(&mut self, topic: &'static str, text: impl Into<String>) -> &mut Finding {
        self.add(topic, Verdict::Unknown, text.into())
    }

    /// Something is in the way.
    pub fn obstacle(&mut self, topic: &'static str, text: impl Into<String>) -> &mut Finding {
        self.add(topic, Verdict::Obstacle, text.into())
    }

    fn add(&mut self, topic: &'static str, verdict: Verdict, text: String) -> &mut Finding {
        self.findings.push(Finding { topic, verdict, text, remedy: None });
        self.findings.last_mut().expect("just added")
    }

    /// Notes a fact.
    pub fn fact(&mut self, name: &'static str, value: impl Into<Value>) {
        self.facts.insert(name, value.into());
    }

    /// The number of findings with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// The exit status: obstacles count more than unknowns.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self.findings.iter().map(|finding| finding.verdict).max() {
            Some(Verdict::Obstacle) => EXIT_OBSTACLES,
            Some(Verdict::Unknown) => EXIT_UNKNOWN,
            Some(Verdict::Ok | Verdict::Note) | None => EXIT_READY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let mut report = Report::default();
        for (verdict, expected) in [
            (Verdict::Ok, EXIT_READY),
            (Verdict::Note, EXIT_READY),
            (Verdict::Unknown, EXIT_UNKNOWN),
            (Verdict::Obstacle, EXIT_OBSTACLES),
            (Verdict::Unknown, EXIT_OBSTACLES),
        ] {
            report.add("topic", verdict, "text".to_owned());
            assert_eq!(report.exit_status(), expected, "{verdict:?}");
        }
        assert_eq!(report.count(Verdict::Unknown), 2);
    }
}
