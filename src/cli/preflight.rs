//! `bulrush preflight`: looks a cluster over before Bulrush takes Typha's place, or compares a running Typha with ourselves.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Output;
use super::connect::{TlsArgs, namespaced, seconds};
use super::exit::{EXIT_USAGE, ended};
use crate::calico::processors::Context;
use crate::calico::release::Release;
use crate::config::table::DEFAULT_FILE;
use crate::config::{load, load_kubernetes};
use crate::datastore::kubernetes::lookup::Lookup;
use crate::preflight::compare::{Against, compare};
use crate::preflight::report::{Report, Verdict};
use crate::preflight::{Account, Options, look};

/// Arguments of `bulrush preflight`.
#[derive(Args, Clone, Debug)]
pub struct PreflightArgs {
    /// Kubeconfig of the cluster [default: as the daemon: KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Typha's Deployment [default: calico-typha, where Calico's installs put it]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced)]
    pub typha: Option<(String, String)>,
    /// Account whose rights to ask for: a service account, or own for those of this command's own account [default: that of Typha's Deployment]
    #[arg(long, value_name = "NAMESPACE/NAME|own", value_parser = account)]
    pub account: Option<Account>,
    /// Instead of looking the cluster over: connect to this Typha, and compare all that it tells agents with what Bulrush would tell them
    #[arg(long, value_name = "HOST:PORT")]
    pub compare: Option<String>,
    /// With --compare: as an agent of which release, v3.26 to v3.32 or master [default: that of the cluster's Calico]
    #[arg(long, value_name = "RELEASE", requires = "compare")]
    pub dialect: Option<Release>,
    /// With --compare: longest time for all of it
    #[arg(long, default_value = "120", value_parser = seconds, value_name = "SECONDS")]
    pub timeout: Duration,
    /// With --compare: the daemon's configuration file, which says where the datastore is; a missing one counts as empty
    #[arg(short, long, default_value = DEFAULT_FILE, value_name = "PATH")]
    pub config_file: PathBuf,
    /// With --compare: TLS.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The environment, for the daemon's options and the way to the API server.
    #[arg(skip)]
    pub environment: Vec<(OsString, OsString)>,
}

fn account(text: &str) -> Result<Account, String> {
    if text == "own" {
        return Ok(Account::Own);
    }
    namespaced(text)
        .map(|(namespace, name)| Account::Service { namespace, name })
        .map_err(|_| "own or NAMESPACE/NAME is expected, for example kube-system/calico-node".to_owned())
}

/// Checks the cluster, and prints the report. Returns the exit status: 0 if nothing is in the way, 1 if something is, 2 if something that
/// matters could not be checked, 64 for bad arguments or a bad configuration.
///
/// # Errors
/// `out` or `err` cannot be written to. A closed `out` is a way to stop.
pub async fn run(args: &PreflightArgs, out: &mut impl Write, err: &mut impl Write) -> io::Result<u8> {
    let report = match &args.compare {
        Some(server) => compared(args, server).await,
        None => looked(args).await,
    };
    match report {
        Ok(report) => {
            ended(print(&report, args.output, out))?;
            Ok(report.exit_status())
        }
        Err(reason) => {
            writeln!(err, "preflight: {reason}")?;
            Ok(EXIT_USAGE)
        }
    }
}

/// The environment, with the arguments' settings of the API server.
fn environment(args: &PreflightArgs) -> Vec<(OsString, OsString)> {
    let given = [
        ("KUBECONFIG", args.kubeconfig.as_ref().map(|path| path.clone().into_os_string())),
        ("K8S_CURRENT_CONTEXT", args.context.clone().map(OsString::from)),
    ];
    let mut environment = args.environment.clone();
    for (name, value) in given {
        if let Some(value) = value {
            let same = |known: &OsString| known == name || *known == *format!("CALICO_{name}");
            environment.retain(|(known, _)| !same(known));
            environment.push((name.into(), value));
        }
    }
    environment
}

async fn looked(args: &PreflightArgs) -> Result<Report, String> {
    let kubernetes = load_kubernetes(environment(args)).map_err(|mistakes| mistakes.to_string())?;
    let lookup = Lookup::connect(&kubernetes).map_err(|error| error.to_string())?;
    let options = Options { typha: args.typha.clone(), account: args.account.clone() };
    Ok(look(&lookup, &options).await)
}

async fn compared(args: &PreflightArgs, server: &str) -> Result<Report, String> {
    let environment = environment(args);
    let config =
        load(&args.config_file, environment.iter().cloned()).config.map_err(|mistakes| mistakes.to_string())?;
    let context = Context::from_environment(environment);
    let against = Against { server: server.to_owned(), line: args.dialect, tls: args.tls.load()?, limit: args.timeout };
    let mut report = Report::default();
    compare(config.of_calico(), &context, against, &mut report).await.map_err(|error| format!("{error:#}"))?;
    Ok(report)
}

fn print(report: &Report, output: Output, out: &mut impl Write) -> io::Result<()> {
    if output == Output::Json {
        let status = report.exit_status();
        let document = json!({"exit_status": status, "findings": report.findings, "facts": report.facts});
        return writeln!(out, "{document:#}");
    }
    let width = report.findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    for finding in &report.findings {
        let verdict = match finding.verdict {
            Verdict::Obstacle => "OBSTACLE",
            Verdict::Unknown => "UNKNOWN",
            Verdict::Ok | Verdict::Note => finding.verdict.as_str(),
        };
        writeln!(out, "{:width$}  {verdict:8}  {}", finding.topic, finding.text)?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "{:width$}  {:8}  > {remedy}", "", "")?;
        }
    }
    let count = |verdict| report.count(verdict);
    let (obstacles, unknown) = (count(Verdict::Obstacle), count(Verdict::Unknown));
    match (obstacles, unknown) {
        (0, 0) => writeln!(out, "nothing is in the way"),
        _ => writeln!(out, "{obstacles} in the way, {unknown} could not be looked at"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_as_people_write_them() {
        assert_eq!(account("own"), Ok(Account::Own));
        let expected = Account::Service { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() };
        assert_eq!(account("kube-system/calico-node"), Ok(expected));
        assert!(account("calico-node").unwrap_err().contains("NAMESPACE/NAME"));
    }

    #[test]
    fn obstacles_stand_out_with_the_way_to_remove_them() {
        let mut report = Report::default();
        report.ok("calico", "fine");
        report.obstacle("rights", "missing").remedy("kubectl do it");
        let mut printed = Vec::new();
        print(&report, Output::Table, &mut printed).unwrap();
        let expected = "calico  ok        fine\nrights  OBSTACLE  missing\n                  > kubectl do it\n1 in the way, 0 could not be looked at\n";
        assert_eq!(String::from_utf8(printed).unwrap(), expected);
        let mut printed = Vec::new();
        print(&report, Output::Json, &mut printed).unwrap();
        let document: serde_json::Value = serde_json::from_slice(&printed).unwrap();
        assert_eq!(
            (&document["exit_status"], &document["findings"][1]["remedy"]),
            (&json!(1), &json!("kubectl do it"))
        );
    }
}
