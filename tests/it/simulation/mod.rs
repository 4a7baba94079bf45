//! The whole road on a simulated network: datastore, pipelines, server and agents of every protocol, with faults from a seed.
//!
//! ```text
//!  run ─ owns the clock: churn and faults of a seed ([`script`]) ─► memory datastore, turmoil's network, orders
//!   ├─ host "server": pipelines and the real server, rebuilt after every crash or drain ([`server`])
//!   └─ hosts "…": followers of every wire format ([`library`], [`raw`]), which check [`invariants`] at every event
//!       all write what they see into one [`ledger`]
//! ```
//!
//! [`scripted`] has scenes that seeds have found.
//!
//! A seed decides churn, faults, latencies and sizes of writes. `BULRUSH_SIM_SEED=n` replays one, `BULRUSH_SIM_SEEDS=n` runs
//! more; see docs/testing.md.

mod follower;
mod invariants;
mod ledger;
mod library;
mod lines;
mod panics;
mod raw;
mod run;
mod script;
mod scripted;
mod server;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of every test run. Any numbers would do; a fixed list makes a failure one of the change and not of the day.
const SEEDS: u64 = 20;

/// Simulations at a time; more only fight for the same cores.
const MAX_THREADS: usize = 4;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, a number is wanted")))
}

/// Runs a seed; what went wrong, in words.
fn attempt(seed: u64, always_log: bool) -> Result<run::Summary, String> {
    let ledger = ledger::Ledger::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, None, &ledger))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        Err(words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default())
    });
    if outcome.is_ok() && !always_log {
        return outcome;
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("simulation-{seed}.log"));
    let written = std::fs::write(&path, ledger.text());
    outcome.map_err(|violation| {
        format!(
            "seed {seed}: {violation}\n  replay:    BULRUSH_SIM_SEED={seed} cargo test --test it simulation\n  event log: {} \
             ({written:?})",
            path.display()
        )
    })
}

#[test]
#[expect(clippy::print_stderr, reason = "what happened in all is of interest to who asks with --nocapture")]
fn agents_end_in_sync_with_the_datastore_whatever_happens_between() {
    let seeds: Vec<u64> = match number("BULRUSH_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("BULRUSH_SIM_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let always_log = seeds.len() == 1;
    let (next, failures, total) = (AtomicU64::new(0), Mutex::new(Vec::new()), Mutex::new(run::Summary::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&seed) =
                    seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX))
                {
                    match attempt(seed, always_log) {
                        Ok(summary) => total.lock().expect("no panics while held").add(&summary),
                        Err(words) => failures.lock().expect("no panics while held").push(words),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panics while held");
    assert!(failures.is_empty(), "{} of {} seeds failed\n{}", failures.len(), seeds.len(), failures.join("\n"));
    // A simulation in which nothing happens proves nothing.
    let total = total.into_inner().expect("no panics while held");
    eprintln!("{} seeds: {total:?}", seeds.len());
    if seeds.len() >= 10 {
        total.demand_coverage();
    }
}

#[test]
fn a_server_whose_connections_or_pumps_panic_is_found() {
    for (defect, words) in
        [(lines::Defect::Connection, "a defect of connections"), (lines::Defect::Pump, "a defect of pumps")]
    {
        let outcome = run::run(1, Some(defect), &ledger::Ledger::default());
        let violation = outcome.expect_err("tasks of the server have panicked");
        assert!(violation.contains(words), "{violation}");
    }
}
