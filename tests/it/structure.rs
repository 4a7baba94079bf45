//! The rooms of `src/` import downward only, Calico's parts stay in their room, and no files import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, ensure};

/// The rooms, the lowest first: each imports only from rooms before it. ARCHITECTURE.md describes them.
const ROOMS: [&str; 34] = [
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
    "publish",
    "calico",
    "generic",
    "syncproto",
    "config",
    "logging",
    "debug",
    "tls",
    "listen",
    "outlet",
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

/// The rooms of the sync server, the lowest first. Files beside them are below all rooms.
const SERVER_ROOMS: [&str; 4] = ["feed", "client", "server", "benching"];

/// A module's path below the crate.
type Module = Vec<String>;

/// The code of the crate's modules, without comments, tests, and modules for tests and fuzzers only.
struct Crate(BTreeMap<Module, String>);

impl Crate {
    fn read() -> anyhow::Result<Self> {
        let mut modules = BTreeMap::new();
        read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &Vec::new(), &mut modules)?;
        Ok(Self(modules))
    }

    /// The file that defines the item at a path, through re-exports.
    fn owner(&self, path: &[String]) -> Option<&Module> {
        let length = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length]))?;
        let (module, _) = self.0.get_key_value(&path[..length])?;
        let Some(name) = path.get(length) else { return Some(module) };
        let exported = uses(&self.0[module], true).into_iter().find(|leaf| leaf.last() == Some(name));
        match exported.and_then(|leaf| self.absolute(&leaf, module)) {
            Some(target) if target != path => self.owner(&target),
            _ => Some(module),
        }
    }

    /// A path in a module's code as a path from the crate on. `None`: it belongs to another crate.
    fn absolute(&self, path: &[String], module: &Module) -> Option<Module> {
        let ups = path.iter().take_while(|segment| *segment == "super").count();
        let from = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => module.clone(),
            "super" => module[..module.len().checked_sub(ups)?].to_vec(),
            child if self.0.contains_key(&[module.as_slice(), &[child.to_owned()]].concat()) => {
                return Some([module.as_slice(), path].concat());
            }
            _ => return None,
        };
        Some([from.as_slice(), &path[ups.max(1)..]].concat())
    }

    /// The other files that a file imports from.
    fn imports(&self, module: &Module) -> BTreeSet<&Module> {
        let code = &self.0[module];
        let paths = uses(code, false).into_iter().chain(inline_paths(code));
        let targets = paths.filter_map(|path| self.absolute(&path, module));
        let owners = targets.filter(|target| !target.is_empty()).filter_map(|target| self.owner(&target));
        owners.filter(|owner| *owner != module && !owner.is_empty()).collect()
    }
}

fn read_folder(folder: &Path, module: &Module, found: &mut BTreeMap<Module, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a name")?.to_owned();
        if ["tests", "exercise", "fuzzing", "vectors_tests", "main", "snapshots"].contains(&name.as_str()) {
            continue;
        }
        let mut inner = module.clone();
        if !["mod", "lib"].contains(&name.as_str()) {
            inner.push(name);
        }
        if path.is_dir() {
            read_folder(&path, &inner, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            found.insert(inner, code_of(&text));
        }
    }
    Ok(())
}

/// A file's text without comments and without its tests.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The `use` items of some code. Each has: whether it is a re-export, its tree, its position.
fn use_items(code: &str) -> Vec<(bool, &str, Range<usize>)> {
    let mut items = Vec::new();
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let item = line.trim_start();
        let restricted = item.strip_prefix("pub(").and_then(|rest| rest.split_once(") ")).map(|(_, rest)| rest);
        let exported = restricted.or_else(|| item.strip_prefix("pub "));
        if let Some(rest) = exported.unwrap_or(item).strip_prefix("use ") {
            let begin = start + line.len() - rest.len();
            let end = code[begin..].find(';').map_or(code.len(), |length| begin + length);
            items.push((exported.is_some(), &code[begin..end], start..end));
        }
        start += line.len();
    }
    items
}

/// The paths of all `use` items that are re-exports, or of all others.
fn uses(code: &str, exporting: bool) -> Vec<Module> {
    let mut paths = Vec::new();
    for (_, tree, _) in use_items(code).into_iter().filter(|(exports, ..)| *exports == exporting) {
        leaves(&[], tree, &mut paths);
    }
    paths
}

