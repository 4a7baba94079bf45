//! One object against its compiled schema: a walk through both, with all that is wrong.
//!
//! Pure. Used by [`library`](super::library). At each place: the type, the rules for values, the fields and items, then the rules in CEL if all
//! below has the right form (others would only fail). With the old object: transition rules, and what was wrong before and was not touched
//! is left alone, as the API server does.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cel::{self, Bindings, Sizes, Verdict};
use super::limits;
use super::metadata;
use super::node::{Additional, ListType, Node, Type};
use super::wording::{no_branch, only_required, quoted, some_of};
use crate::model::finding::{
    Finding, Findings, MISSING_FIELD, REPEATED, RULE_BROKEN, UNKNOWN_FIELD, WRONG_TYPE, escaped,
};
use crate::model::nearest::nearest;

/// Most findings that a walk gathers before it leaves out the rest.
pub(super) const MAX_GATHERED: usize = 1000;
/// Rule: a rule in CEL costs too much to evaluate.
pub const RULE_TOO_COSTLY: &str = "rule-too-costly";
/// Rule: a rule in CEL cannot be evaluated.
pub const RULE_FAILED: &str = "rule-failed";

/// A step from a value to a part of it.
#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Field(&'a str),
    Item(usize),
}

/// A finding, and its kind.
struct Noted {
    finding: Finding,
    /// An update that did not touch the value may keep it.
    ratchets: bool,
}

/// A walk through one object.
pub(super) struct Walk<'a> {
    path: Vec<Step<'a>>,
    noted: Vec<Noted>,
    left_out: usize,
    /// Findings so far that make rules in CEL useless.
    blocking: usize,
    /// Sizes of the whole object: an upper bound for those of its parts.
    sizes: Option<Sizes>,
    root: &'a Value,
}

/// The treatment of fields at a place that its schema does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// The schema of the place: unknown fields are mistakes.
    Whole,
    /// A branch of `anyOf` and the like, which says something in addition.
    Branch,
}

/// All that is wrong with an object. Findings beyond [`MAX_GATHERED`] are counted only.
pub(super) fn check(object: &Value, old: Option<&Value>, node: &Node, findings: &mut Findings) {
    let mut walk = Walk { path: Vec::new(), noted: Vec::new(), left_out: 0, blocking: 0, sizes: None, root: object };
    walk.visit(object, old, node, Manner::Whole);
    let left_out = walk.left_out;
    walk.noted.into_iter().for_each(|noted| findings.add(noted.finding));
    findings.leave_out(left_out);
}

impl<'a> Walk<'a> {
    fn visit(&mut self, value: &'a Value, old: Option<&'a Value>, node: &'a Node, manner: Manner) {
        let (noted, blocking) = (self.noted.len(), self.blocking);
        if value.is_null() {
            if !node.nullable && (node.kind.is_some() || node.int_or_string) {
                self.wrong_type(value, node);
            }
        } else if Self::has_type(value, node) {
            if let Some(limits) = &node.limits {
                let mut noted = Vec::new();
                limits::check(value, limits, &mut noted);
                for finding in noted {
                    let ratchets = finding.id != MISSING_FIELD;
                    self.note(finding, ratchets);
                }
                self.branches(value, node);
            }
            match value {
                Value::Object(fields) => self.fields(fields, old, node, manner),
                Value::Array(items) => self.items(items, old, node, manner),
                _ => {}
            }
        } else {
            self.wrong_type(value, node);
        }
        if !node.rules.is_empty() && self.blocking == blocking && manner == Manner::Whole {
            self.rules(value, old, node);
        }
        if self.noted.len() > noted && old == Some(value) {
            let mut at = 0;
            self.noted.retain(|finding| {
                at += 1;
                at <= noted || !finding.ratchets
            });
        }
    }

    fn has_type(value: &Value, node: &Node) -> bool {
        if node.int_or_string {
            return Type::Integer.fits(value) || value.is_string();
        }
        node.kind.is_none_or(|kind| kind.fits(value))
    }

