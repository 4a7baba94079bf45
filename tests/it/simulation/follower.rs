//! What an agent does with what it is told, whatever told it: keeps the state, checks the invariants, writes the ledger.

use std::fmt::Write as _;
use std::time::Duration;

use bulrush::model::{SyncStatus, Update};
use bulrush::syncer::SyncerType;

use super::invariants::{
    invariant_delete_is_real, invariant_in_sync_is_honest, invariant_no_step_back, invariant_state_is_the_map_at,
    invariant_update_type_fits,
};
use super::ledger::{Agent, Ledger};
use super::script;

/// An agent's model.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    name: String,
    ledger: Ledger,
    /// Whether update types are promised to fit what the agent holds, which only the library can.
    strict_types: bool,
}

impl Follower {
    pub(super) fn new(
        ledger: &Ledger,
        name: &str,
        syncer: SyncerType,
        prefixes: &[String],
        strict_types: bool,
    ) -> Self {
        let agent = Agent {
            syncer,
            prefixes: prefixes.to_vec(),
            state: super::ledger::State::new(),
            status: SyncStatus::WaitForDatastore,
            seen: std::collections::BTreeMap::new(),
            since: Duration::ZERO,
        };
        ledger.book().agents.insert(name.to_owned(), agent);
        Self { name: name.to_owned(), ledger: ledger.clone(), strict_types }
    }

    pub(super) fn log(&self, what: &str) {
        self.ledger.log(&self.name, what);
    }

    /// A server took the agent, which asked at `since`. With `afresh` it forgets what it held.
    pub(super) fn on_connected(&self, since: Duration, afresh: bool) {
        let mut book = self.ledger.book();
        book.connections += 1;
        book.log(&self.name, "connected");
        if let Some(agent) = book.agents.get_mut(&self.name) {
            agent.seen.clear();
            agent.since = since;
            if afresh {
                agent.state.clear();
            }
        }
    }

    pub(super) fn on_lost(&self, why: &str) {
        let mut book = self.ledger.book();
        book.log(&self.name, &format!("lost its connection: {why}"));
        if let Some(agent) = book.agents.get_mut(&self.name) {
            agent.status = SyncStatus::WaitForDatastore;
        }
    }

    pub(super) fn on_updates(&self, updates: &[Update]) {
        let mut book = self.ledger.book();
        let Some(mut agent) = book.agents.remove(&self.name) else { return };
        // Writing to a string does not fail.
        let mut words = String::new();
        for update in updates {
            if self.strict_types {
                book.judge(&self.name, invariant_update_type_fits(&agent, update));
            }
            if let Some(value) = &update.value {
                let verdict = invariant_no_step_back(&book, &agent, update);
                book.judge(&self.name, verdict);
                if let Some(version) = script::version(&value.bytes) {
                    agent.seen.insert(update.key.clone(), version);
                    let _ = write!(words, " {}=v{version}", update.key);
                } else {
                    let _ = write!(words, " {}", update.key);
                }
                agent.state.insert(update.key.clone(), value.bytes.clone());
            } else {
                let verdict = invariant_delete_is_real(&book, &agent, &update.key);
                book.judge(&self.name, verdict);
                agent.state.remove(&update.key);
                book.deletions += 1;
                let _ = write!(words, " -{}", update.key);
            }
        }
        book.log(&self.name, &format!("is given{words}"));
        book.agents.insert(self.name.clone(), agent);
    }

    pub(super) fn on_status(&self, status: SyncStatus) {
        let mut book = self.ledger.book();
        book.log(&self.name, &format!("is told {status}"));
        if let Some(agent) = book.agents.get_mut(&self.name) {
            agent.status = status;
        }
        if status == SyncStatus::InSync {
            book.in_syncs += 1;
            let verdict = book.agents.get(&self.name).map_or(Ok(()), |agent| invariant_in_sync_is_honest(&book, agent));
            book.judge(&self.name, verdict);
        }
    }

    /// The agent has everything up to a crumb.
    pub(super) fn on_position(&self, sequence: u64) {
        let mut book = self.ledger.book();
        let verdict =
            book.agents.get(&self.name).map_or(Ok(()), |agent| invariant_state_is_the_map_at(&book, agent, sequence));
        book.judge(&self.name, verdict);
    }

    pub(super) fn judge(&self, verdict: Result<(), String>) {
        self.ledger.book().judge(&self.name, verdict);
    }
}
