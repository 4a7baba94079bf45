//! The floor as a scenario of its own, and beside others: a process that does nothing but `send()`.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

use crate::args::Args;
use crate::load::manner::Manner;
use crate::load::{Agents, Plan};
use crate::proc;
use crate::report::Report;

pub(super) async fn run(args: &Args) -> anyhow::Result<Report> {
    let rate = args.churn_rate()?;
    let messages = rate * args.seconds;
    let shape = Shape { clients: args.clients as u32, bytes: args.message_bytes, rate, messages };
    let cpu = shape.run().await?;
    let mut report = Report::default();
    report.set("scenario", "floor");
    report.set("server", "send()");
    report.set("clients", args.clients);
    report.set("rate", rate);
    report.set("message_bytes", args.message_bytes);
    report.set("server_cpu_secs", cpu);
    report.set("floor_us_per_client_message", cpu * 1e6 / (f64::from(messages) * args.clients as f64));
    Ok(report)
}

/// Work of the floor server: number of clients, bytes per message, rate, and number of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    clients: u32,
    bytes: u32,
    rate: u32,
    messages: u32,
}

impl Shape {
    /// `bytes` to each client in `messages` messages, `rate` a second.
    pub(super) fn of(clients: usize, bytes: f64, messages: f64, rate: f64) -> Self {
        let at_least_one = |n: f64| n.round().max(1.0) as u32;
        Self {
            clients: clients as u32,
            bytes: at_least_one(bytes / messages),
            rate: at_least_one(rate),
            messages: at_least_one(messages),
        }
    }

    /// Sends everything; returns the CPU seconds that it cost.
    pub(super) async fn run(self) -> anyhow::Result<f64> {
        let numbers = [self.clients, self.bytes, self.rate, self.messages];
        let child = Command::new(std::env::current_exe()?)
            .arg("--be-floor")
            .args(numbers.map(|n| n.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the floor server")?;
        let mut child = Floor(child);
        let mut lines = BufReader::new(child.0.stdout.take().context("floor's output")?).lines();
        let server: SocketAddr = lines.next().context("floor's address")??.parse()?;
        let agents = Agents::connect(Plan {
            server,
            tls: None,
            manners: vec![Manner::Honest; self.clients as usize],
            greetings: vec![b"hello".to_vec()],
            pong: b"pong".to_vec(),
            threads: 1,
            hold: false,
            needed: None,
        })
        .await?;
        let done = tokio::task::spawn_blocking(move || lines.next()).await?;
        ensure!(matches!(done, Some(Ok(line)) if line == "done"), "the floor server failed");
        let cpu = proc::cpu_secs(child.0.id());
        drop(agents);
        Ok(cpu)
    }
}

/// The floor server's process, ended with the run.
struct Floor(Child);

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
