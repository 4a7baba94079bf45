//! A server, and agents that follow it: the beginning of every scenario.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::args::Args;
use crate::load::manner::{Manner, mixed};
use crate::load::{Agents, Plan};
use crate::probe::{self, Seen, Target, Written};
use crate::relay::Relay;
use crate::report::Report;
use crate::server::{START_LIMIT, Server};
use crate::store::Store;

/// Longest time until the last change arrives, and time without arrivals after which missing changes count as coalesced or lost.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(120);
const ARRIVAL_STALL: Duration = Duration::from_secs(8);

/// Starts of a server that ends at once: its port may have been taken between choosing and starting.
const START_ATTEMPTS: usize = 3;

/// A server under test and the datastore behind it.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) store: &'a Store,
    pub(crate) server: Server,
}

impl<'a> Session<'a> {
    /// Starts the server, or uses the running one, and waits until it listens.
    pub(crate) async fn start(args: &'a Args, store: &'a Store, relay: Option<&Relay>) -> anyhow::Result<Self> {
        for _ in 0..START_ATTEMPTS {
            let mut server = if let Some(address) = &args.server {
                Server::running(address, args.server_pid, args.own_tls()?)?
            } else {
                let (program, log) = (args.program.as_deref(), args.server_log.as_deref());
                Server::start(program, &store.environment(relay), args.tls, log)?
            };
            if server.listens().await? {
                return Ok(Self { args, store, server });
            }
        }
        bail!("the server ended {START_ATTEMPTS} times right after its start; --server-log says why")
    }

    /// Connects `n` probes and waits until they are in sync.
    pub(crate) async fn probes(&self, n: usize) -> anyhow::Result<Probes> {
        let mut probes = self.held_probes(n);
        probes.introduce();
        probes.in_sync(START_LIMIT).await?;
        Ok(probes)
    }

    /// Connects `n` probes that send nothing yet.
    pub(crate) fn held_probes(&self, n: usize) -> Probes {
        let mut probes = Probes {
            written: Written::default(),
            seen: Vec::new(),
            targets: self.targets(),
            start: watch::Sender::new(false),
            tasks: JoinSet::new(),
        };
        probes.connect(n);
        probes
    }

    /// Servers and manners of probes, taken in turn.
    fn targets(&self) -> Vec<Target> {
        let count = self.args.dialects.len().max(1);
        let target = |i| Target {
            address: self.server.address,
            tls: self.server.tls.clone(),
            wire: self.args.wire,
            dialect: self.args.dialect(i),
        };
        (0..count).map(target).collect()
    }

    /// Connects `n` honest counting agents.
    pub(crate) async fn agents(&self, n: usize) -> anyhow::Result<Agents> {
        Agents::connect(self.plan(n)).await
    }

    /// The same, with slow and stuck agents among them.
    pub(crate) async fn mixed_agents(&self, n: usize) -> anyhow::Result<Agents> {
        let (slow, stuck) = self.hostile_agents();
        let manners = mixed(n, slow, self.args.slow_rate, stuck);
        Agents::connect(Plan { manners, ..self.plan(n) }).await
    }

    /// A plan of `n` agents that greet as soon as they are connected.
    pub(crate) fn plan(&self, n: usize) -> Plan {
        Plan {
            server: self.server.address,
            tls: self.server.tls.clone(),
            manners: vec![Manner::Honest; n],
            greetings: self.greetings(),
            pong: probe::pong(),
            threads: self.args.load_threads(),
            hold: false,
            needed: None,
        }
    }

    /// Number of agents that read slowly, and of agents that never read.
    pub(crate) fn hostile_agents(&self) -> (usize, usize) {
        (self.args.slow.of(self.args.clients), self.args.stuck.of(self.args.clients))
    }

    /// First bytes of counting agents, taken in turn.
    pub(crate) fn greetings(&self) -> Vec<Vec<u8>> {
        let count = self.args.dialects.len().max(1);
        (0..count).map(|i| probe::greeting("agent", true, self.args.wire, self.args.dialect(i))).collect()
    }

    /// The first fields of a result.
    pub(crate) fn report(&self, scenario: &str) -> Report {
        let (args, mut report) = (self.args, Report::default());
        report.set("scenario", scenario);
        report.set("server", args.label());
        report.set("datastore", self.store.name());
        if self.store.is_ours() {
            report.set("endpoints", self.store.endpoints());
        }
        report.set("clients", args.clients);
        report.set("wire", format!("{:?}", args.wire).to_lowercase());
        report.set("tls", args.tls);
        if !args.dialects.is_empty() {
            report.set("dialects", args.dialects.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
        }
        report
    }

    /// Time to let the server come to rest.
    pub(crate) fn settle_time(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 300 } else { 3_000 })
    }
}

