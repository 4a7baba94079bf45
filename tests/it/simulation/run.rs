//! One simulation: a seed in, a verdict out.
//!
//! ```text
//!  Trouble (churn and faults, at random) ──all faults undone──► Calm (no changes) ──all agents are there──► Settled ─► end
//!                                                                 └──not there in time: a violation
//! ```

use std::time::{Duration, SystemTime};

use bulrush::datastore::memory::MemoryStore;
use bulrush::syncclient::Protocol;
use bulrush::syncer::SyncerType::{self, Bgp, Felix};
use bulrush::syncproto::native::Compression;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use turmoil::Sim;

use super::follower::Follower;
use super::invariants::invariant_final_state;
use super::ledger::Ledger;
use super::lines::{Defect, Plug};
use super::panics::Ear;
use super::raw::Raw;
use super::script::{Churn, KINDS, Trouble};
use super::{library, raw, server};

/// Simulated time between two looks at the world; also the grain of latencies.
const TICK: Duration = Duration::from_millis(10);

/// How long things go wrong.
const TROUBLE_TICKS: u32 = 1000;

/// How long agents may take to be in sync once all is well: a few time-outs, and the longest pauses between tries.
const CALM_TICKS: u32 = 6000;

/// How long after the last fault a connection that it has killed may still look alive: longer than all time-outs.
const DOUBT_TICKS: u32 = 300;

/// How long an agent that is there has to stay there.
const SETTLED_TICKS: u32 = 50;

/// How often it is looked whether all agents are there.
const LOOK_TICKS: u32 = 20;

/// Enough for all pages of all lists.
const ALL_PAGES: usize = 1_000_000;

/// An agent's part in the simulation.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) name: &'static str,
    pub(super) syncer: SyncerType,
    pub(super) prefixes: Vec<String>,
    /// How slow it is: a pause per event or read.
    pub(super) pause: Duration,
    speaks: Speaks,
}

#[derive(Clone, Debug)]
enum Speaks {
    Library(Protocol),
    Raw(Raw),
}

/// What happened, so that a run in which nothing did is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    changes: u64,
    crumbs: u64,
    server_lives: u64,
    connections: u64,
    in_syncs: u64,
    deletions: u64,
    catch_ups: u64,
    faults: u64,
}

impl Summary {
    pub(super) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.crumbs += other.crumbs;
        self.server_lives += other.server_lives;
        self.connections += other.connections;
        self.in_syncs += other.in_syncs;
        self.deletions += other.deletions;
        self.catch_ups += other.catch_ups;
        self.faults += other.faults;
    }

    /// Panics unless everything that is to be tested has happened.
    pub(super) fn demand_coverage(&self) {
        for (what, count) in [
            ("changes", self.changes),
            ("server lives", self.server_lives),
            ("connections", self.connections),
            ("in-sync", self.in_syncs),
            ("deletions", self.deletions),
            ("catch-ups", self.catch_ups),
            ("faults", self.faults),
        ] {
            assert!(count >= 10, "only {count} {what} in all seeds: {self:?}");
        }
    }
}

fn roles(rng: &mut SmallRng) -> Vec<Role> {
    let native =
        |compressions: &[Compression]| Speaks::Library(Protocol::Native { compressions: compressions.to_vec() });
    let calico = |compression| Speaks::Library(Protocol::Calico { compression });
    let sets = ["/calico/v1/netset/"];
    let mut role = |name, syncer, prefixes: &[&str], max_pause_ms: u64, speaks| Role {
        name,
        syncer,
        prefixes: prefixes.iter().map(|&prefix| prefix.to_owned()).collect(),
        pause: Duration::from_millis(if rng.random() { rng.random_range(0..=max_pause_ms) } else { 0 }),
        speaks,
    };
    vec![
        role("lib-zstd", Felix, &[], 20, native(&[Compression::Zstd])),
        role("lib-snappy-sets", Felix, &sets, 20, native(&[Compression::Snappy])),
        role("lib-plain-bgp", Bgp, &[], 50, native(&[])),
        role("lib-calico-snappy", Felix, &[], 50, calico(true)),
        role("lib-calico-bgp", Bgp, &[], 50, calico(false)),
        role("raw-native", Felix, &[], 100, Speaks::Raw(Raw::Native(Compression::Zstd))),
        role("raw-native-sets", Felix, &sets, 100, Speaks::Raw(Raw::Native(Compression::None))),
        role("raw-gob-snappy", Felix, &[], 150, Speaks::Raw(Raw::Gob(true))),
        role("raw-gob", Felix, &[], 150, Speaks::Raw(Raw::Gob(false))),
    ]
}

/// How often each fault comes, drawn per seed: some runs are rough, some change a lot on a good network.
#[derive(Debug)]
struct Weather {
    change: f64,
    burst: f64,
    cut: f64,
    partition: f64,
    hold: f64,
    crash: f64,
    drain: f64,
    datastore: f64,
}

