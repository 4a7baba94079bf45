//! The whole program on a simulated network: datastore, pipelines, servers and agents of every protocol, with faults from a seed.
//!
//! ```text
//!  run ─ owns the clock: churn and faults of a seed ([`script`]) ─► memory datastore or [`files`], turmoil's network, orders
//!   ├─ hosts "server", "server-2": pipelines and the real server, rebuilt after every crash or drain ([`server`])
//!   └─ hosts "…": followers of every wire format ([`roles`], [`library`], [`raw`]), which check [`invariants`] at every event
//!       all write their observations into one [`ledger`]; [`panics`] notices tasks that die
//! ```
//!
//! [`scripted`] has fixed scenes that seeds have found, or that show the effect of a fault.
//!
//! A seed decides churn, faults, latencies and sizes of writes. `BULRUSH_SIM_SEED=n` replays one, `BULRUSH_SIM_SEEDS=n` runs
//! more; see docs/testing.md.

mod files;
mod follower;
mod invariants;
mod ledger;
mod library;
mod lines;
mod panics;
mod raw;
mod roles;
mod run;
mod script;
mod scripted;
mod server;
mod summary;

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bulrush::tasks::panic_message;

/// Number of seeds of every test run. They are fixed, so that a failure comes from a change and not from chance.
const SEEDS: u64 = 20;

/// Seeds between two progress lines of a long run.
const PROGRESS: u64 = 500;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, a number is wanted")))
}

/// The seeds that `BULRUSH_SIM_SEEDS` names: `500` for the first 500, or `501-1000`.
fn seeds_of(text: &str) -> Option<RangeInclusive<u64>> {
    match text.split_once('-') {
        None => Some(1..=text.parse().ok()?),
        Some((first, last)) => Some(first.parse().ok()?..=last.parse().ok()?),
    }
}

fn seeds() -> RangeInclusive<u64> {
    if let Some(seed) = number("BULRUSH_SIM_SEED") {
        return seed..=seed;
    }
    let Ok(text) = std::env::var("BULRUSH_SIM_SEEDS") else { return 1..=SEEDS };
    seeds_of(&text).unwrap_or_else(|| panic!("BULRUSH_SIM_SEEDS is {text:?}, wanted is 500 or 501-1000"))
}

/// Waits in simulated time, not in real time.
async fn later(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Runs a seed; the error is a failure in words.
fn attempt(seed: u64, always_log: bool) -> Result<summary::Summary, String> {
    let ledger = ledger::Ledger::default();
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, None, &ledger)))
        .unwrap_or_else(|panic| Err(panic_message(&*panic)));
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
#[expect(clippy::print_stderr, reason = "the totals are shown with --nocapture")]
fn agents_end_in_sync_with_the_datastore_after_all_faults() {
    let seeds = seeds();
    let (first, last) = (*seeds.start(), *seeds.end());
    let began = Instant::now();
    let (next, failures, total) =
        (AtomicU64::new(first), Mutex::new(Vec::new()), Mutex::new(summary::Summary::default()));
    // One simulation has one thread.
    let threads = number("BULRUSH_SIM_THREADS").and_then(|threads| usize::try_from(threads).ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    match attempt(seed, first == last) {
                        Ok(summary) => total.lock().expect("no panics while held").add(&summary),
                        Err(words) => {
                            eprintln!("{words}");
                            failures.lock().expect("no panics while held").push(words);
                        }
                    }
                    if (seed - first + 1).is_multiple_of(PROGRESS) {
                        eprintln!("seed {seed} of {first} to {last}, {:.0} s", began.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panics while held");
    let count = (last + 1).saturating_sub(first);
    assert!(failures.is_empty(), "{} of {count} seeds failed\n{}", failures.len(), failures.join("\n"));
    // A simulation without events proves nothing.
    let total = total.into_inner().expect("no panics while held");
    eprintln!("{count} seeds in {:.1} s: {total:?}", began.elapsed().as_secs_f64());
    if count >= SEEDS {
        total.demand_coverage(count);
    }
}

#[test]
fn seeds_are_named_by_their_number_or_by_the_first_and_the_last() {
    assert_eq!(seeds_of("500"), Some(1..=500));
    assert_eq!(seeds_of("501-1000"), Some(501..=1000));
    assert_eq!(seeds_of("many"), None);
    assert_eq!(seeds_of("1-"), None);
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
