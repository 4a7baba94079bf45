//! One simulation: a seed in, a verdict out.
//!
//! ```text
//!  Trouble (churn and faults, at random) ──all faults undone──► Calm (no changes) ──all agents in sync──► Settled ─► end
//!                                                                 └──not in sync in time: a violation
//! ```

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bulrush::datastore::memory::MemoryStore;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use turmoil::Sim;

use super::files::Files;
use super::follower::Follower;
use super::invariants::invariant_final_state;
use super::ledger::{Ledger, Name};
use super::lines::{Defect, MAX_LARGE_WRITE, MAX_WRITE, Plug, SERVERS};
use super::panics::Ear;
use super::roles::{Speaks, roles};
use super::script::{Churn, KINDS, Trouble};
use super::server::{Orders, Site, Source};
use super::summary::Summary;
use super::{library, raw, server};

/// Simulated time between two looks at the world; also the grain of latencies.
const TICK: Duration = Duration::from_millis(10);

/// Duration of trouble.
const TROUBLE_TICKS: u32 = 1000;

/// The same as a time.
pub(super) const TROUBLE: Duration = TICK.saturating_mul(TROUBLE_TICKS);

/// Longest time until agents are in sync without faults: a few time-outs, and the longest pauses between attempts.
const CALM_TICKS: u32 = 6000;

/// Time after the last fault in which a dead connection may still look alive: longer than all time-outs.
const DOUBT_TICKS: u32 = 300;

/// Time for which an agent has to stay in its final state.
const SETTLED_TICKS: u32 = 50;

/// Interval of checks whether all agents are in their final state.
const LOOK_TICKS: u32 = 20;

/// Longest time until a server notices that files have changed.
const MAX_UNNOTICED: Duration = Duration::from_millis(300);

/// Number of pages to release: enough for all lists.
const ALL_PAGES: usize = 1_000_000;

/// Settings of a run from its beginning.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// Two servers with the same datastore.
    pair: bool,
    /// Servers read a folder.
    folder: bool,
    /// Some values are large.
    large: bool,
}

impl Setting {
    fn draw(rng: &mut SmallRng) -> Self {
        Self { pair: rng.random_ratio(1, 3), folder: rng.random_ratio(1, 6), large: rng.random_ratio(1, 8) }
    }

    fn servers(self) -> &'static [Name] {
        if self.pair { &SERVERS } else { &SERVERS[..1] }
    }
}

/// Rate of each fault, drawn per seed: some runs have many faults, some have many changes on a good network.
#[derive(Debug)]
struct Weather {
    change: f64,
    burst: f64,
    cut: f64,
    partition: f64,
    hold: f64,
    crash: f64,
    drain: f64,
    crowd: f64,
    stall: f64,
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
            crowd: rate(0.25),
            stall: rate(0.3),
            datastore: rate(1.5),
        }
    }
}

/// The end of a fault, at an agent and a server, at a server, or at the datastore.
#[derive(Clone, Debug)]
enum Undo {
    Repair(Name, Name),
    Release(Name, Name),
    Start(Name),
    GiveRoom(Name),
    GoOn(Name),
    ReleaseLists(usize),
    BringBackFolder,
    /// A server notices a change of files. This is not the end of a fault.
    Reload(Name),
}

struct World<'a> {
    sim: Sim<'a>,
    ledger: Ledger,
    rng: SmallRng,
    store: MemoryStore,
    files: Option<Files>,
    churn: Churn,
    setting: Setting,
    agents: Vec<(Name, Plug)>,
    servers: Vec<(Name, watch::Sender<Orders>)>,
    undo: Vec<(u32, Undo)>,
    tick: u32,
    faults: u64,
    ear: Ear,
}

