//! Measures a server of Calico's sync protocol, from a change written to its datastore to the last agent that has it. For us,
//! and for operators who want to know the limits of their server.
//!
//! ```text
//! cargo bench --bench fanout                                        # D10: 502 agents, 10,000 endpoints, 200 changes/s, beside the floor
//! cargo bench --bench fanout -- --clients 2002 --rate 200
//! cargo bench --bench fanout -- --data d100 --rate 1000 --repeat 3
//! cargo bench --bench fanout -- --scenario snapshot --clients 2002 --rate 200      # all at once, while changes go on
//! cargo bench --bench fanout -- --scenario start --data d100
//! cargo bench --bench fanout -- --scenario idle --clients 2000 --tls
//! cargo bench --bench fanout -- --clients 18000 --rate 50
//! cargo bench --bench fanout -- --slow 5% --stuck 5%                # or --half-open 10000, or --storm 20
//! cargo bench --bench fanout -- --sweep clients=22,102,502,1002,2002 > clients.json
//! cargo bench --bench fanout -- --plot docs/img/clients.svg clients.json typha.json
//! cargo bench --bench fanout -- --kubernetes --endpoints 2000       # pods in a real API server; --scenario start as well
//! cargo bench --bench fanout -- --kubernetes --scenario start --endpoints 30000 --reflector    # beside kube-rs' reflector
//! cargo bench --bench fanout -- --program PATH                      # another program, started with the same variables
//! cargo bench --bench fanout -- --server HOST:PORT --server-pid PID --etcd URL     # any server; the etcd is filled!
//! cargo bench --bench fanout -- --dialects v3.31,master            # agents of two releases, half and half
//! cargo bench --bench fanout -- --scenario snapshot --server HOST:PORT --clients 500    # any server, nothing is written
//! cargo bench --profile dev --bench fanout -- --quick               # a smoke test of all of it
//! ```
//!
//! Figures are latencies and CPU time on this machine, load generator included, and ratios to bare `send()` of as many bytes.
//! Results are JSON on standard output (an object; an array for a sweep), a readable table and progress on standard error.
//!
//! | file | duty |
//! |---|---|
//! | `args`, `sweep` | the command line |
//! | `store`, `data`, `kubernetes`, `changes` | the datastore, its content, and writing to it |
//! | `server`, `tls`, `session` | the server under test |
//! | `probe` | agents that decode and time |
//! | `load` | agents that only count, thousands of them |
//! | `hostile` | half-open connections, reconnect storms |
//! | `floor`, `reflector`, `relay` | programs to compare with, and a relay that counts bytes |
//! | `scenario` | the measurements |
//! | `proc`, `progress`, `report`, `plot` | CPU time and memory, progress, results |

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::large_futures,
    reason = "a tool, not an API: it ends with a panic or a message"
)]

mod args;
mod changes;
mod data;
mod floor;
mod hostile;
mod kubernetes;
mod load;
mod plot;
mod probe;
#[path = "../common/proc.rs"]
mod proc;
#[path = "../common/progress.rs"]
mod progress;
mod reflector;
mod relay;
mod report;
mod scenario;
mod server;
mod session;
mod store;
mod sweep;
mod tls;

#[path = "../../tests/support/apiserver/mod.rs"]
mod apiserver;
#[path = "../../tests/support/need.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod need;
#[path = "../../tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod real_etcd;
#[path = "../../tests/support/wait.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod wait;

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser as _;
use serde_json::Value;

use args::Args;
use store::Store;

/// Longest time of `--quick`. It takes half a minute on an idle machine.
const QUICK_LIMIT: Duration = Duration::from_secs(110);

/// Makes the measurements of the command line. One result, or several for a sweep.
async fn measure(args: &Args) -> anyhow::Result<Value> {
    if let Some(sweep) = &args.sweep {
        let mut results = Vec::new();
        let mut store = None;
        for run in args.runs(sweep) {
            run.check_descriptors()?;
            if store.is_none() || sweep.changes_data() {
                store = Some(Store::start(&run).await?);
            }
            let Some(store) = &store else { continue };
            let mut report = scenario::run(&run, store).await?;
            report.set("sweep", sweep.name());
            let result = report.into_value();
            report::print_table(&result);
            results.push(result);
        }
        report::print_lines(&results);
        return Ok(results.into());
    }
    let store = Store::start(args).await?;
    let result = scenario::run(args, &store).await?.into_value();
    report::print_table(&result);
    Ok(result)
}

/// Runs every scenario with small numbers.
async fn quick(args: &Args) -> anyhow::Result<Value> {
    let store = Store::start(args).await?;
    let mut results = Vec::new();
    for run in scenario::quick(args) {
        results.push(scenario::run(&run, &store).await?.into_value());
    }
    report::print_lines(&results);
    Ok(results.into())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(floor) = &args.be_floor {
        let [clients, bytes, rate, messages] = floor[..] else { bail!("--be-floor takes four numbers") };
        return floor::serve(floor::Floor { clients: clients as usize, bytes: bytes as usize, rate, messages });
    }
    if let Some(kubeconfig) = args.be_reflector {
        return reflector::be(kubeconfig, args.reading);
    }
    if let Some(file) = &args.plot {
        return plot::draw(file, &args.results);
    }
    let args = args.complete()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        if args.quick {
            let run = tokio::time::timeout(QUICK_LIMIT, quick(&args)).await;
            run.with_context(|| format!("--quick was not done within {QUICK_LIMIT:?}"))?
        } else {
            measure(&args).await
        }
    })?;
    println!("{result}");
    Ok(())
}
