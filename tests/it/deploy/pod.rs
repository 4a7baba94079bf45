//! A rendered pod as a process on this machine, with its variables, its configuration and its mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;
use tempfile::TempDir;

use super::render::Rendered;
use crate::daemon::Running;

/// Environment of the container of a rendered Deployment.
pub(super) struct Pod {
    /// Variables, with paths of mounts replaced.
    pub(super) variables: BTreeMap<String, String>,
    /// The configuration file, with paths of mounts replaced. It need not exist.
    pub(super) config: PathBuf,
    folder: TempDir,
}

impl Pod {
    /// Writes the mounts into a folder. `foreign` has the content of files made by others, by their paths in the
    /// container; all other files are empty.
    pub(super) fn new(rendered: &Rendered, foreign: &BTreeMap<String, String>) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let spec = &rendered.deployment()?["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let mut paths = Vec::new();
        for mount in container["volumeMounts"].as_array().into_iter().flatten() {
            let inside = mount["mountPath"].as_str().context("mountPath")?;
            let outside = folder.path().join(inside.trim_start_matches('/'));
            fs::create_dir_all(&outside)?;
            paths.push((format!("{inside}/"), format!("{}/", outside.display())));
        }
        let here =
            |text: &str| paths.iter().fold(text.to_owned(), |text, (inside, outside)| text.replace(inside, outside));
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            let mount = mounts.clone().find(|mount| mount["name"] == volume["name"]).context("a mount")?;
            let inside = mount["mountPath"].as_str().unwrap_or_default();
            let map = rendered.of_kind("ConfigMap").find(|map| map["metadata"]["name"] == volume["configMap"]["name"]);
            for (name, text) in map.and_then(|map| map["data"].as_object()).into_iter().flatten() {
                fs::write(here(&format!("{inside}/{name}")), here(text.as_str().unwrap_or_default()))?;
            }
        }
        let variables: BTreeMap<String, String> = container["env"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|variable| {
                let text = |field: &str| variable[field].as_str().unwrap_or_default();
                (text("name").to_owned(), here(text("value")))
            })
            .collect();
        let arguments: Vec<&str> =
            container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        anyhow::ensure!(arguments.len() == 2 && arguments[0] == "--config-file", "{arguments:?}");
        // A file of no volume would be the image's own.
        let config = here(arguments[1]);
        let config =
            if config == arguments[1] { super::project("deploy/image/typha.cfg") } else { PathBuf::from(config) };
        let pod = Self { variables, config, folder };
        pod.fill(foreign, &here)
    }

    /// Writes the missing files that options name.
    fn fill(self, foreign: &BTreeMap<String, String>, here: &dyn Fn(&str) -> String) -> anyhow::Result<Self> {
        for (inside, text) in foreign {
            let path = here(inside);
            if path != *inside {
                fs::write(path, text)?;
            }
        }
        let file = fs::read_to_string(&self.config).unwrap_or_default();
        let from_file = file.lines().filter_map(|line| line.split_once('=')).map(|(_, value)| value.trim());
        let named = self.variables.values().map(String::as_str).chain(from_file);
        for path in named.map(Path::new).filter(|path| path.starts_with(self.folder.path()) && !path.exists()) {
            fs::write(path, "")?;
        }
        Ok(self)
    }

    /// The binary with exactly the container's arguments and variables, and these further variables.
    pub(super) fn command(&self, further: &[(&str, String)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bulrush"));
        command.env_clear().envs(&self.variables).stdin(Stdio::null());
        command.envs(further.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Starts the daemon. Its log is the returned file.
    pub(super) fn start(&self, further: &[(&str, String)]) -> anyhow::Result<(Running, PathBuf)> {
        let log = self.folder.path().join("log");
        let file = File::create(&log)?;
        let mut command = self.command(further);
        command.arg("--config-file").arg(&self.config).stdout(file.try_clone()?).stderr(file);
        Ok((Running(command.spawn().context("start the daemon")?), log))
    }

    /// Output of `bulrush config -o json` in the pod.
    pub(super) fn config(&self) -> anyhow::Result<Value> {
        let output = self.command(&[]).args(["config", "-o", "json", "-c"]).arg(&self.config).output()?;
        serde_json::from_slice(&output.stdout).context("bulrush config prints JSON")
    }
}
