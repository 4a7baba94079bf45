//! The real binary as an operator uses it: started with options, observed from outside, told to end.
//!
//! Everything here goes through processes, files, signals and sockets. Only the many clients of [`idle`] use the library, for
//! its protocol.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::daemon::{Daemon, Running, eventually};

mod any_kind;
mod configuration;
mod datastore_away;
mod folder;
mod forwarded;
mod idle;
mod logging;
mod looking_in;
mod signals;
mod tls;

/// Exit status and output of a process.
#[derive(Debug)]
struct Finished {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Finished {
    /// Fails unless the exit status is `code`.
    fn expect_code(self, code: i32) -> anyhow::Result<Self> {
        ensure!(self.code == Some(code), "expected exit status {code}: {self:#?}");
        Ok(self)
    }
}

/// The binary, without options from the environment and without a log file.
fn bulrush() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bulrush"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("TYPHA_") {
            command.env_remove(name);
        }
    }
    command.env("TYPHA_LOGFILEPATH", "none").env("TYPHA_LOGSEVERITYSYS", "none").stdin(Stdio::null());
    command
}

/// Runs a process to its end, in bounded time.
fn finish(command: &mut Command) -> anyhow::Result<Finished> {
    // Files instead of pipes: a process that prints much must not wait for us.
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = Running(command.stdout(out.try_clone()?).stderr(err.try_clone()?).spawn()?);
    let status = eventually("the process ends", || child.0.try_wait().ok().flatten());
    let read = |file: &mut File| -> anyhow::Result<String> {
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        Ok(text)
    };
    let (out, err) = (read(&mut out)?, read(&mut err)?);
    let status = status.with_context(|| format!("{command:?} said {out}\n{err}"))?;
    Ok(Finished { code: status.code(), out, err })
}

/// A `bulrush watch` that runs beside the test.
#[derive(Debug)]
struct Watcher {
    _child: Running,
    said: PathBuf,
    _folder: TempDir,
}

impl Watcher {
    /// Starts a watcher and waits until it is in sync.
    fn start(daemon: &Daemon, arguments: &[&str]) -> anyhow::Result<Self> {
        let watcher = Self::spawn(daemon, arguments)?;
        watcher.wait_for("in-sync")?;
        Ok(watcher)
    }

    /// Starts a watcher.
    fn spawn(daemon: &Daemon, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::spawn_to(&[&["--server", &daemon.sync.to_string()], arguments].concat())
    }

    /// Starts a watcher with exactly these arguments.
    fn spawn_to(arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let said = folder.path().join("said");
        let file = File::create(&said)?;
        let mut command = bulrush();
        command.arg("watch").args(arguments);
        let child = command.stdout(file.try_clone()?).stderr(file).spawn().context("start bulrush watch")?;
        Ok(Self { _child: Running(child), said, _folder: folder })
    }

    /// The whole output so far.
    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Waits for a line that contains this text, and returns the line.
    fn wait_for(&self, text: &str) -> anyhow::Result<String> {
        self.wait_for_line(text, |line| line.contains(text))
    }

    fn wait_for_line(&self, what: &str, fits: impl Fn(&str) -> bool + Sync) -> anyhow::Result<String> {
        let line = eventually(&format!("the watcher says {what:?}"), || {
            let said = self.said();
            // The last line may still be growing.
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            whole.lines().find(|line| fits(line)).map(str::to_owned)
        });
        line.with_context(|| format!("it said:\n{}", self.said()))
    }
}

/// A folder with one pool, and the options for a daemon that serves it.
#[derive(Debug)]
struct Served {
    /// Folder for the daemon's log.
    scratch: TempDir,
    /// The served folder.
    data: TempDir,
}

impl Served {
    fn new() -> anyhow::Result<Self> {
        let served = Self { scratch: TempDir::new()?, data: TempDir::new()? };
        served.write("pool.yaml", &pool("first", "10.1.0.0/16"))?;
        Ok(served)
    }

    /// Replaces a whole file at once, as editors do.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let fresh = self.data.path().join(format!(".{name}.new"));
        fs::write(&fresh, text)?;
        fs::rename(fresh, self.data.path().join(name))?;
        Ok(())
    }

    fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.data.path().join(name))?)
    }

    /// A daemon that serves the folder, ready.
    fn daemon(&self, options: &[(&str, &str)]) -> anyhow::Result<Daemon> {
        self.daemon_in(options, &[])
    }

    /// The same with further variables in its environment.
    fn daemon_in(&self, options: &[(&str, &str)], environment: &[(&str, &str)]) -> anyhow::Result<Daemon> {
        let path = text_of(self.data.path());
        let mut all = vec![("DatastoreType", "file"), ("DatastorePath", path), ("FileQuietSecs", "0.05")];
        all.extend(options);
        let daemon = Daemon::start_in(self.scratch.path(), &all, environment)?;
        daemon.wait_ready()?;
        Ok(daemon)
    }
}

/// The path as text; temporary folders have plain names.
fn text_of(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A pool as YAML; its key is `/calico/v1/ipam/v4/pool/` and the network with `-` for `/`.
fn pool(name: &str, cidr: &str) -> String {
    format!("apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {{name: {name}}}\nspec: {{cidr: {cidr}}}\n")
}
