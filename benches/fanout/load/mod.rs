//! Many agents that only count bytes, at the least cost that the kernel allows.
//!
//! Each sends its hello and both acknowledgements at once (which servers of the protocol accept), and then reads. Regular pongs keep
//! servers from dropping it. Some agents may behave badly ([`manner`]).
//!
//! | file | duty |
//! |---|---|
//! | `socket` | connecting from several source addresses |
//! | `connection` | one agent's connection |
//! | `manner` | agents that read, read slowly, or never read |
//! | `pump` | the thread that serves a share of the agents |

pub(crate) mod connection;
pub(crate) mod manner;
mod pump;
pub(crate) mod socket;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mio::{Poll, Waker};
use tokio::time::Instant;

use self::connection::Phase;
use self::manner::Manner;
use self::pump::{Pump, WAKE};
use crate::progress::Step;
use crate::tls::Tls;

/// Name of the load's threads, which tells their CPU time from that of the decoding agents.
pub(crate) const THREAD: &str = "agents";
/// Pause between two looks at the threads' counts.
const LOOK: Duration = Duration::from_millis(5);
/// Longest time without a new connection while agents connect.
const CONNECT_STALL: Duration = Duration::from_secs(60);
/// Time without new bytes after which agents count as settled, and the longest wait for that.
const QUIET: Duration = Duration::from_secs(1);
/// Bytes that an agent may still receive in that time: about one ping.
const PING_BYTES: u64 = 128;
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// Most lost connections that a failure describes.
const DESCRIBED: usize = 5;

/// The agents to connect.
pub(crate) struct Plan {
    pub(crate) server: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// The manner of each agent.
    pub(crate) manners: Vec<Manner>,
    /// First bytes of the agents, taken in turn. Not empty.
    pub(crate) greetings: Vec<Vec<u8>>,
    pub(crate) pong: Vec<u8>,
    /// Number of threads.
    pub(crate) threads: usize,
    /// Agents only connect, and send nothing until [`Agents::greet`].
    pub(crate) hold: bool,
    /// Size of a whole snapshot in bytes, if the scenario waits for it.
    pub(crate) needed: Option<u64>,
}

impl Plan {
    fn has_slow(&self) -> bool {
        self.manners.iter().any(|manner| matches!(manner, Manner::Slow(_)))
    }

    fn honest(&self) -> impl Iterator<Item = usize> {
        self.manners.iter().enumerate().filter(|(_, manner)| **manner == Manner::Honest).map(|(id, _)| id)
    }
}

/// Counts of all threads so far. Lists are by the agent's number in the plan.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Agents that the server has answered; with `hold`, connected agents.
    opened: AtomicUsize,
    /// Agents are still connecting, and an agent that is cut tries again. The number of such retries.
    connecting: AtomicBool,
    pub(crate) retried: AtomicUsize,
    /// Bytes and reads of the honest agents.
    pub(crate) bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    /// Lost connections of honest agents, and of hostile agents.
    pub(crate) honest_lost: AtomicUsize,
    pub(crate) hostile_cut: AtomicUsize,
    received: Box<[AtomicU64]>,
    open: Box<[AtomicBool]>,
    /// Size of a whole snapshot in bytes; number of honest agents that have one; time at which each had it.
    needed: u64,
    whole: AtomicUsize,
    whole_at_us: Box<[AtomicU64]>,
    greeted_at: OnceLock<Instant>,
    hold: AtomicBool,
    stop: AtomicBool,
    failures: Mutex<Vec<String>>,
}

