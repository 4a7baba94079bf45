//! `bulrush validate`: checks files of objects as the daemon and the API server would, and shows every mistake with its place.
//!
//! Needs no server. Schemas are the CRDs and JSON Schemas of `--schemas`, and those among the files themselves.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::EXIT_FAILURE;
use super::exit::ended;
use super::screen::{Colour, Screen};
use crate::calico::verdict;
use crate::model::finding::{Finding, Findings, Severity};
use crate::validate::schema::load::{self, MAX_FILE, unroll};
use crate::validate::schema::metadata::{self, kind_of};
use crate::validate::schema::text::{self, Document, MALFORMED, Position};
use crate::validate::schema::{Library, SchemaError};

/// Most findings that are shown of one document.
const MAX_SHOWN: usize = 1000;
/// Name of standard input in findings.
const STDIN: &str = "standard input";
/// Rule: a file or folder cannot be read.
const UNREADABLE: &str = "unreadable";
/// Rule: a schema does not compile.
const BAD_SCHEMA: &str = "bad-schema";
/// Rule: an object is there twice. A warning: the files may be alternatives.
const DUPLICATE_OBJECT: &str = "duplicate-object";
/// Most kinds without a schema that the summary names.
const MAX_KINDS: usize = 5;

/// Arguments of `bulrush validate`.
#[derive(Args, Clone, Debug)]
pub struct ValidateArgs {
    /// Files and folders with objects, YAML or JSON; - for standard input. May be repeated
    #[arg(short, long = "file", value_name = "PATH", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Files and folders with CRDs and JSON Schemas. Those among the objects count as well
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub schemas: Vec<PathBuf>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub output: Form,
    /// The least finding that makes the exit status 1
    #[arg(long, value_enum, default_value_t = FailOn::Error)]
    pub fail_on: FailOn,
}

/// Forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A line for each finding, and one with the sums.
    Text,
    /// One JSON document, for programs.
    Json,
}

/// Findings that make the command fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Errors.
    Error,
    /// Errors and warnings.
    Warning,
}

/// A finding and its place.
struct Placed {
    file: String,
    position: Option<Position>,
    finding: Finding,
}

/// All that was found.
#[derive(Default)]
struct Report {
    files: usize,
    objects: usize,
    findings: Vec<Placed>,
    left_out: usize,
    /// Objects without a schema, by `apiVersion/kind`.
    without_schema: BTreeMap<String, usize>,
    /// Objects that were seen: the place of the first.
    seen: HashMap<String, String>,
}

/// Checks the files and prints the findings. `input` is standard input. Returns the exit status: 1 if there are findings that make it fail.
///
/// # Errors
/// `out` cannot be written to.
pub fn run(args: &ValidateArgs, screen: Screen, input: &mut impl Read, out: &mut impl Write) -> io::Result<u8> {
    let mut report = Report::default();
    let texts = gather(args, input, &mut report);
    let library = schemas(args, &texts, &mut report);
    for (name, bytes) in &texts {
        report.files += 1;
        match text::read(bytes, is_json(name, bytes)) {
            Ok(documents) => documents.iter().for_each(|document| report.check(&library, name, document)),
            Err(error) => {
                report.place(name, error.position, Finding::of_field(MALFORMED, "", error.reason));
            }
        }
    }
    let (errors, warnings) = report.sums();
    ended(match args.output {
        Form::Text => report.print(screen, out),
        Form::Json => writeln!(out, "{:#}", report.json()),
    })?;
    let fails = errors > 0 || (args.fail_on == FailOn::Warning && warnings > 0);
    Ok(if fails { EXIT_FAILURE } else { 0 })
}

