//! An agent's reaction to messages in any protocol: keeps the state, checks the invariants, writes the ledger.

use std::collections::BTreeMap;
use std::time::Duration;

use bulrush::calico::release::Release;
use bulrush::model::SyncerName;
use bulrush::model::{SyncStatus, Update};

use super::invariants::{
    Deletion, deletion, invariant_delete_is_real, invariant_in_sync_is_honest, invariant_no_step_back,
    invariant_state_is_the_map_at, invariant_update_type_fits,
};
use super::ledger::{Agent, Ledger, Name, State, What};
use super::lines::Dial;
use super::script;

/// Size from which a value fills more than one piece of a snapshot.
const LARGE: usize = 128 << 10;

/// An agent's model.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    name: Name,
    ledger: Ledger,
    /// Whether update types have to fit the agent's state, which only the library promises.
    strict_types: bool,
}

impl Follower {
    pub(super) fn new(
        ledger: &Ledger,
        name: Name,
        syncer: SyncerName,
        prefixes: &[String],
        line: Release,
        strict_types: bool,
    ) -> Self {
        let agent = Agent {
            syncer,
            prefixes: prefixes.to_vec(),
            line,
            state: State::new(),
            status: SyncStatus::WaitForDatastore,
            seen: BTreeMap::new(),
            server: "",
            since: Duration::ZERO,
        };
        ledger.book().agents.insert(name, agent);
        Self { name, ledger: ledger.clone(), strict_types }
    }

    /// A server accepted the agent. With `afresh` the agent forgets its state.
    pub(super) fn on_connected(&self, dial: Dial, afresh: bool) {
        let mut book = self.ledger.book();
        book.counts.connections += 1;
        book.log(self.name, What::Words(format!("connected to {}", dial.server).into()));
        let Some(agent) = book.agents.get_mut(self.name) else { return };
        agent.seen.clear();
        agent.since = dial.at;
        let before = std::mem::replace(&mut agent.server, dial.server);
        if afresh {
            agent.state.clear();
        }
        book.counts.moves += u64::from(!before.is_empty() && before != dial.server);
    }

    pub(super) fn on_lost(&self, why: &str) {
        let mut book = self.ledger.book();
        book.log(self.name, What::Words(format!("lost its connection: {why}").into()));
        if let Some(agent) = book.agents.get_mut(self.name) {
            agent.status = SyncStatus::WaitForDatastore;
        }
    }

    /// The server said goodbye.
    pub(super) fn on_goodbye(&self) {
        self.ledger.book().counts.goodbyes += 1;
    }

    /// The agent is gone; an agent that comes back under its name starts with nothing.
    pub(super) fn on_left(&self) {
        let mut book = self.ledger.book();
        book.counts.leaves += 1;
        book.log(self.name, What::Words("leaves".into()));
        if let Some(agent) = book.agents.get_mut(self.name) {
            agent.status = SyncStatus::WaitForDatastore;
            agent.state.clear();
            agent.seen.clear();
        }
    }

    pub(super) fn on_updates(&self, updates: &[Update]) {
        let mut book = self.ledger.book();
        let Some(mut agent) = book.agents.remove(self.name) else { return };
        let mut given = Vec::with_capacity(updates.len());
        for update in updates {
            if self.strict_types {
                book.judge(self.name, invariant_update_type_fits(&agent, update));
            }
            let key = &update.key;
            if let Some(value) = &update.value {
                let version = script::version(&value.bytes);
                let verdict = invariant_no_step_back(&book, &agent, key, version);
                book.judge(self.name, verdict);
                if let Some(version) = version {
                    agent.seen.insert(key.clone(), version);
                }
                book.counts.large += u64::from(value.bytes.len() > LARGE);
                given.push((key.clone(), Some(version)));
                agent.state.insert(key.clone(), value.bytes.clone());
            } else {
                let how = deletion(&book, &agent, key);
                book.judge(self.name, invariant_delete_is_real(how, key));
                book.counts.deletions += 1;
                book.counts.step_backs += u64::from(how == Deletion::StepBack);
                agent.state.remove(key);
                given.push((key.clone(), None));
            }
        }
        book.log(self.name, What::IsGiven(given));
        book.agents.insert(self.name, agent);
    }

    pub(super) fn on_status(&self, status: SyncStatus) {
        let mut book = self.ledger.book();
        book.log(self.name, What::IsTold(status));
        if let Some(agent) = book.agents.get_mut(self.name) {
            agent.status = status;
        }
        if status == SyncStatus::InSync {
            book.counts.in_syncs += 1;
            let verdict = book.agents.get(self.name).map_or(Ok(()), |agent| invariant_in_sync_is_honest(&book, agent));
            book.judge(self.name, verdict);
        }
    }

    /// The agent has everything up to a crumb.
    pub(super) fn on_position(&self, sequence: u64) {
        let mut book = self.ledger.book();
        let verdict =
            book.agents.get(self.name).map_or(Ok(()), |agent| invariant_state_is_the_map_at(&book, agent, sequence));
        book.judge(self.name, verdict);
    }

    pub(super) fn judge(&self, verdict: Result<(), String>) {
        self.ledger.book().judge(self.name, verdict);
    }
}