/// The paths of a `use` tree to its items, without `self` and renamings.
fn leaves(prefix: &[String], tree: &str, paths: &mut Vec<Module>) {
    let tree = tree.trim();
    let segments = |text: &str| -> Module {
        let names = text.split("::").map(str::trim).filter(|name| !name.is_empty());
        prefix.iter().cloned().chain(names.map(str::to_owned)).collect()
    };
    let Some((head, inner)) = tree.split_once('{') else {
        let mut path = segments(tree.split(" as ").next().unwrap_or_default());
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        return paths.push(path);
    };
    let head = segments(head);
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut begin) = (0_usize, 0);
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                if !inner[begin..at].trim().is_empty() {
                    leaves(&head, &inner[begin..at], paths);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths that begin with `crate`, `self` or `super` outside of `use` items.
fn inline_paths(code: &str) -> Vec<Module> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = code.to_owned();
    for (.., place) in use_items(code).into_iter().rev() {
        rest.replace_range(place, "");
    }
    let rest = rest.replace("pub(in super::super)", "").replace("pub(in crate", "(");
    let words = rest.split(|c: char| !is_name(c) && c != ':');
    let paths = words.map(|word| word.split("::").map(str::to_owned).collect::<Module>());
    paths.filter(|path| path.len() > 1 && ["crate", "self", "super"].contains(&path[0].as_str())).collect()
}

#[test]
fn rooms_import_downward_only() -> anyhow::Result<()> {
    let source = Crate::read()?;
    let (mut upward, mut imports, mut seen) = (Vec::new(), 0, BTreeSet::new());
    for module in source.0.keys().filter(|module| !module.is_empty()) {
        let level = |room: &str| ROOMS.iter().position(|known| *known == room);
        let own = level(&module[0]).with_context(|| format!("src/{} has no place in the list of rooms", module[0]))?;
        seen.insert(module[0].as_str());
        let server_level = |module: &Module| {
            let room = module.get(1).map_or("", String::as_str);
            SERVER_ROOMS.iter().position(|known| *known == room).map_or(0, |level| level + 1)
        };
        for other in source.imports(module) {
            imports += 1;
            let inside = module[0] == "syncserver" && other[0] == "syncserver" && module.len() > 1;
            if level(&other[0]).is_none_or(|other| other > own)
                || (inside && server_level(other) > server_level(module))
            {
                upward.push(format!("{} imports {}", module.join("::"), other.join("::")));
            }
        }
    }
    ensure!(upward.is_empty(), "imports that go up:\n{}", upward.join("\n"));
    ensure!(imports > 1000, "only {imports} imports were found: is the reader broken?");
    let gone: Vec<&&str> = ROOMS.iter().filter(|room| **room != "lib" && !seen.contains(**room)).collect();
    ensure!(gone.is_empty(), "rooms that do not exist: {gone:?}");
    Ok(())
}

#[test]
fn no_files_import_each_other_in_a_circle() -> anyhow::Result<()> {
    let source = Crate::read()?;
    let mut left: BTreeMap<&Module, BTreeSet<&Module>> =
        source.0.keys().map(|module| (module, source.imports(module))).collect();
    // A file that imports none of the remaining files is in no circle.
    loop {
        let ends: Vec<&Module> = left
            .iter()
            .filter(|(_, imports)| !imports.iter().any(|other| left.contains_key(*other)))
            .map(|(m, _)| *m)
            .collect();
        if ends.is_empty() {
            break;
        }
        for end in ends {
            left.remove(end);
        }
    }
    let show = |(module, imports): (&&Module, &BTreeSet<&Module>)| {
        let others: Vec<String> =
            imports.iter().filter(|other| left.contains_key(*other)).map(|m| m.join("::")).collect();
        format!("{} imports {}", module.join("::"), others.join(", "))
    };
    let circles: Vec<String> = left.iter().map(show).collect();
    ensure!(circles.is_empty(), "files in a circle, and those that import them:\n{}", circles.join("\n"));
    Ok(())
}

#[test]
fn imports_are_found_everywhere_in_a_file() {
    let text = "//! [`crate::cli`]\nuse crate::model::{Key, sub::{self, Deep as D}};\npub(crate) use self::own::Item;\nfn f(x: &crate::tls::Policy) {\n    // crate::daemon\n    super::http::serve(x)\n}\n#[cfg(test)]\nmod tests { use crate::syncer; }";
    let code = code_of(text);
    let joined = |paths: Vec<Module>| paths.into_iter().map(|path| path.join("::")).collect::<Vec<_>>();
    assert_eq!(joined(uses(&code, false)), ["crate::model::Key", "crate::model::sub", "crate::model::sub::Deep"]);
    assert_eq!(joined(uses(&code, true)), ["self::own::Item"]);
    let inline = joined(inline_paths(&code));
    assert!(inline.contains(&"crate::tls::Policy".to_owned()) && inline.contains(&"super::http::serve".to_owned()));
    assert!(!inline.iter().any(|path| path.contains("daemon") || path.contains("syncer")));
}
