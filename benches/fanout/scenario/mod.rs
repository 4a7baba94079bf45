//! The scenarios. Each starts the server afresh and gives one result.

mod churn;
mod floor;
mod idle;
mod snapshot;
mod start;

use crate::args::{Args, Scenario};
use crate::proc::MachineTime;
use crate::report::{Report, combined};
use crate::store::Store;

/// Percentage of stolen time above which latencies are several times as long as without.
const DISTURBED: f64 = 2.0;

/// Runs the scenario of the arguments as often as they say.
pub(crate) async fn run(args: &Args, store: &Store) -> anyhow::Result<Report> {
    let mut runs = Vec::with_capacity(args.repeat);
    for i in 1..=args.repeat {
        let what = format!("{:?}", args.scenario()).to_lowercase();
        let tls = if args.tls { ", TLS" } else { "" };
        let clients = if args.scenario() == Scenario::Start { 1 } else { args.clients };
        eprintln!("{what}{tls}, agents: {clients}, run {i} of {}", args.repeat);
        let before = MachineTime::now();
        let mut report = once(args, store).await?;
        let stolen = before.zip(MachineTime::now()).map(|(before, now)| now.stolen_percent(&before));
        report.set("stolen_percent", stolen);
        if let Some(stolen) = stolen.filter(|stolen| *stolen > DISTURBED) {
            eprintln!(
                "  {stolen:.1} % of the processor time went to other machines of this host: these figures say little"
            );
        }
        runs.push(report);
    }
    Ok(combined(runs))
}

async fn once(args: &Args, store: &Store) -> anyhow::Result<Report> {
    match args.scenario() {
        Scenario::Churn => churn::run(args, store).await,
        Scenario::Snapshot => snapshot::run(args, store).await,
        Scenario::Start => start::run(args, store).await,
        Scenario::Idle => idle::run(args, store).await,
        Scenario::Floor => floor::run(args).await,
    }
}

/// Small runs of all scenarios.
pub(crate) fn quick(args: &Args) -> Vec<Args> {
    let with = |scenario: Scenario, tls: bool| {
        let mut args = args.clone();
        (args.scenario, args.tls) = (Some(scenario), tls);
        args
    };
    if let Some(scenario) = args.scenario {
        return vec![with(scenario, args.tls)];
    }
    let mut hostile = with(Scenario::Churn, false);
    (hostile.clients, hostile.half_open, hostile.storm) = (42, 100, 10);
    (hostile.slow, hostile.stuck) = ("10%".parse().expect("a share"), "5%".parse().expect("a share"));
    hostile.no_floor = true;
    let mut all = vec![
        with(Scenario::Churn, false),
        hostile,
        with(Scenario::Churn, true),
        with(Scenario::Snapshot, false),
        with(Scenario::Snapshot, true),
        with(Scenario::Idle, false),
        with(Scenario::Floor, false),
    ];
    if args.server.is_none() {
        all.push(with(Scenario::Start, false));
    }
    all
}
