//! The image without a container engine: the files of the Dockerfile in a folder, which becomes the program's root.
//!
//! The binary here is the tests' own, so the machine's C library is added, which the image's static binary does not need.
//! `/etc/hosts`, which container runtimes add to every container, is there too.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::{project, read};
use crate::daemon::{Running, eventually, http_get};
use crate::need::skip;
use crate::real_etcd::free_port;

const LAYOUT: &str = "deploy/image/layout";
const TARGET: &str = "deploy/image/target";
/// The image's user, as the Dockerfile and the manifests have it.
const USER: &str = "10001:10001";
/// A user as OpenShift gives one: without a name, in the group of root.
const SOME_USER: &str = "1000650000:0";

/// Whether the image has a program of this path.
pub(super) fn has_program(path: &str) -> anyhow::Result<bool> {
    Ok(path == "/usr/bin/bulrush" || read(LAYOUT)?.contains(&format!("ln -s bulrush \"$root{path}\"")))
}

fn done(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))?;
    said(&output).with_context(|| format!("run {command:?}"))
}

fn said(output: &Output) -> anyhow::Result<String> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{}: {out}{err}", output.status);
    Ok(out.into_owned())
}

/// A folder with the image's files, as the root of programs that run in it.
struct Root {
    folder: TempDir,
    /// Whether the test runs as root and may become another user; otherwise programs run as root of a namespace of their own.
    by_root: bool,
}

impl Root {
    /// `None`: this machine does not allow changing the root, the test returns.
    fn new() -> anyhow::Result<Option<Self>> {
        let folder = TempDir::new()?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let certificates = folder.path().join("authorities.pem");
        let authority = rcgen::generate_simple_self_signed(vec!["authority".to_owned()])?;
        fs::write(&certificates, authority.cert.pem())?;
        let binary = env!("CARGO_BIN_EXE_bulrush");
        done(Command::new(project(LAYOUT)).arg(binary).arg(&certificates).arg(folder.path()))?;
        fs::remove_file(certificates)?;
        for library in libraries(binary)? {
            let copy = folder.path().join(library.strip_prefix("/")?);
            fs::create_dir_all(copy.parent().context("a folder")?)?;
            fs::copy(&library, copy)?;
        }
        fs::write(folder.path().join("etc/hosts"), "127.0.0.1\tlocalhost\n::1\tlocalhost\n")?;
        let by_root = done(Command::new("id").arg("-u"))?.trim() == "0";
        let root = Self { folder, by_root };
        // Without namespaces of users only root may change the root.
        let tried = root.command(USER, "/usr/bin/bulrush").arg("version").output();
        if !by_root && !tried.as_ref().is_ok_and(|output| output.status.success()) {
            skip(&format!("only root may run the image's files here: {tried:?}"));
            return Ok(None);
        }
        Ok(Some(root))
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside)
    }

    /// A program in the root with an empty environment, as user `UID:GID`.
    fn command(&self, user: &str, program: &str) -> Command {
        let mut command;
        if self.by_root {
            command = Command::new("chroot");
            command.arg(format!("--userspec={user}")).arg(self.folder.path());
        } else {
            command = Command::new("unshare");
            command.args(["--user", "--map-root-user"]).arg(format!("--root={}", self.folder.path().display()));
        }
        // Needed to find chroot; the program does not use it.
        let path = std::env::var("PATH").unwrap_or_default();
        command.arg(program).env_clear().env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
        command
    }

    /// All files in the root.
    fn files(&self) -> anyhow::Result<BTreeSet<PathBuf>> {
        let (mut files, mut folders) = (BTreeSet::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                } else {
                    files.insert(entry.path().strip_prefix(self.folder.path())?.to_owned());
                }
            }
        }
        Ok(files)
    }
}

/// The libraries that a binary is linked with; none for a static binary.
fn libraries(binary: &str) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(binary).output().context("run ldd")?;
    let text = String::from_utf8(output.stdout)?;
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

/// The image's programs run under all their names, as any user.
#[test]
fn the_images_programs_run_with_nothing_else_around_them() -> anyhow::Result<()> {
    let Some(root) = Root::new()? else { return Ok(()) };
    for user in [USER, SOME_USER] {
        for (program, arguments) in [
            ("/usr/bin/bulrush", &["version"][..]),
            ("/usr/bin/calico-typha", &["version"]),
            ("/usr/bin/calico", &["component", "typha", "version"]),
        ] {
            let text = done(root.command(user, program).args(arguments))?;
            ensure!(text.starts_with("Version: "), "{program} {arguments:?}: {text}");
        }
        // The image's own configuration is in place.
        let text = done(root.command(user, "/usr/bin/bulrush").args(["config", "--check"]))?;
        ensure!(text.contains("the configuration is good"), "{text}");
        let page = done(root.command(user, "/usr/bin/bulrush").args(["config", "-o", "json"]))?;
        let page: Value = serde_json::from_str(&page)?;
        let mut options = page["options"].as_array().into_iter().flatten();
        let option = options.find(|option| option["name"] == "LogFilePath").context("LogFilePath")?;
        let source = option["source"].as_str().unwrap_or_default();
        ensure!(option["value"] == "" && source.starts_with("/etc/calico/typha.cfg"), "{option}");
    }
    Ok(())
}

