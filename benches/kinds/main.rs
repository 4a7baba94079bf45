//! Measures a daemon that serves objects of any kind: its start over etcd, an edit in a folder, and many kinds at rest.
//!
//! ```text
//! cargo bench --bench kinds                                     # everything; some minutes, most of it waiting for rest
//! cargo bench --bench kinds -- --scenario etcd --repeat 5
//! cargo bench --bench kinds -- --scenario folder --files 1000
//! cargo bench --bench kinds -- --scenario idle --kinds 100
//! cargo bench --bench kinds -- --program PATH                   # another build of the daemon
//! cargo bench --profile dev --bench kinds -- --quick            # a smoke test of all of it
//! ```
//!
//! Etcd, API server and daemon are real processes on this machine. Results are a JSON array on standard output, a readable table
//! and progress on standard error.
//!
//! | file | duty |
//! |---|---|
//! | `args` | the command line |
//! | `content` | the objects that are made up |
//! | `server` | the daemon under test |
//! | `etcd`, `folder`, `idle` | the measurements |
//! | `report` | results |

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::large_futures,
    reason = "a tool, not an API: it ends with a panic or a message"
)]

mod args;
mod content;
mod etcd;
mod folder;
mod idle;
mod report;
mod server;

#[path = "../../tests/support/apiserver/mod.rs"]
mod apiserver;
#[path = "../../tests/support/daemon.rs"]
#[allow(dead_code, reason = "only its HTTP client is used: tests start the program that cargo built, benches any")]
mod daemon;
#[path = "../../tests/support/need.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod need;
#[path = "../common/proc.rs"]
#[allow(dead_code, reason = "the bench fanout uses more of it")]
mod proc;
#[path = "../common/progress.rs"]
#[allow(dead_code, reason = "the bench fanout uses more of it")]
mod progress;
#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod real_etcd;
#[path = "../../tests/support/wait.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod wait;

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use args::{Args, Scenario};
use proc::MachineTime;
use report::Row;

/// Longest time of `--quick`. It takes some 20 s on an idle machine.
const QUICK_LIMIT: Duration = Duration::from_secs(300);

/// Makes the measurements of the command line, one after the other.
async fn measure(args: &Args) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for scenario in args.scenarios() {
        let before = MachineTime::now();
        let measured = match scenario {
            Scenario::Etcd => etcd::measure(args).await?,
            Scenario::Folder => folder::measure(args).await?,
            Scenario::Idle => idle::measure(args).await?,
        };
        // The share of the whole measurement, filling and waiting included, stands in each of its lines.
        let stolen = before.zip(MachineTime::now()).map(|(before, now)| now.stolen_percent(&before));
        rows.extend(measured.into_iter().map(|row| row.with("stolen_percent", stolen.unwrap_or_default())));
    }
    Ok(rows)
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse().complete()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        if args.quick {
            let run = tokio::time::timeout(QUICK_LIMIT, measure(&args)).await;
            run.with_context(|| format!("--quick was not done within {QUICK_LIMIT:?}"))?
        } else {
            measure(&args).await
        }
    })?;
    report::print(&rows);
    Ok(())
}