impl Weather {
    fn draw(rng: &mut SmallRng) -> Self {
        let mut rate = |max_per_second: f64| rng.random_range(0.0..max_per_second) * TICK.as_secs_f64();
        Self {
            change: rate(30.0),
            burst: rate(0.6),
            cut: rate(2.0),
            partition: rate(0.8),
            hold: rate(0.8),
            crash: rate(0.4),
            drain: rate(0.25),
            datastore: rate(1.5),
        }
    }
}

/// What ends a fault.
#[derive(Clone, Debug)]
enum Undo {
    Repair(&'static str),
    Release(&'static str),
    Start,
    ReleaseLists(usize),
}

struct World<'a> {
    sim: Sim<'a>,
    ledger: Ledger,
    rng: SmallRng,
    store: MemoryStore,
    churn: Churn,
    agents: Vec<(&'static str, Plug)>,
    drains: watch::Sender<u64>,
    undo: Vec<(u32, Undo)>,
    tick: u32,
    faults: u64,
    ear: Ear,
}

/// Runs a seed, with a defect if one is to be found.
pub(super) fn run(seed: u64, defect: Option<Defect>, ledger: &Ledger) -> Result<Summary, String> {
    let ear = Ear::listen();
    let mut rng = SmallRng::seed_from_u64(seed);
    let store = MemoryStore::new();
    store.set_page_size(rng.random_range(1..20));
    let mut churn = Churn::new(store.clone(), ledger.clone());
    let objects = rng.random_range(0..30);
    churn.fill(&mut rng, objects);

    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(rng.random())
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .tick_duration(TICK)
        .simulation_duration(Duration::from_secs(3600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(rng.random_range(2..80)))
        .enable_random_order();
    if rng.random_bool(0.3) {
        // Turmoil sends nothing again: a lost message is a connection that hangs until somebody notices.
        builder.fail_rate(0.0005).repair_rate(0.5);
    }
    let mut sim = builder.build();
    let (drains, drained) = watch::channel(0);
    {
        let (ledger, store) = (ledger.clone(), store.clone());
        sim.host("server", move || server::live(seed, ledger.clone(), store.clone(), drained.clone(), defect));
    }
    let mut agents = Vec::new();
    for role in roles(&mut rng) {
        let plug = Plug::default();
        agents.push((role.name, plug.clone()));
        let strict_types = matches!(role.speaks, Speaks::Library(_));
        let follower = Follower::new(ledger, role.name, role.syncer, &role.prefixes, strict_types);
        follower.log(&format!("{role:?}"));
        match role.speaks.clone() {
            Speaks::Library(protocol) => {
                sim.client(role.name, library::follow(follower, role, protocol, plug, rng.random()));
            }
            Speaks::Raw(protocol) => sim.client(role.name, raw::follow(follower, role, protocol, plug)),
        }
    }
    let weather = Weather::draw(&mut rng);
    ledger.log("world", &format!("{weather:?}"));
    let (undo, ledger) = (Vec::new(), ledger.clone());
    World { sim, ledger, rng, store, churn, agents, drains, undo, tick: 0, faults: 0, ear }.live(&weather)
}

impl World<'_> {
    fn live(mut self, weather: &Weather) -> Result<Summary, String> {
        while self.tick < TROUBLE_TICKS {
            self.make_trouble(weather);
            self.end_faults(false);
            self.step()?;
        }
        // Trouble => Calm
        self.log("all faults end");
        self.sim.set_fail_rate(0.0);
        self.end_faults(true);
        for (agent, _) in &self.agents {
            self.sim.repair(*agent, "server");
        }
        let (doubt_until, deadline) = (self.tick + DOUBT_TICKS, self.tick + CALM_TICKS);
        let mut settled_at = None;
        loop {
            self.step()?;
            if self.tick < doubt_until || !self.tick.is_multiple_of(LOOK_TICKS) {
                continue;
            }
            let verdict = self.all_there();
            match (verdict, settled_at) {
                // Calm => Settled
                (Ok(()), None) => {
                    self.log("all agents are there");
                    settled_at = Some(self.tick);
                }
                (Ok(()), Some(at)) if self.tick >= at + SETTLED_TICKS => return Ok(self.summary()),
                (Ok(()), Some(_)) => {}
                (Err(_), None) if self.tick < deadline => {}
                (Err(words), None) => return Err(format!("not there long after the last fault: {words}")),
                (Err(words), Some(_)) => return Err(format!("was there, and without any fault is no longer: {words}")),
            }
        }
    }

    fn log(&self, what: &str) {
        self.ledger.log("world", &format!("{:.3} {what}", self.sim.elapsed().as_secs_f64()));
    }

    fn step(&mut self) -> Result<(), String> {
        self.tick += 1;
        let stepped = self.sim.step();
        self.ear.verdict()?;
        stepped.map_err(|error| format!("a host failed: {error}"))?;
        self.ledger.book().violation.take().map_or(Ok(()), Err)
    }

    fn all_there(&self) -> Result<(), String> {
        let book = self.ledger.book();
        book.agents.iter().try_for_each(|(name, agent)| {
            invariant_final_state(&book, agent, &self.store).map_err(|words| format!("{name}: {words}"))
        })?;
        // Whoever lags has a reason: its host is away, its link is slow, or it does not read.
        match book.metrics.iter().map(|metrics| metrics.lost_wakeups.get()).sum::<u64>() {
            0 => Ok(()),
            times => Err(format!("{times} times an agent was forgotten until housekeeping woke it")),
        }
    }

    fn summary(&self) -> Summary {
        let book = self.ledger.book();
        Summary {
            changes: self.churn.version(),
            crumbs: book.crumbs.values().map(|notes| notes.len() as u64).sum(),
            server_lives: book.generation,
            connections: book.connections,
            in_syncs: book.in_syncs,
            deletions: book.deletions,
            catch_ups: book.metrics.iter().map(|metrics| metrics.catch_ups.get()).sum(),
            faults: self.faults,
        }
    }

    fn later(&mut self, max: Duration, undo: Undo) {
        let max_ticks = u32::try_from(max.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        let ticks = self.rng.random_range(1..=max_ticks);
        self.undo.push((self.tick + ticks, undo));
    }

    /// An agent whose link nobody is tampering with.
    fn some_agent(&mut self) -> Option<(&'static str, Plug)> {
        let (name, plug) = self.agents[self.rng.random_range(0..self.agents.len())].clone();
        let busy = |undo: &Undo| matches!(undo, Undo::Repair(agent) | Undo::Release(agent) if *agent == name);
        (!self.undo.iter().any(|(_, undo)| busy(undo))).then_some((name, plug))
    }

    fn fault(&mut self, what: &str) {
        self.faults += 1;
        self.log(what);
    }

    fn make_trouble(&mut self, weather: &Weather) {
        if self.rng.random_bool(weather.change) {
            let count = self.rng.random_range(1..4);
            self.churn.change(&mut self.rng, count);
        }
        if self.rng.random_bool(weather.burst) {
            let count = self.rng.random_range(20..60);
            self.churn.change(&mut self.rng, count);
        }
        if self.rng.random_bool(weather.cut)
            && let Some((name, plug)) = self.some_agent()
        {
            self.fault(&format!("{name} is reset"));
            plug.cut();
        }
        if self.rng.random_bool(weather.partition)
            && let Some((name, _)) = self.some_agent()
        {
            self.fault(&format!("{name} is cut off"));
            self.sim.partition(name, "server");
            self.later(Duration::from_secs(3), Undo::Repair(name));
        }
        if self.rng.random_bool(weather.hold)
            && let Some((name, _)) = self.some_agent()
        {
            self.fault(&format!("{name} is held up"));
            self.sim.hold(name, "server");
            self.later(Duration::from_secs(2), Undo::Release(name));
        }
        let down = self.undo.iter().any(|(_, undo)| matches!(undo, Undo::Start));
        if !down && self.rng.random_bool(weather.crash) {
            self.fault("the server crashes");
            self.sim.crash("server");
            self.later(Duration::from_millis(1500), Undo::Start);
        } else if !down && self.rng.random_bool(weather.drain) {
            self.fault("the server drains");
            self.drains.send_modify(|count| *count += 1);
        }
        if self.rng.random_bool(weather.datastore) {
            let kind = self.rng.random_range(0..KINDS.len());
            let trouble = Trouble::draw(&mut self.rng);
            self.fault(&format!("{}: {trouble:?}", KINDS[kind].name));
            trouble.happen(&self.store, &KINDS[kind]);
            if matches!(trouble, Trouble::HoldsLists) {
                self.later(Duration::from_millis(1500), Undo::ReleaseLists(kind));
            }
        }
    }

    fn end_faults(&mut self, all: bool) {
        let tick = self.tick;
        let due: Vec<(u32, Undo)> = self.undo.extract_if(.., |(at, _)| all || *at <= tick).collect();
        for (_, undo) in due {
            self.log(&format!("{undo:?}"));
            match undo {
                Undo::Repair(agent) => self.sim.repair(agent, "server"),
                Undo::Release(agent) => self.sim.release(agent, "server"),
                Undo::Start => self.sim.bounce("server"),
                Undo::ReleaseLists(kind) => self.store.release_pages(&KINDS[kind], ALL_PAGES),
            }
        }
    }
}