/// The texts of all files, by name.
fn gather(args: &ValidateArgs, input: &mut impl Read, report: &mut Report) -> Vec<(String, Vec<u8>)> {
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    for path in &args.files {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            match input.take(MAX_FILE + 1).read_to_end(&mut bytes) {
                Ok(read) if read as u64 > MAX_FILE => {
                    let fault = format!("it has more than {MAX_FILE} bytes");
                    report.place(STDIN, None, Finding::of_field(UNREADABLE, "", fault));
                }
                Ok(_) => texts.push((STDIN.to_owned(), bytes)),
                Err(error) => report.place(STDIN, None, Finding::of_field(UNREADABLE, "", error.to_string())),
            }
            continue;
        }
        for file in load::files(std::slice::from_ref(path), &mut errors) {
            match load::read(&file) {
                Ok(bytes) => texts.push((file.display().to_string(), bytes)),
                Err(error) => errors.push(error),
            }
        }
    }
    for error in errors {
        report.schema_error(UNREADABLE, error);
    }
    let mut seen = HashSet::new();
    texts.retain(|(name, _)| seen.insert(name.clone()));
    texts
}

/// The library of the schemas that are given, and of those among the files. Their mistakes are findings.
fn schemas(args: &ValidateArgs, texts: &[(String, Vec<u8>)], report: &mut Report) -> Library {
    let (mut library, mut errors) = (Library::empty(), Vec::new());
    let own: HashSet<PathBuf> = texts.iter().filter_map(|(name, _)| Path::new(name).canonicalize().ok()).collect();
    for file in load::files(&args.schemas, &mut errors) {
        if file.canonicalize().is_ok_and(|path| own.contains(&path)) {
            continue;
        }
        match load::read(&file) {
            Ok(bytes) => {
                for error in library.add_text(&file, &bytes) {
                    report.schema_error(BAD_SCHEMA, error);
                }
            }
            Err(error) => errors.push(error),
        }
    }
    for error in errors {
        report.schema_error(UNREADABLE, error);
    }
    for (name, bytes) in texts {
        // A text that cannot be read is reported when its objects are checked.
        let Ok(documents) = text::read(bytes, is_json(name, bytes)) else { continue };
        for document in &documents {
            let mut add = |pointer: &str, object: &Value| {
                if !is_schema(object) {
                    return;
                }
                let Err(mistakes) = library.add(object, name) else { return };
                for (place, reason) in mistakes {
                    let path = format!("{pointer}{place}");
                    let position = document.position(&path);
                    report.place(name, Some(position), Finding::of_field(BAD_SCHEMA, path, reason));
                }
            };
            unroll(&document.value, &mut String::new(), 0, &mut add);
        }
    }
    library
}

/// Whether an object among the files is a schema.
fn is_schema(object: &Value) -> bool {
    kind_of(object).0 == "apiextensions.k8s.io" || (object.get("$schema").is_some() && object.get("kind").is_none())
}

/// Whether a text is JSON: by its file's name; standard input by its first letter.
fn is_json(name: &str, bytes: &[u8]) -> bool {
    if name == STDIN { bytes.trim_ascii_start().first() == Some(&b'{') } else { load::is_json(Path::new(name)) }
}

impl Report {
    fn place(&mut self, file: &str, position: Option<Position>, finding: Finding) {
        self.findings.push(Placed { file: file.to_owned(), position, finding });
    }

    fn schema_error(&mut self, id: &'static str, error: SchemaError) {
        let finding = Finding::of_field(id, error.pointer, error.reason);
        self.place(&error.path.display().to_string(), error.position, finding);
    }

    /// Checks the objects of a document.
    fn check(&mut self, library: &Library, file: &str, document: &Document) {
        let mut all: Vec<Finding> = document.remarks.clone();
        let mut left_out = 0;
        let mut each = |pointer: &str, object: &Value| {
            if is_schema(object) && object.get("kind").is_none() {
                return;
            }
            self.objects += 1;
            let mut findings = Findings::up_to(MAX_SHOWN);
            self.check_object(library, object, &mut findings);
            if let Some(first) = self.first(object, format!("{file}:{}", document.position(pointer))) {
                findings.add(
                    Finding::of_field(DUPLICATE_OBJECT, "", format!("the same object is in {first}")).as_warning(),
                );
            }
            left_out += findings.left_out();
            for finding in findings.into_vec() {
                all.push(Finding { path: format!("{pointer}{}", finding.pointer()), ..finding });
            }
        };
        unroll(&document.value, &mut String::new(), 0, &mut each);
        self.left_out += left_out + all.len().saturating_sub(MAX_SHOWN);
        all.truncate(MAX_SHOWN);
        let mut placed: Vec<(Position, Finding)> =
            all.into_iter().map(|finding| (document.position(&finding.path), finding)).collect();
        placed.sort_by_key(|(position, _)| *position);
        for (position, finding) in placed {
            self.place(file, Some(position), finding);
        }
    }

