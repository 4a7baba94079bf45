//! Targets and forms of the log.

use std::fs;

use anyhow::ensure;
use serde_json::Value;

use super::{Served, Watcher, text_of};
use crate::daemon::eventually;

#[test]
fn json_lines_go_to_the_file_and_nothing_to_the_screen() -> anyhow::Result<()> {
    let served = Served::new()?;
    // The folder of the file does not exist yet.
    let path = served.scratch.path().join("logs/typha.log");
    let mut daemon = served.daemon(&[
        ("LogFormat", "json"),
        ("LogFilePath", text_of(&path)),
        ("LogSeverityFile", "info"),
        ("LogSeverityScreen", "none"),
    ])?;
    let _watcher = Watcher::start(&daemon, &[])?;
    daemon.end()?;
    let text = fs::read_to_string(&path)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for said in ["bulrush starts", "listening for agents", "draining", "ended"] {
        ensure!(lines.iter().any(|line| line.to_string().contains(said)), "{said:?} is missing in:\n{text}");
    }
    ensure!(daemon.log().is_empty(), "the screen is off: {}", daemon.log());
    Ok(())
}

#[test]
fn json_on_the_screen_is_one_object_a_line() -> anyhow::Result<()> {
    let served = Served::new()?;
    let mut daemon = served.daemon(&[("LogFormat", "json"), ("LogSeverityScreen", "debug")])?;
    daemon.end()?;
    let text = daemon.log();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        ensure!(line.is_object(), "{line}");
    }
    ensure!(text.contains("listening for agents"), "{text}");
    Ok(())
}

#[test]
fn a_severity_hides_less_severe_lines() -> anyhow::Result<()> {
    let served = Served::new()?;
    let daemon = served.daemon(&[("LogSeverityScreen", "ERROR")])?;
    ensure!(daemon.log().is_empty(), "nothing is wrong: {}", daemon.log());
    Ok(())
}

#[test]
fn a_rotated_file_is_written_anew() -> anyhow::Result<()> {
    let served = Served::new()?;
    let path = served.scratch.path().join("typha.log");
    let daemon = served.daemon(&[("LogFilePath", text_of(&path)), ("LogSeverityFile", "info")])?;
    eventually("the file has lines", || fs::read_to_string(&path).ok().filter(|text| !text.is_empty()))?;
    fs::rename(&path, served.scratch.path().join("typha.log.1"))?;
    let written = || {
        // A reload writes a line.
        daemon.signal("HUP").ok()?;
        fs::read_to_string(&path).ok().filter(|text| text.contains("told to reload"))
    };
    eventually("a new file is written", written)?;
    Ok(())
}
