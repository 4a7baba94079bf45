//! Four agents, one per syncer, that remember their content and all deletions they were sent.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{bail, ensure};
use bulrush::calico::processors::Context;
use bulrush::calico::syncers;
use bulrush::model::SyncerName;
use bulrush::model::{Key, SyncStatus};
use bulrush::syncclient::{Client, Protocol, SyncEvent};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::expected::{Content, expected};
use crate::apiserver::crds::CrdGroup;
use crate::apiserver::rest::Rest;

/// Longest time for any step, on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest lag of agents before the expected content is computed afresh.
const LAG: Duration = Duration::from_secs(15);
/// Most differences that a failure shows.
const SHOWN: usize = 12;

/// State of an agent.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) content: Content,
    /// Deleted keys, in order.
    pub(super) forgotten: Vec<Key>,
    /// Statuses that it received, in order.
    pub(super) statuses: Vec<SyncStatus>,
    /// Connections that it lost.
    lost: Vec<String>,
}

/// One agent.
#[derive(Debug)]
struct Agent {
    memory: Arc<Mutex<Memory>>,
    changed: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Agent {
    fn start(server: SocketAddr, syncer: SyncerName) -> anyhow::Result<Self> {
        // In Calico's protocol, as Calico's own agents.
        let client = Client::builder([server.to_string()])
            .agent("test")
            .syncer(syncer)
            .protocol(Protocol::Calico { compression: true })
            .start()?;
        let memory = Arc::new(Mutex::new(Memory::default()));
        let (changes, changed) = watch::channel(0);
        let task = tokio::spawn(follow(client, memory.clone(), changes));
        Ok(Self { memory, changed, task })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn follow(mut client: Client, memory: Arc<Mutex<Memory>>, changes: watch::Sender<u64>) {
    while let Some(event) = client.next().await {
        {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                SyncEvent::Updates(updates) => {
                    for update in updates {
                        if let Some(value) = update.value {
                            memory.content.insert(update.key, value.bytes);
                        } else {
                            memory.content.remove(&update.key);
                            memory.forgotten.push(update.key);
                        }
                    }
                }
                SyncEvent::Status(status) => memory.statuses.push(status),
                SyncEvent::Disconnected { reason, .. } => memory.lost.push(reason.to_string()),
                _ => {}
            }
        }
        changes.send_modify(|changes| *changes += 1);
    }
}

/// One agent per syncer.
#[derive(Debug)]
pub(super) struct Agents {
    agents: BTreeMap<SyncerName, Agent>,
}

impl Agents {
    pub(super) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let start = |syncer| Ok((syncer, Agent::start(server, syncer)?));
        Ok(Self { agents: syncers::ALL.into_iter().map(start).collect::<anyhow::Result<_>>()? })
    }

    /// Looks into an agent's memory.
    pub(super) fn look<T>(&self, syncer: SyncerName, look: impl FnOnce(&Memory) -> T) -> T {
        look(&self.agents[&syncer].memory())
    }

    /// Waits until an agent's memory is as `wanted`; `what` names it in the failure.
    pub(super) async fn until(
        &self,
        syncer: SyncerName,
        what: &str,
        mut wanted: impl FnMut(&Memory) -> bool,
    ) -> anyhow::Result<()> {
        self.until_within(syncer, what, PATIENCE, &mut wanted).await
    }

    /// The same within a time that the test demands.
    pub(super) async fn until_within(
        &self,
        syncer: SyncerName,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&Memory) -> bool,
    ) -> anyhow::Result<()> {
        let agent = &self.agents[&syncer];
        let mut changed = agent.changed.clone();
        let reached = async {
            loop {
                changed.borrow_and_update();
                if wanted(&agent.memory()) {
                    return;
                }
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(limit, reached).await {
            Ok(()) => Ok(()),
            Err(_) => bail!("{syncer}: {what}: not within {limit:?}; statuses {:?}", agent.memory().statuses),
        }
    }

    /// Waits until an agent holds a key.
    pub(super) async fn until_held(&self, syncer: SyncerName, key: &str) -> anyhow::Result<()> {
        let wanted = Key::from(key);
        self.until(syncer, &format!("{key} arrives"), |memory| memory.content.contains_key(&wanted)).await
    }

    /// Waits until the present status of every agent is in-sync.
    pub(super) async fn until_in_sync(&self) -> anyhow::Result<()> {
        for syncer in syncers::ALL {
            self.until(syncer, "in sync", |memory| memory.statuses.last() == Some(&SyncStatus::InSync)).await?;
        }
        Ok(())
    }

    /// Waits until all agents hold exactly the API server's content, and returns it.
    pub(super) async fn until_equal(
        &self,
        rest: &Rest,
        group: CrdGroup,
    ) -> anyhow::Result<HashMap<SyncerName, Content>> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let wanted = expected(rest, group, &Context::default()).await?;
            let mut difference = String::new();
            for (&syncer, content) in &wanted {
                let is_equal = |memory: &Memory| memory.content == *content;
                if self.until_within(syncer, "equal", LAG, is_equal).await.is_err() {
                    let held = self.look(syncer, |memory| memory.content.clone());
                    let _ = write!(difference, "\n{syncer}: {}", differences(content, &held));
                }
            }
            if difference.is_empty() {
                return Ok(wanted);
            }
            if tokio::time::Instant::now() > until {
                bail!("agents do not hold the API server's content:{difference}");
            }
        }
    }

