//! Counts allocated memory: bytes per key-value, per connection and per change, and allocations per change and client.
//!
//! ```text
//! cargo bench --bench memory                                 # 10,000 endpoints, 400 clients
//! cargo bench --bench memory -- --endpoints 100000 --clients 2000
//! cargo bench --bench memory -- --quick                      # only shows that everything works
//! ```
//!
//! One process: pipeline and server are the program's own, endpoints are made when they are listed, clients are
//! plain sockets over loopback that allocate nothing. Only bytes that the program asks its allocator for are counted, not the
//! allocator's overhead and not the kernel's memory; the bench `fanout` shows resident memory. A readable table
//! goes to standard error, one JSON object to standard output.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool, not an API: it runs in real time and ends with a panic or a message"
)]

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod pipeline;
mod serving;

use std::alloc::System;

use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes allocated now.
fn live() -> i64 {
    let stats = ALLOCATOR.stats();
    let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    // Allocated bytes include growth by reallocation.
    signed(stats.bytes_allocated) - signed(stats.bytes_deallocated)
}

/// Number of allocations so far.
fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Counts allocations and live bytes.
#[derive(Debug, Parser)]
struct Args {
    /// Endpoints in the cluster.
    #[arg(long, default_value_t = 10_000)]
    endpoints: usize,
    /// Connections.
    #[arg(long, default_value_t = 400)]
    clients: usize,
    /// Changes, one after the other, for which allocations are counted.
    #[arg(long, default_value_t = 400)]
    changes: usize,
    /// Small numbers, only to show that it works.
    #[arg(long)]
    quick: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let mut args = Args::parse();
    if args.quick {
        args = Args { endpoints: 500, clients: 20, changes: 20, ..args };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = runtime.block_on(pipeline::measure(args.endpoints))?;
    figures.extend(serving::measure(&runtime, args.endpoints, args.clients, args.changes, args.quick)?);
    for (name, value) in &figures {
        eprintln!("{name:<44} {value:>12.2}");
    }
    let json: serde_json::Map<String, serde_json::Value> =
        figures.into_iter().map(|(name, value)| (name.replace([' ', ','], "_"), value.into())).collect();
    println!("{}", serde_json::Value::Object(json));
    Ok(())
}

/// The figures, in the order of the table.
type Figures = Vec<(&'static str, f64)>;
