//! The forms of named sections.

use std::fmt::Write;

use super::text::{columns, comment, explain, markdown_row, table_row, write_option};
use crate::config::sections::SectionOptions;
use crate::config::spec::Section;
use crate::config::table::of_section;

/// The example of the generated file, line by line.
const EXAMPLE: &str = r#"[datastore "git"]
Type = file
Path = /etc/mesh

[datastore "cluster"]
Type = kubernetes
Required = false

[syncer "mesh"]
Sources = git, cluster
Kinds = networking.istio.io/*, v1/ConfigMap
Selector = app in (web,shop)
Schemas = /etc/mesh/schemas
"#;

/// The end of the generated file: comments that explain named sections and their options.
pub(super) fn explanation() -> String {
    let mut out = String::from("\n# ---- Any configuration: sections with a name in double quotes (ours) ----\n#\n");
    comment(
        &mut out,
        "A section [datastore \"name\"] describes a datastore, a section [syncer \"name\"] the kinds that agents get from some of \
         them under this name. Sections stand at the end, for all settings below a heading belong to it. Their options have no \
         variables. With CalicoSyncers = none they are all that is served. An example:",
    );
    out.push_str("#\n");
    for line in EXAMPLE.lines() {
        let _ = writeln!(out, "{}", format!("#     {line}").trim_end());
    }
    out.push_str("#\n");
    comment(
        &mut out,
        "A # or ; begins a comment anywhere in a value: put a value that has one in backticks. Colons and equals signs in values \
         need nothing. A backslash at the end of a line goes on with the next one.",
    );
    for section in Section::NAMED {
        let _ = writeln!(out, "\n# {}", section.heading("name"));
        let mut only_for = "";
        for spec in of_section(section) {
            if spec.only_for != only_for {
                only_for = spec.only_for;
                let of = if only_for.is_empty() { "all types".to_owned() } else { format!("Type = {only_for}") };
                let _ = writeln!(out, "#\n# For {of}:");
            }
            out.push_str("#\n");
            explain(&mut out, spec);
            let default = match (spec.required, spec.default) {
                (true, _) => "It is required.".to_owned(),
                (false, "") => "It is empty by default.".to_owned(),
                (false, default) => format!("The default is {default}."),
            };
            comment(&mut out, &default);
        }
    }
    out
}

/// Named sections in the form of `typha.cfg`: the end of a file whose beginning is [`cfg`](super::cfg).
#[must_use]
pub fn cfg_sections(sections: &[SectionOptions]) -> String {
    let mut out = String::new();
    for section in sections {
        let _ = write!(out, "\n{}\n", section.heading());
        for option in &section.options {
            out.push('\n');
            write_option(&mut out, option);
        }
    }
    out
}

/// Named sections for a terminal.
pub(super) fn tables(sections: &[SectionOptions]) -> String {
    let mut out = String::new();
    for section in sections {
        let _ = writeln!(out, "\n{}  {}", section.heading(), section.source);
        out.push_str(&columns(&["OPTION", "VALUE", "DEFAULT", "FROM"], section.options.iter().map(table_row)));
    }
    out
}

/// The tables of docs/operations.md for named sections.
pub(super) fn markdown() -> String {
    let mut out = String::new();
    for section in Section::NAMED {
        let _ = write!(out, "### `{}`\n\n", section.heading("name"));
        out.push_str("| option | accepts | default | what it does |\n|---|---|---|---|\n");
        for spec in of_section(section) {
            out.push_str(&markdown_row(spec));
        }
        out.push('\n');
    }
    out
}
