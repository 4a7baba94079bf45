//! Prints objects: a table for people, JSON, YAML and names for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::object::Found;
use crate::cli::lines::Form;
use crate::cli::render::printable;
use crate::cli::screen::{Colour, Screen};

/// Characters of a revision that a table shows: enough to tell two versions of an object apart.
const REVISION_CHARS: usize = 12;

/// Forms of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Rows, for people.
    Table,
    /// JSON: the object, or a list of them.
    Json,
    /// The same as YAML.
    Yaml,
    /// Kinds and names.
    Name,
}

/// Prints objects in one form.
#[derive(Debug)]
pub(super) struct Printer {
    format: Format,
    screen: Screen,
    /// Whether the table has a column for namespaces.
    namespaces: bool,
    /// Whether changes follow, whose signs need room.
    changes: bool,
    /// Widths of the columns, as far as they are known.
    widths: [usize; 4],
}

/// An object that has changed, for programs.
#[derive(Serialize)]
struct Changed<'a> {
    change: &'static str,
    kind: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'a Value>,
}

/// The effect of an update on what is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    New,
    Updated,
    Deleted,
}

impl Printer {
    pub(super) fn new(format: Format, screen: Screen, namespaces: bool, changes: bool) -> Self {
        Self { format, screen, namespaces, changes, widths: [0; 4] }
    }

    /// All objects. `one`: a single one was asked for by its name, so it is not put into a list.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn list(&mut self, found: &[&Found], one: bool, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            Format::Table => self.table(found, out),
            Format::Name => found.iter().try_for_each(|found| writeln!(out, "{}", printable(&found.short()))),
            Format::Json | Format::Yaml => {
                let bodies: Vec<&Value> = found.iter().filter_map(|found| found.body.as_ref()).collect();
                let list;
                let shown = if let ([body], true) = (&bodies[..], one) {
                    body
                } else {
                    list = json!({ "apiVersion": "v1", "kind": "List", "items": bodies });
                    &list
                };
                if self.format == Format::Json {
                    serde_json::to_writer_pretty(&mut *out, shown)?;
                    return out.write_all(b"\n");
                }
                let text = serde_saphyr::to_string(shown).map_err(io::Error::other)?;
                writeln!(out, "{}", text.trim_end())
            }
        }
    }

    /// A change of one object.
    ///
    /// # Errors
    /// The output is closed or broken.
    pub(super) fn change(&mut self, change: Change, found: &Found, out: &mut impl Write) -> io::Result<()> {
        let (sign, colour, word) = match change {
            Change::New => ("+ ", Colour::Green, "new"),
            Change::Updated => ("~ ", Colour::Yellow, "updated"),
            Change::Deleted => ("- ", Colour::Red, "deleted"),
        };
        let form = match self.format {
            Format::Table => {
                let row = self.row(sign, &Self::cells(found));
                return writeln!(out, "{}", self.screen.paint(colour, &row));
            }
            Format::Name => return writeln!(out, "{sign}{}", printable(&found.short())),
            Format::Json => Form::Json,
            Format::Yaml => Form::Yaml,
        };
        let (kind, namespace, name) = (found.kind.to_string(), &*found.namespace, &*found.name);
        form.print(&Changed { change: word, kind, namespace, name, object: found.body.as_ref() }, out)
    }

    fn table(&mut self, found: &[&Found], out: &mut impl Write) -> io::Result<()> {
        let header = ["NAMESPACE", "NAME", "CREATED", "REVISION"].map(str::to_owned);
        let rows: Vec<[String; 4]> = found.iter().map(|found| Self::cells(found)).collect();
        for row in rows.iter().chain([&header]) {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let sign = if self.changes { "  " } else { "" };
        writeln!(out, "{}", self.screen.paint(Colour::Faint, &self.row(sign, &header)))?;
        rows.iter().try_for_each(|row| writeln!(out, "{}", self.row(sign, row)))
    }

    fn cells(found: &Found) -> [String; 4] {
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { printable(text).into_owned() };
        let revision: String = found.revision.chars().take(REVISION_CHARS).collect();
        [or_dash(&found.namespace), or_dash(&found.name), or_dash(found.created()), or_dash(&revision)]
    }

    fn row(&self, sign: &str, cells: &[String; 4]) -> String {
        let skipped = usize::from(!self.namespaces);
        let mut row = sign.to_owned();
        for (cell, width) in cells.iter().zip(self.widths).skip(skipped) {
            row.push_str(&format!("{cell:width$}  "));
        }
        row.truncate(row.trim_end().len());
        row
    }
}