    fn wrong_type(&mut self, value: &Value, node: &Node) {
        let expected = match node.kind {
            _ if node.int_or_string => "a whole number or a text",
            Some(kind) => kind.in_words(),
            None => "a value",
        };
        let hint = match (node.kind, value) {
            (Some(Type::String), Value::Number(_) | Value::Bool(_)) => ": put it in quotes",
            (Some(Type::Integer | Type::Number | Type::Boolean), Value::String(_)) => ": without quotes",
            _ => "",
        };
        self.note(Finding::of_value(WRONG_TYPE, "", &quoted(value), format!("{expected}{hint}")), true);
    }

    fn fields(&mut self, fields: &'a Map<String, Value>, old: Option<&'a Value>, node: &'a Node, manner: Manner) {
        let old = old.filter(|_| !node.atomic).and_then(Value::as_object);
        if node.embedded && !self.path.is_empty() {
            let mut found = Findings::none();
            metadata::check_embedded(fields, "", &mut found);
            found.into_vec().into_iter().for_each(|finding| self.note(finding, true));
        }
        for (name, value) in fields {
            let old = old.and_then(|old| old.get(name));
            self.path.push(Step::Field(name));
            let of_object = node.embedded && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            match (node.properties.get(name), &node.additional) {
                // The fields of metadata are the same for all kinds: a schema only adds rules for the name.
                (Some(inner), _) if of_object => self.visit(value, old, inner, Manner::Branch),
                (Some(inner), _) => self.visit(value, old, inner, manner),
                (None, Additional::Schema(inner)) if !of_object => self.visit(value, old, inner, manner),
                (None, _) if manner == Manner::Whole && node.is_closed() && !of_object => self.unknown(name, node),
                _ => {}
            }
            self.path.pop();
        }
    }

    /// Notes a field that the schema does not have.
    fn unknown(&mut self, name: &str, node: &Node) {
        let near = nearest(name, node.properties.keys().map(String::as_str));
        let fault = match near {
            Some(_) => String::new(),
            None if node.properties.is_empty() => {
                "there is no such field: the schema has none at this place".to_owned()
            }
            None => format!("there is no such field; the schema has {}", some_of(node.properties.keys())),
        };
        self.note(Finding::of_field(UNKNOWN_FIELD, "", fault).suggesting(near), false);
    }

    fn items(&mut self, items: &'a [Value], old: Option<&'a Value>, node: &'a Node, manner: Manner) {
        let keyed = match &node.list {
            ListType::Map(keys) => Some(keys),
            _ => None,
        };
        let old = keyed.and_then(|keys| Some(by_key(old?.as_array()?, keys)));
        if let Some(inner) = node.items.as_deref() {
            for (index, item) in items.iter().enumerate() {
                let before = keyed.zip(old.as_ref()).and_then(|(keys, old)| old.get(&key_of(item, keys)).copied());
                self.path.push(Step::Item(index));
                self.visit(item, before, inner, manner);
                self.path.pop();
            }
        }
        match &node.list {
            ListType::Atomic => {}
            ListType::Set => self.repeated(items, ToString::to_string, &[]),
            ListType::Map(keys) => self.repeated(items, |item| key_of(item, keys), keys),
        }
    }

