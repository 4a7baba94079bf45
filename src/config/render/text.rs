//! The forms of one option: as lines of `typha.cfg`, as a row of a table.

use std::fmt::Write;

use crate::config::mistake::Source;
use crate::config::parse::Value;
use crate::config::resolve::Resolved;
use crate::config::spec::{OptionSpec, Zero};

/// Width of explanations in the generated file.
const WIDTH: usize = 110;

/// Appends an option with its explanation. An option that is not set is commented out, with its default.
pub(super) fn write_option(out: &mut String, option: &Resolved) {
    let spec = option.spec;
    explain(out, spec);
    if spec.plain_variable {
        let default = if spec.default.is_empty() { "unset" } else { spec.default };
        comment(out, &format!("Only as the environment variable {}; default: {default}", spec.name));
        return;
    }
    let line = match option.source {
        Source::Default => format!("#{} = {}", spec.name, spec.default),
        _ => format!("{} = {}", spec.name, quoted(&option.value)),
    };
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Appends what an option does, and what it accepts.
pub(super) fn explain(out: &mut String, spec: &OptionSpec) {
    let ours = if spec.ours { " (ours)" } else { "" };
    comment(out, &format!("{}{ours}: {}", spec.name, spec.doc));
    let zero = match spec.zero {
        Zero::Becomes(replacement) if spec.unit.is_empty() => format!(" none means {replacement}."),
        Zero::Becomes(replacement) => format!(" none and 0 mean {replacement}."),
        Zero::Refused | Zero::Plain => String::new(),
    };
    comment(out, &format!("Accepts {}.{zero}", spec.accepts()));
}

/// A value, in quotes if the file format needs them for it.
fn quoted(value: &Value) -> String {
    let text = value.to_string();
    let needs = text.contains(['#', ';', '\\', '`', '\n']) || text.starts_with(['"', '\'']) || text.trim() != text;
    match text.as_str() {
        "" => "none".to_owned(),
        _ if needs && !text.contains('`') => format!("`{text}`"),
        _ if needs => format!("\"\"\"{text}\"\"\""),
        _ => text,
    }
}

/// Appends a text as lines of comment.
pub(super) fn comment(out: &mut String, text: &str) {
    let mut width = 0;
    for word in text.split(' ') {
        if width == 0 || width + 1 + word.len() > WIDTH {
            if width != 0 {
                out.push('\n');
            }
            out.push('#');
            width = 1;
        }
        out.push(' ');
        out.push_str(word);
        width += 1 + word.len();
    }
    out.push('\n');
}

/// An option for a terminal: name, value, default, source.
pub(super) fn table_row(option: &Resolved) -> [String; 4] {
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let ours = if option.spec.ours { "*" } else { "" };
    let source = match (&option.source, option.note.as_str()) {
        (source, "") => source.to_string(),
        (source, note) => format!("{source} ({note})"),
    };
    [format!("{}{ours}", option.spec.name), shown(&option.value.to_string()), shown(option.spec.default), source]
}

/// Left-aligned columns, each as wide as its widest cell.
#[must_use]
pub fn columns<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// An option as a row of a table in the docs.
pub(super) fn markdown_row(spec: &OptionSpec) -> String {
    let ours = if spec.ours { " (ours)" } else { "" };
    let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
    let unit = if spec.unit.is_empty() { String::new() } else { format!(" ({})", spec.unit) };
    let zero = match spec.zero {
        Zero::Becomes(replacement) => {
            format!(" `none`{} means {replacement}.", if spec.unit.is_empty() { "" } else { " or 0" })
        }
        Zero::Refused => " `none` is a mistake.".to_owned(),
        Zero::Plain => String::new(),
    };
    let plain = if spec.plain_variable { " Only as a variable of this name." } else { "" };
    let required = if spec.required { " Required." } else { "" };
    let of = if spec.only_for.is_empty() { String::new() } else { format!("Type = {}: ", spec.only_for) };
    let doc = spec.doc.replace('<', "&lt;");
    format!("| `{}`{ours} | {}{unit} | {default} | {of}{doc}{zero}{required}{plain} |\n", spec.name, spec.accepts())
}
