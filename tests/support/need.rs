//! Real programs that tests need. A program is found, or left out on request, or the test fails and says how to get it.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable with the programs to leave out: names as for `tests/run --without`, with commas between.
const WITHOUT: &str = "BULRUSH_WITHOUT";
/// The variable with the file that gets a line with the reason for every skipped test. `tests/run` counts the lines.
const SKIPPED: &str = "BULRUSH_SKIPPED";
/// The oldest etcd that is taken from PATH, the same as in `tests/run`.
const OLDEST_ETCD: (u32, u32) = (3, 5);

/// A program that tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Etcd,
    KubeApiserver,
    Kustomize,
    Helm,
    /// A program of this name in `tests/go`.
    Go(&'static str),
    /// The folder of schemas and samples of others.
    Corpora,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kustomize => "kustomize",
            Self::Helm => "helm",
            Self::Go(name) => name,
            Self::Corpora => "corpora",
        }
    }

    /// Its name for `--without`.
    fn without(self) -> &'static str {
        if matches!(self, Self::Go(_)) { "go" } else { self.name() }
    }

    /// Whether PATH has it, in a version that is new enough.
    fn is_on_path(self) -> bool {
        let argument = match self {
            Self::Etcd | Self::KubeApiserver => "--version",
            Self::Kustomize | Self::Helm => "version",
            Self::Go(_) | Self::Corpora => return false,
        };
        let output = Command::new(self.name()).arg(argument).stdin(Stdio::null()).output();
        output.is_ok_and(|output| {
            output.status.success() && (self != Self::Etcd || will_do(&String::from_utf8_lossy(&output.stdout)))
        })
    }
}

/// Whether an etcd that prints this version is new enough.
fn will_do(said: &str) -> bool {
    let version = said.lines().find_map(|line| line.strip_prefix("etcd Version: "));
    let mut numbers = version.unwrap_or_default().split('.').map_while(|number| number.parse::<u32>().ok());
    matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= OLDEST_ETCD)
}

/// The path of a program: from PATH, or from the folder into which `tests/run` builds it. `None`: it is left out, and the test returns
/// at once; each such call counts as a skipped test.
///
/// # Panics
/// The program is in neither place; the message says how to get it.
pub(crate) fn need(program: Program) -> Option<PathBuf> {
    let without = std::env::var(WITHOUT).unwrap_or_default();
    if without.split(',').any(|name| name == program.without()) {
        skip(&format!("{} is left out", program.without()));
        return None;
    }
    if program.is_on_path() {
        return Some(program.name().into());
    }
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/.cache").join(program.name());
    assert!(
        built.exists(),
        "{name} is needed and is neither on PATH nor at {built}: `tests/run` builds it (`tests/run nothing` does only \
         that), `tests/run --without {without}` leaves out the tests that need it",
        name = program.name(),
        built = built.display(),
        without = program.without()
    );
    Some(built)
}

/// Records that a test is skipped.
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(path) = std::env::var_os(SKIPPED) else { return };
    // One write for the whole line: test processes share the file.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot note a skipped test in {}: {error}", path.display()));
}

#[test]
fn an_old_etcd_is_refused() {
    for (said, expected) in [
        ("etcd Version: 3.4.30\nGit SHA: x\n", false),
        ("etcd Version: 3.5.0\n", true),
        ("etcd Version: 3.10.1\n", true),
        ("etcd Version: 4.0.0-alpha\n", true),
        ("something else\n", false),
    ] {
        assert_eq!(will_do(said), expected, "{said}");
    }
}
