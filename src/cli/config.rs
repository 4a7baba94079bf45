//! `bulrush config`: every option with its default, its value and its source; `--check` for scripts.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::table::DEFAULT_FILE;
use crate::config::{EXIT_USAGE, Loaded, load, render};

/// Arguments of `bulrush config`.
#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// The configuration file; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// Print only mistakes and oddities, and exit with status 64 if there is a mistake
    #[arg(long)]
    pub check: bool,
    /// Form of the output: a table, JSON, or a file in the form of typha.cfg
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Forms of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For use as a configuration file.
    Cfg,
}

/// Prints the configuration that this environment and file give. Returns the exit status.
///
/// # Errors
/// `out` cannot be written to.
pub fn run(
    args: &ConfigArgs,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    out: &mut impl Write,
) -> io::Result<u8> {
    let loaded = load(&args.config_file, environment);
    match (args.output, args.check) {
        (Output::Json, _) => writeln!(out, "{}", render::json(&loaded))?,
        (Output::Cfg, false) => {
            write!(out, "{}{}", render::cfg(&loaded.options), render::cfg_sections(&loaded.sections))?;
        }
        (Output::Table, false) => {
            write!(out, "{}", render::table(&loaded))?;
            remarks(&loaded, out)?;
        }
        (Output::Table | Output::Cfg, true) => {
            remarks(&loaded, out)?;
            if loaded.config.is_ok() {
                writeln!(out, "the configuration is good")?;
            }
        }
    }
    Ok(if args.check && loaded.config.is_err() { EXIT_USAGE } else { 0 })
}

fn remarks(loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    for notice in &loaded.notices {
        writeln!(out, "{}: {}", if notice.warning { "warning" } else { "note" }, notice.text)?;
    }
    if let Err(mistakes) = &loaded.config {
        writeln!(out, "{mistakes}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn print(file: &str, check: bool, output: Output) -> (u8, String) {
        let mut config = tempfile::NamedTempFile::new().unwrap();
        config.write_all(file.as_bytes()).unwrap();
        let args = ConfigArgs { config_file: config.path().to_owned(), check, output };
        let mut out = Vec::new();
        let environment = [("TYPHA_HEALTHENABLED".into(), "yes".into())];
        let status = run(&args, environment, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        (status, text.replace(&*config.path().to_string_lossy(), "typha.cfg"))
    }

    #[test]
    fn check_names_every_mistake_and_sets_the_status() {
        let (status, text) =
            print("DatastoreType = etcd\nHealthPort = 99999\n[x]\njunk\nLogSeverity = INFO\n", true, Output::Table);
        assert_eq!(status, 64);
        insta::assert_snapshot!(text, @r#"
        warning: ignoring LogSeverity from typha.cfg:5: no option has this name
        the configuration has 3 mistakes:
          line = "junk" (typha.cfg:4): expected Name = value, [section], or a comment that begins with # or ;; there is no = or : in it
          DatastoreType = "etcd" (typha.cfg:1): expected one of kubernetes, etcdv3, file
          HealthPort = "99999" (typha.cfg:2): expected a whole number from 0 to 65535; it is out of range
        "#);
        assert_eq!(print("", true, Output::Table), (0, "the configuration is good\n".to_owned()));
    }

    #[test]
    fn the_table_shows_values_defaults_and_sources() {
        let (status, text) =
            print("ServerPingIntervalSecs = 30\nServerPort = 0\nHealthPort = x\n", false, Output::Table);
        assert_eq!(status, 0);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("HealthEnabled"), "HealthEnabled true false environment variable TYPHA_HEALTHENABLED");
        assert_eq!(row("HealthPort"), "HealthPort 9098 9098 default (the value that was set is not accepted)");
        assert_eq!(row("ServerPingIntervalSecs"), "ServerPingIntervalSecs 30 10 typha.cfg:1");
        assert_eq!(row("ServerPort"), "ServerPort 5473 0 typha.cfg:2 (0 means 5473)");
        assert_eq!(
            row("ServerPongTimeoutSecs"),
            "ServerPongTimeoutSecs 180 60 default (60 is at most twice the ping interval, so 180 takes effect)"
        );
        assert!(text.contains("LogFormat* "));
        assert!(text.contains("the configuration has 1 mistake:"), "{text}");
    }

    #[test]
    fn json_is_for_programs() {
        let (status, text) = print("HealthPort = x\n", true, Output::Json);
        assert_eq!(status, 64);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["mistakes"][0]["option"], "HealthPort");
        let options = json["options"].as_array().unwrap();
        let health = options.iter().find(|option| option["name"] == "HealthEnabled").unwrap();
        assert_eq!(health["value"], true);
        assert_eq!(health["source"], "environment variable TYPHA_HEALTHENABLED");
    }
}