    /// Notes items that are there twice, by what makes them the same.
    fn repeated(&mut self, items: &'a [Value], identity: impl Fn(&Value) -> String, keys: &[String]) {
        let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let Some(first) = seen.insert(identity(item), index) else { continue };
            seen.insert(identity(item), first);
            let by = if keys.is_empty() { String::new() } else { format!(" by {}", keys.join(" and ")) };
            self.path.push(Step::Item(index));
            let fault = format!("the same{by} as item {first}: the list has each once");
            self.note(Finding::of_field(REPEATED, "", fault), false);
            self.path.pop();
        }
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`.
    fn branches(&mut self, value: &'a Value, node: &'a Node) {
        let Some(limits) = &node.limits else { return };
        for branch in &limits.all_of {
            let noted = self.noted.len();
            self.visit(value, None, branch, Manner::Branch);
            self.noted[noted..].iter_mut().for_each(|noted| noted.ratchets = false);
        }
        for (branches, only_one) in [(&limits.any_of, false), (&limits.one_of, true)] {
            if branches.is_empty() {
                continue;
            }
            let faults: Vec<Option<Finding>> = branches.iter().map(|branch| self.fault(value, branch)).collect();
            let fitting: Vec<String> =
                (1..).zip(&faults).filter(|(_, fault)| fault.is_none()).map(|(n, _)| n.to_string()).collect();
            if fitting.is_empty() {
                let faults: Vec<Finding> = faults.into_iter().flatten().collect();
                self.note(no_branch(&faults), false);
            } else if only_one && fitting.len() > 1 {
                let set: Vec<&str> =
                    branches.iter().filter(|branch| accepts(branch, value)).filter_map(only_required).collect();
                let fault = if set.len() > 1 {
                    format!("only one of {} may be set", set.join(", "))
                } else {
                    format!(
                        "exactly one alternative may hold, and {} do: alternatives {}",
                        fitting.len(),
                        fitting.join(", ")
                    )
                };
                self.note(Finding::of_field(limits::NO_ALTERNATIVE, "", fault), false);
            }
        }
        if let Some(not) = &limits.not
            && accepts(not, value)
        {
            let fault = match only_required(not) {
                Some(field) => format!("{field} may not be set here"),
                None => "the schema says what it must not be, and it is".to_owned(),
            };
            self.note(Finding::of_field(limits::NO_ALTERNATIVE, "", fault), false);
        }
    }

    /// The first fault of a value in a branch, with its path below the value.
    fn fault(&self, value: &'a Value, branch: &'a Node) -> Option<Finding> {
        let mut walk =
            Walk { path: Vec::new(), noted: Vec::new(), left_out: 0, blocking: 0, sizes: None, root: self.root };
        walk.visit(value, None, branch, Manner::Branch);
        walk.noted.into_iter().next().map(|noted| noted.finding)
    }

    fn rules(&mut self, value: &'a Value, old: Option<&'a Value>, node: &'a Node) {
        let root = self.root;
        let sizes = self.sizes.take().unwrap_or_else(|| Sizes::of(root));
        let bindings = Bindings::new(value, old, node);
        for rule in &node.rules {
            let (id, fault) = match cel::evaluate(rule, &bindings, value, &sizes) {
                Verdict::Holds => continue,
                Verdict::Broken(message) => (RULE_BROKEN, message),
                Verdict::TooCostly(reason) => (RULE_TOO_COSTLY, reason),
                Verdict::Failed(reason) => (RULE_FAILED, reason),
            };
            let below: String = rule.field.iter().map(|step| format!("/{}", escaped(step))).collect();
            self.note(Finding::of_field(id, below, fault), !rule.transition);
        }
        self.sizes = Some(sizes);
    }

    /// Notes a finding, whose path is below the present place.
    fn note(&mut self, mut finding: Finding, ratchets: bool) {
        if ![UNKNOWN_FIELD, RULE_BROKEN].contains(&finding.id) {
            self.blocking += 1;
        }
        if self.noted.len() >= MAX_GATHERED {
            self.left_out += 1;
            return;
        }
        finding.path.insert_str(0, &self.pointer());
        self.noted.push(Noted { finding, ratchets });
    }

    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => {
                    pointer.push('/');
                    pointer.push_str(&escaped(name));
                }
                // Writing to a text cannot fail.
                Step::Item(index) => {
                    let _ = write!(pointer, "/{index}");
                }
            }
        }
        pointer
    }
}

/// Whether a value fits a branch.
fn accepts(branch: &Node, value: &Value) -> bool {
    let mut walk = Walk { path: Vec::new(), noted: Vec::new(), left_out: 0, blocking: 0, sizes: None, root: value };
    walk.visit(value, None, branch, Manner::Branch);
    walk.noted.is_empty()
}

/// The identity of an item of a list of type map.
fn key_of(item: &Value, keys: &[String]) -> String {
    let mut text = String::new();
    for key in keys {
        // Writing to a text cannot fail.
        let _ = write!(text, "{},", item.get(key).unwrap_or(&Value::Null));
    }
    text
}

fn by_key<'a>(items: &'a [Value], keys: &[String]) -> HashMap<String, &'a Value> {
    items.iter().map(|item| (key_of(item, keys), item)).collect()
}