    /// Clears the recorded deletions, statuses and lost connections.
    pub(super) fn begin(&self) {
        for agent in self.agents.values() {
            let mut memory = agent.memory();
            memory.forgotten.clear();
            memory.statuses.clear();
        }
    }

    /// Fails unless, since [`Agents::begin`], every agent was sent deletions of exactly the keys that are in `before` and not in `after`,
    /// each once, and never lost its connection. Keys that contain `passing` came and went in between; their deletions
    /// may have been sent or not.
    pub(super) fn deleted_exactly_the_missing_keys(
        &self,
        before: &HashMap<SyncerName, Content>,
        after: &HashMap<SyncerName, Content>,
        passing: Option<&str>,
    ) -> anyhow::Result<()> {
        for (&syncer, agent) in &self.agents {
            let memory = agent.memory();
            let mut left: Vec<Key> =
                before[&syncer].keys().filter(|key| !after[&syncer].contains_key(*key)).cloned().collect();
            let mut spurious = Vec::new();
            for key in &memory.forgotten {
                if let Some(at) = left.iter().position(|gone| gone == key) {
                    left.swap_remove(at);
                } else if !passing.is_some_and(|passing| key.contains(passing)) {
                    spurious.push(key.clone());
                }
            }
            ensure!(spurious.is_empty(), "{syncer} was told to forget {:?}", &spurious[..spurious.len().min(SHOWN)]);
            ensure!(left.is_empty(), "{syncer} was not told to forget {:?}", &left[..left.len().min(SHOWN)]);
            ensure!(memory.lost.is_empty(), "{syncer} lost its connection: {:?}", memory.lost);
        }
        Ok(())
    }

    /// Fails if, since [`Agents::begin`], an agent that is in sync received any status.
    pub(super) fn heard_no_status(&self) -> anyhow::Result<()> {
        for (syncer, agent) in &self.agents {
            let statuses = agent.memory().statuses.clone();
            ensure!(statuses.is_empty(), "{syncer} was told {statuses:?}");
        }
        Ok(())
    }

    /// Fails if, since [`Agents::begin`], an agent received other statuses than those of a new list: a resync in progress,
    /// which Typha sends, too, and then in-sync.
    pub(super) async fn heard_of_resyncs_at_most(&self) -> anyhow::Result<()> {
        for (&syncer, agent) in &self.agents {
            let is_over = |memory: &Memory| memory.statuses.last().is_none_or(|last| *last == SyncStatus::InSync);
            self.until(syncer, "in sync again", is_over).await?;
            let statuses = agent.memory().statuses.clone();
            ensure!(!statuses.contains(&SyncStatus::WaitForDatastore), "{syncer} was told {statuses:?}");
        }
        Ok(())
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in self.agents.values() {
            agent.task.abort();
        }
    }
}

/// The first differences between wanted and held content, for people.
fn differences(wanted: &Content, held: &Content) -> String {
    let mut text = format!("{} keys wanted, {} held", wanted.len(), held.len());
    let keys: std::collections::BTreeSet<&Key> = wanted.keys().chain(held.keys()).collect();
    let different = keys.into_iter().filter(|key| wanted.get(*key) != held.get(*key));
    for key in different.take(SHOWN) {
        let _ = write!(text, "\n  {key}\n    want {:?}\n    held {:?}", wanted.get(key), held.get(key));
    }
    text
}