/// Agents that decode everything.
pub(crate) struct Probes {
    pub(crate) written: Written,
    pub(crate) seen: Vec<watch::Receiver<Seen>>,
    targets: Vec<Target>,
    start: watch::Sender<bool>,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Probes {
    fn connect(&mut self, n: usize) {
        for i in self.seen.len()..self.seen.len() + n {
            let (sender, receiver) = watch::channel(Seen::default());
            let (target, start) = (self.targets[i % self.targets.len()].clone(), self.start.subscribe());
            self.tasks.spawn(probe::follow(target, format!("probe-{i}"), self.written.clone(), sender, start));
            self.seen.push(receiver);
        }
    }

    /// Connects `n` more probes and waits until all are in sync.
    pub(crate) async fn add(&mut self, n: usize) -> anyhow::Result<()> {
        self.connect(n);
        self.in_sync(START_LIMIT).await
    }

    /// Lets the probes greet.
    pub(crate) fn introduce(&self) {
        self.start.send_replace(true);
    }

    /// Waits until all are in sync.
    pub(crate) async fn in_sync(&mut self, limit: Duration) -> anyhow::Result<()> {
        for seen in &mut self.seen {
            tokio::select! {
                done = tokio::time::timeout(limit, seen.wait_for(|seen| seen.in_sync)) => {
                    done.with_context(|| format!("no probe was in sync within {limit:?}"))??;
                }
                ended = self.tasks.join_next() => bail!("a probe ended before it was in sync: {ended:?}"),
            }
        }
        Ok(())
    }

    /// Waits until all probes have all `changes` or newer changes of the same endpoints: a change that is overwritten before
    /// it is sent never arrives. Returns the number of overwritten changes, of the probe with the most.
    pub(crate) async fn arrived(&mut self, store: &Store, changes: usize) -> anyhow::Result<usize> {
        let began = Instant::now();
        let mut last = (0, Instant::now());
        loop {
            let (least, sum) = self.seen.iter().fold((usize::MAX, 0), |(least, sum), seen| {
                let n = seen.borrow().changes;
                (least.min(n), sum + n)
            });
            if least >= changes {
                return Ok(0);
            }
            if sum > last.0 {
                last = (sum, Instant::now());
            }
            if last.1.elapsed() > ARRIVAL_STALL || began.elapsed() > ARRIVAL_LIMIT {
                return self.overwritten(store, changes);
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
                ended = self.tasks.join_next() => bail!("a probe ended before it had the last change: {ended:?}"),
            }
        }
    }

    /// Number of changes that never arrived because a newer one of the same endpoint did. Fails if no newer one arrived.
    fn overwritten(&self, store: &Store, changes: usize) -> anyhow::Result<usize> {
        let first = self.written.lock().expect("no panic while the table of writes is locked").first;
        let mut most = 0;
        for (i, seen) in self.seen.iter().enumerate() {
            let seen = seen.borrow();
            let mut newest = std::collections::HashSet::new();
            let mut missed = 0;
            // From the newest backwards: the first change of an endpoint in this order must have arrived.
            for change in (0..changes).rev() {
                let came = seen.latencies_ms.get(change).copied().flatten().is_some();
                let is_newest = newest.insert(store.changed(first + change));
                ensure!(came || !is_newest, "probe {i} never got change {} of {changes}", change + 1);
                missed += usize::from(!came);
            }
            most = most.max(missed);
        }
        Ok(most)
    }

    /// Messages of all probes so far; see [`Seen::messages`].
    pub(crate) fn messages(&self) -> u64 {
        self.seen.iter().map(|seen| seen.borrow().messages).sum()
    }

    /// All latencies of all probes in milliseconds, in order.
    pub(crate) fn latencies(&self) -> Vec<f64> {
        let of =
            |seen: &watch::Receiver<Seen>| seen.borrow().latencies_ms.iter().flatten().copied().collect::<Vec<_>>();
        let mut all: Vec<f64> = self.seen.iter().flat_map(of).collect();
        all.sort_by(f64::total_cmp);
        all
    }
}
