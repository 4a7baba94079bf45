//! A folder, an etcd and an API server at once under churn, each taken away and brought back.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bulrush::model::{Key, SyncerName, Update};
use bulrush::syncclient::{Client, SyncEvent, apply};
use etcd_client::Client as EtcdClient;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

/// The datastores, in the order of precedence.
const SOURCES: [&str; 3] = ["git", "kv", "cluster"];
/// Objects that come, change and go, in each datastore.
const NAMES: usize = 8;
/// Writes of one round.
const WRITES: usize = 30;

/// The number in each object, by datastore and name.
type Numbers = [BTreeMap<String, u64>; 3];

/// The content of an agent: of each name the object of the first datastore that has one.
fn expected(numbers: &Numbers) -> BTreeMap<Key, (String, u64)> {
    let mut all = BTreeMap::new();
    for (source, objects) in SOURCES.iter().zip(numbers).rev() {
        for (name, number) in objects {
            all.insert(Key::from(format!("/bulrush/v1/core/ConfigMap/home/{name}")), ((*source).to_owned(), *number));
        }
    }
    all
}

fn settings(source: usize, name: &str, number: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "home"},
        "data": {"from": SOURCES[source], "number": number.to_string()},
    })
}

/// The three datastores, and whether they are there.
struct World {
    folder: TempDir,
    etcd: Etcd,
    api: ApiServer,
    away: [bool; 3],
    actual: Numbers,
    /// As each datastore was when it was last there.
    seen: Numbers,
}

impl World {
    fn path(&self) -> PathBuf {
        self.folder.path().join(if self.away[0] { "gone" } else { "git" })
    }

    /// Writes an object, or removes it, unless the datastore cannot be written to now.
    async fn write(&mut self, source: usize, name: &str, number: Option<u64>) -> anyhow::Result<()> {
        let object = settings(source, name, number.unwrap_or_default());
        let removed = number.is_none() && self.actual[source].contains_key(name);
        match source {
            0 => {
                let file = self.path().join(format!("{name}.json"));
                if number.is_some() {
                    let fresh = self.path().join(".fresh");
                    fs::write(&fresh, object.to_string())?;
                    fs::rename(fresh, file)?;
                } else if removed {
                    fs::remove_file(file)?;
                }
            }
            1 if self.away[1] => return Ok(()),
            1 => {
                let mut client = EtcdClient::connect([self.etcd.url()], None).await?;
                let key = format!("/mesh/{name}");
                match number {
                    Some(_) => drop(client.put(key, object.to_string(), None).await?),
                    None => drop(client.delete(key, None).await?),
                }
            }
            // As by another API server, so this one may be away.
            _ if number.is_some() => drop(self.api.seed("configmaps", [object]).await?),
            _ if removed => self.api.erase("configmaps", [object]).await?,
            _ => {}
        }
        match number {
            Some(number) => drop(self.actual[source].insert(name.to_owned(), number)),
            None => drop(self.actual[source].remove(name)),
        }
        Ok(())
    }

    fn take_away(&mut self, source: usize) -> anyhow::Result<()> {
        match source {
            0 => fs::rename(self.folder.path().join("git"), self.folder.path().join("gone"))?,
            1 => self.etcd.kill(),
            _ => self.api.kill(),
        }
        self.seen[source] = self.actual[source].clone();
        self.away[source] = true;
        Ok(())
    }

    async fn bring_back(&mut self, source: usize) -> anyhow::Result<()> {
        match source {
            0 => fs::rename(self.folder.path().join("gone"), self.folder.path().join("git"))?,
            1 => self.etcd.run().await,
            _ => self.api.run().await,
        }
        self.away[source] = false;
        Ok(())
    }

    fn expected(&self) -> BTreeMap<Key, (String, u64)> {
        let of = |source: usize| if self.away[source] { &self.seen } else { &self.actual }[source].clone();
        expected(&[of(0), of(1), of(2)])
    }
}

/// The content of an agent, and all keys that it was told to forget.
#[derive(Debug, Default)]
struct Memory {
    content: BTreeMap<Key, Update>,
    forgotten: Vec<Key>,
}

impl Memory {
    /// The datastore and the number in each object.
    fn numbers(&self) -> BTreeMap<Key, (String, u64)> {
        let number = |update: &Update| {
            let object: Value = serde_json::from_slice(&update.value.as_ref()?.bytes).ok()?;
            let text = |field: &str| object["data"][field].as_str().map(str::to_owned);
            Some((text("from")?, text("number")?.parse().ok()?))
        };
        let known = |(key, update): (&Key, &Update)| (key.clone(), number(update).unwrap_or_default());
        self.content.iter().map(known).collect()
    }
}

