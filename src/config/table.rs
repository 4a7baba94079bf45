//! Every option in one table: its name, the values that it accepts, and its default.
//!
//! Parsing, `bulrush config`, `config/typha.cfg` and the table in docs/operations.md are all made from this. A default
//! stands here and nowhere else. Names, types and defaults are Typha's unless an option is marked as ours.

mod endpoints;
mod server;
mod sources;

use super::spec::{Kind, OptionSpec};

/// Words of the log severity options.
pub const SEVERITIES: &[&str] = &["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
/// Words that the level of the early log accepts.
const EARLY_LEVELS: &[&str] = &["trace", "debug", "info", "warning", "warn", "error", "fatal", "panic"];

const BOOL: Kind = Kind::Bool;
const PORT: Kind = Kind::Int { min: 0, max: 65535 };
const COUNT: Kind = Kind::Int { min: 1, max: i32::MAX };
const ANY_COUNT: Kind = Kind::Int { min: 0, max: i32::MAX };
const FILE: Kind = Kind::File { must_exist: false };
const EXISTING_FILE: Kind = Kind::File { must_exist: true };

/// The path of the configuration file when none is given.
pub const DEFAULT_FILE: &str = "/etc/calico/typha.cfg";

/// The parts of the table, in its order.
const PARTS: [&[OptionSpec]; 3] = [sources::OPTIONS, endpoints::OPTIONS, server::OPTIONS];
const LENGTH: usize = PARTS[0].len() + PARTS[1].len() + PARTS[2].len();

/// All options, grouped.
pub const OPTIONS: &[OptionSpec] = &joined();

const fn joined() -> [OptionSpec; LENGTH] {
    let mut all = [PARTS[0][0]; LENGTH];
    let (mut next, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut index = 0;
        while index < PARTS[part].len() {
            all[next] = PARTS[part][index];
            next += 1;
            index += 1;
        }
        part += 1;
    }
    all
}

/// The option with this name, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    OPTIONS.iter().find(|spec| spec.name.eq_ignore_ascii_case(name))
}