impl Shared {
    fn new(plan: &Plan) -> Self {
        let numbers = || plan.manners.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            opened: AtomicUsize::new(0),
            connecting: AtomicBool::new(!plan.hold),
            retried: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            honest_lost: AtomicUsize::new(0),
            hostile_cut: AtomicUsize::new(0),
            received: numbers(),
            open: plan.manners.iter().map(|_| AtomicBool::new(true)).collect(),
            needed: plan.needed.unwrap_or(u64::MAX),
            whole: AtomicUsize::new(0),
            whole_at_us: numbers(),
            greeted_at: OnceLock::new(),
            hold: AtomicBool::new(plan.hold),
            stop: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    fn since_greeting_us(&self) -> u64 {
        let since = self.greeted_at.get().map_or(Duration::ZERO, Instant::elapsed);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// Records that an agent's connection is gone.
    fn lost(&self, id: usize, manner: Manner, phase: Phase, why: &str) {
        self.open[id].store(false, Relaxed);
        if manner == Manner::Honest {
            self.honest_lost.fetch_add(1, Relaxed);
            self.fail(format!("agent {id}, {phase:?}: {why}"));
        } else {
            self.hostile_cut.fetch_add(1, Relaxed);
        }
    }

    fn fail(&self, what: String) {
        let mut failures = self.failures.lock().expect("no panic while the list of failures is locked");
        if failures.len() < DESCRIBED {
            failures.push(what);
        }
    }

    fn failures(&self) -> String {
        self.failures.lock().expect("no panic while the list of failures is locked").join("; ")
    }
}

/// The running agents. Dropping this closes their connections.
pub(crate) struct Agents {
    pub(crate) shared: Arc<Shared>,
    plan: Arc<Plan>,
    threads: Vec<(Waker, JoinHandle<()>)>,
}

impl Agents {
    /// Connects all agents of `plan`; returns once they are connected.
    pub(crate) async fn connect(plan: Plan) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::new(&plan));
        let plan = Arc::new(plan);
        if !plan.hold {
            let _ = shared.greeted_at.set(Instant::now());
        }
        let all = plan.manners.len();
        let mut agents = Self { shared: shared.clone(), plan: plan.clone(), threads: Vec::new() };
        let each = all.div_ceil(plan.threads.max(1)).max(1);
        for first in (0..all).step_by(each) {
            let poll = Poll::new().context("create poll")?;
            let waker = Waker::new(poll.registry(), WAKE).context("create a waker")?;
            let pump = Pump::new(poll, plan.clone(), shared.clone(), first..all.min(first + each));
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || {
                if let Err(error) = pump.run() {
                    shared.fail(format!("{error:#}"));
                    shared.honest_lost.fetch_add(1, Relaxed);
                }
            });
            agents.threads.push((waker, thread?));
        }
        agents.connected(all).await?;
        Ok(agents)
    }

    async fn connected(&self, all: usize) -> anyhow::Result<()> {
        let mut step = Step::begin(format!("connecting {all} agents"));
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let n = self.shared.opened.load(Relaxed);
            self.check()?;
            if n + self.shared.hostile_cut.load(Relaxed) >= all {
                self.shared.connecting.store(false, Relaxed);
                step.done();
                return Ok(());
            }
            if n > last {
                (last, since) = (n, Instant::now());
            }
            if since.elapsed() > CONNECT_STALL {
                bail!("only {n} of {all} agents are connected, and no further one within {CONNECT_STALL:?}");
            }
            step.at(n, all);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Fails if an honest agent was lost.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.shared.honest_lost.load(Relaxed) {
            0 => Ok(()),
            n => bail!("{n} of {} agents lost their connection: {}", self.plan.manners.len(), self.shared.failures()),
        }
    }

    /// Lets all agents send their greetings now.
    pub(crate) fn greet(&self) {
        let _ = self.shared.greeted_at.set(Instant::now());
        self.shared.hold.store(false, Relaxed);
        for (waker, _) in &self.threads {
            let _ = waker.wake();
        }
    }

    /// Waits until all honest agents have a snapshot. Returns the time of each, in seconds, in order: since the greeting, or, without
    /// `hold`, since the first connection was begun.
    pub(crate) async fn whole(&self, limit: Duration) -> anyhow::Result<Vec<f64>> {
        let all = self.plan.honest().count();
        let mut step = Step::begin(format!("sending snapshots to {all} agents"));
        let began = Instant::now();
        loop {
            let n = self.shared.whole.load(Relaxed);
            if n >= all {
                break;
            }
            self.check()?;
            if began.elapsed() > limit {
                let received = self.received();
                bail!(
                    "only {n} of {all} agents have a whole snapshot of {} bytes within {limit:?}; the others have {} and more",
                    self.shared.needed,
                    received.iter().min().copied().unwrap_or(0)
                );
            }
            step.at(n, all);
            tokio::time::sleep(LOOK).await;
        }
        step.done();
        let at = |id: usize| self.shared.whole_at_us[id].load(Relaxed) as f64 / 1e6;
        let mut times: Vec<f64> = self.plan.honest().map(at).collect();
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Waits until the honest agents receive only pings, or for a fixed time if changes never end.
    pub(crate) async fn settled(&self) -> anyhow::Result<()> {
        let mut step = Step::begin("waiting until the agents have everything");
        let (began, pings) = (Instant::now(), PING_BYTES * self.honest() as u64);
        let mut before = None;
        while began.elapsed() < SETTLE_LIMIT {
            self.check()?;
            let bytes = self.shared.bytes.load(Relaxed);
            if before.is_some_and(|before| bytes - before <= pings) {
                break;
            }
            before = Some(bytes);
            step.note(|| format!("{} MiB", bytes >> 20));
            tokio::time::sleep(QUIET).await;
        }
        step.done();
        Ok(())
    }

    /// Bytes that each honest agent has received so far.
    pub(crate) fn received(&self) -> Vec<u64> {
        self.plan.honest().map(|id| self.shared.received[id].load(Relaxed)).collect()
    }

    /// Number of honest agents whose connection is open and that have received bytes since `before` was taken.
    pub(crate) fn live_since(&self, before: &[u64]) -> usize {
        let open = |id: usize| self.shared.open[id].load(Relaxed);
        self.plan
            .honest()
            .zip(self.received())
            .zip(before)
            .filter(|((id, now), before)| open(*id) && now > before)
            .count()
    }

    /// Number of honest agents whose connection is open.
    pub(crate) fn open(&self) -> usize {
        self.plan.honest().filter(|id| self.shared.open[*id].load(Relaxed)).count()
    }

    /// Number of honest agents.
    pub(crate) fn honest(&self) -> usize {
        self.plan.honest().count()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for (waker, thread) in self.threads.drain(..) {
            let _ = waker.wake();
            let _ = thread.join();
        }
    }
}