fn follow(mut client: Client, memory: Arc<Mutex<Memory>>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        while let Some(event) = client.next().await {
            let SyncEvent::Updates(updates) = event else { continue };
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            let gone = updates.iter().filter(|update| update.value.is_none());
            memory.forgotten.extend(gone.map(|update| update.key.clone()));
            apply(&mut memory.content, updates);
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn datastores_that_come_and_go_under_churn_end_in_the_same_state() -> anyhow::Result<()> {
    let (Some(etcd), Some(api)) = (Etcd::start().await, ApiServer::start().await) else { return Ok(()) };
    api.rest().create("/api/v1/namespaces", &json!({"metadata": {"name": "home"}})).await?;
    let folder = TempDir::new()?;
    fs::create_dir(folder.path().join("git"))?;
    let mut world = World { folder, etcd, api, away: [false; 3], actual: Numbers::default(), seen: Numbers::default() };
    // These never change: one of each datastore, and one of all.
    for (source, own) in SOURCES.into_iter().enumerate() {
        world.write(source, own, Some(1)).await?;
        world.write(source, "all", Some(2)).await?;
    }
    let stable: Vec<Key> = expected(&world.actual).into_keys().collect();
    let mesh = Mesh::new()?;
    let (git, kubeconfig) = (world.path(), world.api.kubeconfig("admin"));
    let daemon = mesh.daemon_of(&format!(
        "[global]\nCalicoSyncers = none\n[datastore \"git\"]\nType = file\nPath = {}\nQuietSecs = 0.05\n\
         [datastore \"kv\"]\nType = etcdv3\nEndpoints = {}\nPrefix = /mesh/\n\
         [datastore \"cluster\"]\nType = kubernetes\nKubeconfig = {}\n\
         [syncer \"mesh\"]\nSources = git, kv, cluster\nKinds = v1/ConfigMap\nNamespaces = home\nQuietSecs = 0.02\nMaxDelaySecs = 0.1\n",
        text_of(&git),
        world.etcd.url(),
        text_of(&kubeconfig),
    ))?;
    daemon.wait_ready()?;
    let memory = Arc::new(Mutex::new(Memory::default()));
    let client = Client::builder([daemon.sync.to_string()]).agent("test").syncer(SyncerName::new("mesh")).start()?;
    let follower = follow(client, memory.clone());
    let settled = |world: &World, when: &str| {
        let wanted = world.expected();
        let held = || memory.lock().unwrap_or_else(PoisonError::into_inner).numbers();
        eventually(when, || (held() == wanted).then_some(()))
            .with_context(|| format!("wanted {wanted:#?}\nheld {:#?}\nlog:\n{}", held(), daemon.log()))
    };
    settled(&world, "the agent has the content of all three")?;

    let mut random = SmallRng::seed_from_u64(0x18);
    for (round, away) in [vec![], vec![1], vec![2], vec![0], vec![0, 1, 2], vec![]].into_iter().enumerate() {
        for &source in &away {
            world.take_away(source)?;
        }
        for write in 0..WRITES {
            let (source, name) = (random.random_range(0..3), format!("c-{}", random.random_range(0..NAMES)));
            let number = random.random_bool(0.6).then_some((round * WRITES + write) as u64);
            world.write(source, &name, number).await?;
        }
        settled(&world, &format!("round {round}: the others flow, and nothing of those that are away is lost"))?;
        for &source in &away {
            world.bring_back(source).await?;
        }
        settled(&world, &format!("round {round}: all are back"))?;
    }

    let forgotten = std::mem::take(&mut memory.lock().unwrap_or_else(PoisonError::into_inner).forgotten);
    let lost: Vec<_> = forgotten.iter().filter(|key| stable.contains(key)).collect();
    ensure!(lost.is_empty() && !forgotten.is_empty(), "the agent was told to forget {lost:?}");
    let several = world.actual.iter().flat_map(BTreeMap::keys).fold(BTreeMap::new(), |mut counts, name| {
        *counts.entry(name).or_insert(0) += 1;
        counts
    });
    let conflicts = several.values().filter(|&&count| count > 1).count();
    wait_for_status(&daemon, "the conflicts are those of the end", |status| status["conflict_count"] == conflicts)?;
    follower.abort();
    Ok(())
}