/// Runs a seed, with a defect if the test has to find one.
pub(super) fn run(seed: u64, defect: Option<Defect>, ledger: &Ledger) -> Result<Summary, String> {
    let ear = Ear::listen();
    let mut rng = SmallRng::seed_from_u64(seed);
    let setting = Setting::draw(&mut rng);
    let store = MemoryStore::new();
    store.set_page_size(rng.random_range(1..20));
    let files = setting.folder.then(Files::new).transpose();
    let files = files.map_err(|error| format!("make a temporary folder: {error}"))?;
    let mut churn = Churn::new(store.clone(), files.clone(), setting.large, ledger.clone());
    let objects = rng.random_range(0..30);
    churn.fill(&mut rng, objects);

    let mut builder = turmoil::Builder::new();
    let max_latency = if setting.large { 20 } else { 80 };
    builder
        .rng_seed(rng.random())
        .epoch(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .tick_duration(TICK)
        .simulation_duration(Duration::from_secs(3600))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(rng.random_range(2..max_latency)))
        .enable_random_order();
    if rng.random_bool(0.3) {
        // Turmoil sends no message again: after a lost one the connection hangs until an end notices.
        builder.fail_rate(0.0005).repair_rate(0.5);
    }
    let mut sim = builder.build();
    let mut servers = Vec::new();
    for &name in setting.servers() {
        let (orders, obeyed) = watch::channel(Orders::default());
        let site = Site {
            seed,
            name,
            servers: setting.servers(),
            ledger: ledger.clone(),
            source: files.clone().map_or_else(|| Source::Memory(store.clone()), Source::Folder),
            orders: obeyed,
            max_write: if setting.large { MAX_LARGE_WRITE } else { MAX_WRITE },
            defect,
        };
        sim.host(name, move || server::live(site.clone()));
        servers.push((name, orders));
    }
    let mut agents = Vec::new();
    for role in roles(&mut rng, setting.servers()) {
        let plug = Plug::default();
        agents.push((role.name, plug.clone()));
        ledger.log(role.name, format!("{role:?}"));
        let seed = rng.random();
        let follower =
            |strict_types| Follower::new(ledger, role.name, role.syncer, &role.prefixes, role.line, strict_types);
        match role.speaks.clone() {
            Speaks::Library(protocol) => {
                sim.client(role.name, library::follow(follower(true), role.clone(), protocol, plug, seed));
            }
            Speaks::Raw(protocol) => {
                sim.client(role.name, raw::follow(follower(false), role.clone(), protocol, plug, seed));
            }
            Speaks::Ignores(protocol) => {
                sim.client(role.name, raw::ignore(ledger.clone(), role.clone(), protocol, plug));
            }
        }
    }
    let weather = Weather::draw(&mut rng);
    ledger.log("world", format!("{setting:?} {weather:?}"));
    let (undo, ledger) = (Vec::new(), ledger.clone());
    let (tick, faults) = (0, 0);
    World { sim, ledger, rng, store, files, churn, setting, agents, servers, undo, tick, faults, ear }.live(&weather)
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
        while !self.undo.is_empty() {
            self.end_faults(true);
        }
        for (agent, _) in &self.agents {
            for (server, _) in &self.servers {
                self.sim.repair(*agent, *server);
            }
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
                    self.log("all agents are in sync");
                    settled_at = Some(self.tick);
                }
                (Ok(()), Some(at)) if self.tick >= at + SETTLED_TICKS => return Ok(self.summary()),
                (Ok(()), Some(_)) => {}
                (Err(_), None) if self.tick < deadline => {}
                (Err(words), None) => return Err(format!("not in its final state long after the last fault: {words}")),
                (Err(words), Some(_)) => return Err(format!("left its final state without any fault: {words}")),
            }
        }
    }

    fn log(&self, what: impl Into<Cow<'static, str>>) {
        self.ledger.log("world", what);
    }

    fn step(&mut self) -> Result<(), String> {
        self.tick += 1;
        let stepped = self.sim.step();
        self.ear.verdict()?;
        stepped.map_err(|error| format!("a host failed: {error}"))?;
        let mut book = self.ledger.book();
        book.now = self.sim.elapsed();
        book.violation.take().map_or(Ok(()), Err)
    }

    fn all_there(&self) -> Result<(), String> {
        let book = self.ledger.book();
        book.agents.iter().try_for_each(|(name, agent)| {
            invariant_final_state(&book, agent, &self.store).map_err(|words| format!("{name}: {words}"))
        })?;
        // A client lags only because its host is away, its link is slow, or it does not read.
        match book.metrics.iter().map(|metrics| metrics.lost_wakeups.get()).sum::<u64>() {
            0 => Ok(()),
            times => Err(format!("{times} times an agent was forgotten until housekeeping woke it")),
        }
    }

    fn summary(&self) -> Summary {
        let book = self.ledger.book();
        Summary {
            events: book.events(),
            changes: self.churn.version(),
            crumbs: book.crumbs.values().map(|notes| notes.len() as u64).sum(),
            server_lives: book.generations,
            catch_ups: book.metrics.iter().map(|metrics| metrics.catch_ups.get()).sum(),
            faults: self.faults,
            pairs: u64::from(self.setting.pair),
            folders: u64::from(self.setting.folder),
            large: u64::from(self.setting.large),
            counts: book.counts,
        }
    }

    fn later(&mut self, max: Duration, undo: Undo) {
        let max_ticks = u32::try_from(max.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX);
        let ticks = self.rng.random_range(1..=max_ticks);
        self.undo.push((self.tick + ticks, undo));
    }

    fn some_server(&mut self) -> Name {
        self.servers[self.rng.random_range(0..self.servers.len())].0
    }

    /// An agent and a server with an undisturbed link between them.
    fn some_link(&mut self) -> Option<(Name, Name)> {
        let (agent, server) = (self.agents[self.rng.random_range(0..self.agents.len())].0, self.some_server());
        let busy = |undo: &Undo| matches!(undo, Undo::Repair(one, other) | Undo::Release(one, other) if (*one, *other) == (agent, server));
        (!self.undo.iter().any(|(_, undo)| busy(undo))).then_some((agent, server))
    }

    fn order(&self, server: Name, order: impl FnOnce(&mut Orders)) {
        let (_, orders) = self.servers.iter().find(|(name, _)| *name == server).expect("a server of this run");
        orders.send_modify(order);
    }

    fn fault(&mut self, what: impl Into<Cow<'static, str>>) {
        self.faults += 1;
        self.log(what);
    }

    /// The datastore changes.
    fn change(&mut self, count: usize) {
        self.churn.change(&mut self.rng, count);
        if self.files.is_some() {
            for server in self.setting.servers() {
                self.later(MAX_UNNOTICED, Undo::Reload(server));
            }
        }
    }

    fn make_trouble(&mut self, weather: &Weather) {
        if self.rng.random_bool(weather.change) {
            let count = self.rng.random_range(1..4);
            self.change(count);
        }
        if self.rng.random_bool(weather.burst) {
            let count = self.rng.random_range(20..60);
            self.change(count);
        }
        if self.rng.random_bool(weather.cut) {
            let (agent, plug) = self.agents[self.rng.random_range(0..self.agents.len())].clone();
            self.fault(format!("{agent} is reset"));
            plug.cut();
        }
        if self.rng.random_bool(weather.partition)
            && let Some((agent, server)) = self.some_link()
        {
            match self.rng.random_range(0..4) {
                0 => {
                    self.fault(format!("{agent} does not hear {server}"));
                    self.sim.partition_oneway(server, agent);
                }
                1 => {
                    self.fault(format!("{server} does not hear {agent}"));
                    self.sim.partition_oneway(agent, server);
                }
                _ => {
                    self.fault(format!("{agent} and {server} do not hear each other"));
                    self.sim.partition(agent, server);
                }
            }
            self.later(Duration::from_secs(3), Undo::Repair(agent, server));
        }
        if self.rng.random_bool(weather.hold)
            && let Some((agent, server)) = self.some_link()
        {
            self.fault(format!("messages between {agent} and {server} are held up"));
            self.sim.hold(agent, server);
            self.later(Duration::from_secs(2), Undo::Release(agent, server));
        }
        self.trouble_a_server(weather);
        if self.rng.random_bool(weather.datastore) {
            self.trouble_the_datastore();
        }
    }

    fn trouble_a_server(&mut self, weather: &Weather) {
        let server = self.some_server();
        let is = |undo: &Undo| matches!(undo, Undo::Start(name) if *name == server);
        let down = self.undo.iter().any(|(_, undo)| is(undo));
        if !down && self.rng.random_bool(weather.crash) {
            self.fault(format!("{server} crashes"));
            self.sim.crash(server);
            self.later(Duration::from_millis(1500), Undo::Start(server));
        } else if !down && self.rng.random_bool(weather.drain) {
            self.fault(format!("{server} is to drain"));
            self.order(server, |orders| orders.drains += 1);
        }
        if self.rng.random_bool(weather.crowd) {
            self.fault(format!("{server} is crowded"));
            self.order(server, |orders| orders.crowded = true);
            self.later(Duration::from_millis(1500), Undo::GiveRoom(server));
        }
        if self.rng.random_bool(weather.stall) {
            self.fault(format!("watches of {server} fall silent"));
            self.order(server, |orders| orders.stalled = true);
            self.later(Duration::from_secs(3), Undo::GoOn(server));
        }
    }

    fn trouble_the_datastore(&mut self) {
        if let Some(files) = &self.files {
            files.set_away(true);
            self.fault("the folder is away");
            self.later(Duration::from_secs(1), Undo::BringBackFolder);
            return;
        }
        let kind = self.rng.random_range(0..KINDS.len());
        let trouble = Trouble::draw(&mut self.rng);
        self.fault(format!("{}: {trouble:?}", KINDS[kind].name));
        trouble.happen(&self.store, &KINDS[kind]);
        if matches!(trouble, Trouble::HoldsLists) {
            self.later(Duration::from_millis(1500), Undo::ReleaseLists(kind));
        }
    }

    fn end_faults(&mut self, all: bool) {
        let tick = self.tick;
        let due: Vec<(u32, Undo)> = self.undo.extract_if(.., |(at, _)| all || *at <= tick).collect();
        for (_, undo) in due {
            self.log(format!("{undo:?}"));
            match undo {
                Undo::Repair(agent, server) => self.sim.repair(agent, server),
                Undo::Release(agent, server) => self.sim.release(agent, server),
                Undo::Start(server) => self.sim.bounce(server),
                Undo::GiveRoom(server) => self.order(server, |orders| orders.crowded = false),
                Undo::GoOn(server) => self.order(server, |orders| orders.stalled = false),
                Undo::ReleaseLists(kind) => self.store.release_pages(&KINDS[kind], ALL_PAGES),
                Undo::BringBackFolder => {
                    if let Some(files) = &self.files {
                        files.set_away(false);
                    }
                    for server in self.setting.servers() {
                        self.later(MAX_UNNOTICED, Undo::Reload(server));
                    }
                }
                Undo::Reload(server) => self.order(server, |orders| orders.reloads += 1),
            }
        }
    }
}
