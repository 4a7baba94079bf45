//! The rooms of `src/` import downward only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// The rooms, the lowest first: each imports only from those before it. ARCHITECTURE.md says what they are for.
const ROOMS: [&str; 31] = [
    "sync",
    "sizing",
    "model",
    "health",
    "metrics",
    "problems",
    "demand",
    "tasks",
    "datastore",
    "decoupler",
    "validate",
    "syncer",
    "replicas",
    "snapcache",
    "dialect",
    "syncproto",
    "config",
    "logging",
    "debug",
    "tls",
    "listen",
    "syncserver",
    "status",
    "http",
    "syncclient",
    "rebalance",
    "pipeline",
    "daemon",
    "preflight",
    "cli",
    "lib",
];

/// Files that only tests and fuzzers are built with.
fn is_for_tests(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let in_tests = path.components().any(|part| part.as_os_str() == "tests");
    in_tests || ["tests", "exercise", "fuzzing", "vectors_tests"].contains(&name)
}

/// All source files below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_for_tests(&path) {
            found.push(path);
        }
    }
    Ok(())
}

/// The rooms that a text names by `crate::`, without comments and without its tests.
fn imported(text: &str) -> BTreeSet<&str> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split("crate::").skip(1)).map(|rest| {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    });
    // Items of the crate itself begin with a capital; a macro's `$crate::` is followed by nothing else.
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

#[test]
fn rooms_import_downward_only() -> anyhow::Result<()> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&src, &mut all)?;
    let mut seen = BTreeSet::new();
    let (mut upward, mut imports) = (Vec::new(), 0);
    for path in &all {
        let inside = path.strip_prefix(&src)?;
        let first = inside.iter().next().and_then(|part| part.to_str()).context("a name")?;
        let room = first.strip_suffix(".rs").unwrap_or(first);
        if room == "main" {
            continue;
        }
        let level = ROOMS.iter().position(|known| *known == room);
        let level = level.with_context(|| format!("src/{room} has no place in the list of rooms"))?;
        seen.insert(room.to_owned());
        for name in imported(&fs::read_to_string(path)?) {
            imports += 1;
            match ROOMS.iter().position(|known| *known == name) {
                Some(other) if other <= level => {}
                Some(_) => upward.push(format!("{} imports crate::{name}", inside.display())),
                None => upward.push(format!("{} imports crate::{name}, which is no room", inside.display())),
            }
        }
    }
    ensure!(upward.is_empty(), "imports that go up:\n{}", upward.join("\n"));
    ensure!(imports > 300, "only {imports} imports were found: is the reader broken?");
    let gone: Vec<&&str> = ROOMS.iter().filter(|room| !seen.contains(**room)).collect();
    ensure!(gone.is_empty(), "rooms that there are not: {gone:?}");
    Ok(())
}

#[test]
fn an_import_is_found_wherever_it_stands() {
    let text = "//! [`crate::cli`]\nuse crate::model::{Key, SyncStatus};\nfn f(x: &crate::tls::Policy) {\n    // crate::daemon\n    crate::http::serve(x)\n}\n#[cfg(test)]\nmod tests { use crate::syncer; }";
    assert_eq!(imported(text), ["http", "model", "tls"].into());
}