/// The daemon in the root serves the README's sample cluster, answers probes and `status`, writes nothing, and ends cleanly.
#[test]
fn the_image_serves_the_sample_cluster() -> anyhow::Result<()> {
    let Some(root) = Root::new()? else { return Ok(()) };
    let samples = root.path("config/quickstart");
    fs::create_dir_all(&samples)?;
    fs::copy(project("config/quickstart.cfg"), root.path("config/quickstart.cfg"))?;
    for sample in fs::read_dir(project("config/quickstart"))? {
        let sample = sample?;
        fs::copy(sample.path(), samples.join(sample.file_name()))?;
    }
    let before = root.files()?;
    let (sync, health, metrics) = (free_port(), free_port(), free_port());
    let within = |arguments: &[&str]| {
        let mut command = root.command(USER, "/usr/bin/calico-typha");
        command.args(arguments).args(["--config-file", "config/quickstart.cfg"]);
        for (name, port) in [("SERVERPORT", sync), ("HEALTHPORT", health), ("PROMETHEUSMETRICSPORT", metrics)] {
            command.env(format!("TYPHA_{name}"), port.to_string());
        }
        command
    };
    // Beside the root, where the test may write.
    let beside = TempDir::new()?;
    let log = beside.path().join("log");
    let file = fs::File::create(&log)?;
    let mut daemon = Running(within(&[]).stdout(file.try_clone()?).stderr(file).spawn().context("start the daemon")?);
    let log = || fs::read_to_string(&log).unwrap_or_default();
    let addresses = ["127.0.0.1", "::1"].map(|ip| ip.parse().map(|ip| SocketAddr::new(ip, health)));
    eventually("ready", || {
        let mut answers = addresses.iter().flatten().filter_map(|address| http_get(*address, "/readiness").ok());
        (answers.any(|(code, _)| code == 200) || daemon.ended().is_some()).then_some(())
    })
    .with_context(log)?;
    ensure!(daemon.ended().is_none(), "it ended by itself: {}", log());
    let status = done(&mut within(&["status"])).with_context(log)?;
    ensure!(status.contains("in-sync"), "{status}");
    let dumped = done(&mut within(&["dump", "--timeout", "30"])).with_context(log)?;
    ensure!(dumped.contains("/calico/v1/Ready"), "{dumped}");
    ensure!(daemon.end()? == Some(0), "{}", log());
    let after = root.files()?;
    ensure!(after == before, "it wrote {:?}", after.difference(&before).collect::<Vec<_>>());
    Ok(())
}

/// The image's own configuration is enough to start with an empty environment.
#[test]
fn the_images_configuration_is_good_in_an_empty_environment() -> anyhow::Result<()> {
    let run = |arguments: &[&str]| done(Command::new(env!("CARGO_BIN_EXE_bulrush")).args(arguments).env_clear());
    let file = project("deploy/image/typha.cfg").display().to_string();
    let page: Value = serde_json::from_str(&run(&["config", "-o", "json", "-c", &file])?)?;
    ensure!(page["mistakes"] == serde_json::json!([]) && page["warnings"] == serde_json::json!([]), "{page:#}");
    let option = |name: &str| page["options"].as_array().into_iter().flatten().find(|option| option["name"] == name);
    ensure!(option("LogFilePath").is_some_and(|option| option["value"] == ""), "there is no place for a log file");
    Ok(())
}

/// Files that the Dockerfile copies and runs exist, and .dockerignore lets them through.
#[test]
fn the_dockerfile_names_files_that_exist() -> anyhow::Result<()> {
    let (docker, ignore) = (read("Dockerfile")?, read(".dockerignore")?);
    for script in [LAYOUT, TARGET] {
        ensure!(docker.contains(script), "the Dockerfile does not use {script}");
        ensure!(fs::metadata(project(script))?.permissions().mode() & 0o111 == 0o111, "{script} cannot be run");
    }
    ensure!(ignore.contains("!deploy/image"));
    for line in ignore.lines().filter_map(|line| line.strip_prefix('!')) {
        ensure!(project(line).exists(), ".dockerignore names {line}");
    }
    let toolchain = read("rust-toolchain.toml")?;
    let version = docker.lines().find_map(|line| line.strip_prefix("ARG RUST_VERSION=")).context("ARG RUST_VERSION")?;
    ensure!(toolchain.contains(&format!("\"{version}\"")), "the image is built with the project's toolchain");
    // The names of Typha in Calico's images, for Deployments in which only the image was replaced.
    for name in ["calico", "calico-typha"] {
        ensure!(has_program(&format!("/usr/bin/{name}"))?, "no {name} in the image");
    }
    // Static, not root, nothing but the binary.
    ensure!(docker.contains("FROM scratch") && docker.contains(&format!("USER {USER}")));
    Ok(())
}

/// Machines by the names of systems and container engines; a platform that cannot be built gives the reason.
#[test]
fn every_platform_of_the_image_is_one_of_rusts() -> anyhow::Result<()> {
    let target = |machine: &str| Command::new(project(TARGET)).arg(machine).output();
    let known = done(Command::new("rustc").args(["--print", "target-list"]))?;
    let docker = read("Dockerfile")?;
    for (machines, expected, large_pages) in [
        (["x86_64", "amd64"], "x86_64-unknown-linux-musl", false),
        (["aarch64", "arm64"], "aarch64-unknown-linux-musl", true),
        (["ppc64le", "ppc64le"], "powerpc64le-unknown-linux-musl", true),
    ] {
        for machine in machines {
            let name = said(&target(machine)?)?;
            ensure!(name.trim() == expected, "{machine} is {name}");
        }
        ensure!(known.lines().any(|name| name == expected), "rustc does not know {expected}");
        let cpu = expected.split('-').next().unwrap_or_default();
        let named = docker.lines().any(|line| line.contains("LG_PAGE=16") && line.contains(&format!("{cpu}-*")));
        ensure!(named == large_pages, "pages of 64 KiB for {cpu}: {named}");
    }
    for machine in ["s390x", "riscv64", "sparc"] {
        let output = target(machine)?;
        let why = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && why.contains(machine), "{machine}: {why}");
    }
    Ok(())
}