    fn check_object(&mut self, library: &Library, object: &Value, findings: &mut Findings) {
        if let Some(found) = verdict::check(object, MAX_SHOWN) {
            return findings.extend(found);
        }
        if library.check_into(object, None, findings) {
            return;
        }
        metadata::check(object, None, findings);
        if !is_schema(object) && object.is_object() {
            let kind = format!(
                "{}/{}",
                object["apiVersion"].as_str().unwrap_or_default(),
                object["kind"].as_str().unwrap_or_default()
            );
            *self.without_schema.entry(kind).or_default() += 1;
        }
    }

    /// The place of an earlier object of the same kind and name; else this one is noted.
    fn first(&mut self, object: &Value, place: String) -> Option<String> {
        let (group, _, kind) = kind_of(object);
        let name = object.pointer("/metadata/name")?.as_str()?;
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        let identity = format!("{group}/{kind}/{namespace}/{name}");
        if let Some(first) = self.seen.get(&identity) {
            return Some(first.clone());
        }
        self.seen.insert(identity, place);
        None
    }

    fn sums(&self) -> (usize, usize) {
        let errors = self.findings.iter().filter(|placed| placed.finding.severity == Severity::Error).count();
        (errors, self.findings.len() - errors)
    }

    fn print(&self, screen: Screen, out: &mut impl Write) -> io::Result<()> {
        for Placed { file, position, finding } in &self.findings {
            let place = position.map(|position| format!(":{position}")).unwrap_or_default();
            let line = printable(&finding.line());
            let (word, colour) = match finding.severity {
                Severity::Error => ("error", Colour::Red),
                Severity::Warning => ("warning", Colour::Yellow),
            };
            let line = line.replacen(word, &screen.paint(colour, word), 1);
            writeln!(out, "{}{place} {line}", printable(file))?;
        }
        writeln!(out, "{}", self.summary())
    }

    fn summary(&self) -> String {
        let (errors, warnings) = self.sums();
        let mut sums = Vec::new();
        if errors > 0 {
            sums.push(counted(errors, "error"));
        }
        if warnings > 0 {
            sums.push(counted(warnings, "warning"));
        }
        let found = if sums.is_empty() { "no errors".to_owned() } else { sums.join(", ") };
        let left_out =
            if self.left_out > 0 { format!(" ({} more are not shown)", self.left_out) } else { String::new() };
        let mut summary =
            format!("{}, {}: {found}{left_out}", counted(self.files, "file"), counted(self.objects, "object"));
        let without: usize = self.without_schema.values().sum();
        if without > 0 {
            let mut kinds: Vec<&str> = self.without_schema.keys().take(MAX_KINDS).map(String::as_str).collect();
            if self.without_schema.len() > MAX_KINDS {
                kinds.push("…");
            }
            summary.push_str(&format!(
                "; {} without a schema: {}",
                counted(without, "object"),
                printable(&kinds.join(", "))
            ));
        }
        summary
    }

    fn json(&self) -> Value {
        let (errors, warnings) = self.sums();
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|Placed { file, position, finding }| {
                json!({
                    "file": file,
                    "line": position.map(|position| position.line),
                    "column": position.map(|position| position.column),
                    "severity": finding.severity.as_str(),
                    "id": finding.id,
                    "path": finding.pointer(),
                    "message": finding.text(),
                    "suggestion": finding.suggestion,
                })
            })
            .collect();
        json!({
            "files": self.files,
            "objects": self.objects,
            "errors": errors,
            "warnings": warnings,
            "left_out": self.left_out,
            "without_schema": self.without_schema,
            "findings": findings,
        })
    }
}

fn counted(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// Text without control characters: it comes from files, and goes to a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
