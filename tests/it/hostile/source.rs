//! An etcd with network sets that keep changing, and the content that agents must get.

use std::time::Duration;

use bulrush::model::Key;
use etcd_client::{Client, Txn, TxnOp};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::readers::Values;
use crate::real_etcd::Etcd;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/globalnetworksets";
/// Number of sets.
const SETS: usize = 150;
/// Number of networks of a set, which make a value of about 1 KB that hardly compresses.
const NETS: usize = 60;
/// Changes at once, and the pause until the next: 200 changes a second, which are more bytes than a slow reader takes.
const CHANGES: usize = 10;
const PAUSE: Duration = Duration::from_millis(50);
/// Ticks with changes between two calls of `done`.
const TICKS_PER_LOOK: usize = 4;
/// Every seventh change deletes its set, until the next change of that set.
const DELETED: usize = 7;

/// The etcd and its sets.
pub(super) struct Source {
    etcd: Client,
    server: Etcd,
    /// The version of each set; `None`: deleted.
    versions: Vec<Option<usize>>,
    changes: usize,
}

impl Source {
    /// Starts an etcd and fills it. `None`: etcd is left out.
    pub(super) async fn new() -> anyhow::Result<Option<Self>> {
        let Some(server) = Etcd::start().await else { return Ok(None) };
        let mut source = Self { etcd: server.client().await, server, versions: vec![None; SETS], changes: 0 };
        for _ in 0..SETS / CHANGES {
            source.change().await?;
        }
        Ok(Some(source))
    }

    /// Address of etcd.
    pub(super) fn url(&self) -> String {
        self.server.url()
    }

    /// Most keys that agents hold.
    pub(super) fn keys(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Changes sets at the rate above until `done`, called after every few changes, returns true.
    pub(super) async fn churn_until(&mut self, mut done: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let mut ticks = interval(PAUSE);
        // Missed ticks are made up for: the rate has to stay above that of slow readers.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            for _ in 0..TICKS_PER_LOOK {
                ticks.tick().await;
                self.change().await?;
            }
            if done()? {
                return Ok(());
            }
        }
    }

    /// Changes the next few sets.
    async fn change(&mut self) -> anyhow::Result<()> {
        let mut operations = Vec::new();
        for _ in 0..CHANGES {
            let (index, version) = (self.changes % SETS, self.changes);
            self.changes += 1;
            let deleted = version >= SETS && version.is_multiple_of(DELETED);
            self.versions[index] = (!deleted).then_some(version);
            let key = format!("{PREFIX}/set-{index}");
            operations.push(match self.versions[index] {
                None => TxnOp::delete(key, None),
                Some(version) => TxnOp::put(key, set(index, version).to_string(), None),
            });
        }
        self.etcd.txn(Txn::new().and_then(operations)).await?;
        Ok(())
    }

    /// Whether these values are exactly the newest versions of all sets.
    pub(super) fn is_held(&self, values: &Values) -> bool {
        let sets = values.keys().filter(|key| key.starts_with("/calico/v1/netset/")).count();
        let present = self.versions.iter().flatten().count();
        let newest = |(index, version): (usize, &Option<usize>)| {
            let held = values.get(&Key::from(format!("/calico/v1/netset/set-{index}").as_str()));
            let held = held.map(|value| serde_json::from_slice::<Value>(value).unwrap_or_default());
            match (version, held) {
                (None, held) => held.is_none(),
                (Some(version), held) => held.is_some_and(|held| held["nets"] == set(index, *version)["spec"]["nets"]),
            }
        };
        sets == present && self.versions.iter().enumerate().all(newest)
    }
}

/// A version of a network set.
fn set(index: usize, version: usize) -> Value {
    let mut random = SmallRng::seed_from_u64(version as u64);
    let nets: Vec<String> = (0..NETS)
        .map(|_| {
            let [a, b, c, d] = random.random::<u32>().to_be_bytes();
            format!("{a}.{b}.{c}.{d}/32")
        })
        .collect();
    json!({
        "kind": "GlobalNetworkSet", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": format!("set-{index}"), "labels": {"version": format!("v{version}")}},
        "spec": {"nets": nets},
    })
}
