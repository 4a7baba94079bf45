//! Makes the status document, from the structures that metrics read too.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;

use super::doors::Doors;
use super::stores::{self, StoreView};
use crate::generic::key;
use crate::model::Origin;
use crate::outlet::status::ClientStatus;
use crate::pipeline::PipelineView;
use crate::problems;
use crate::publish;
use crate::status::{Client, Conflict, Datastore, FileError, Listed, MAX_PROBLEMS, Problem, Snapshot, Source, Syncer};
use crate::syncer::inlet::InletStatus;
use crate::syncer::kind_watch::{KindStatus, Phase};

/// The sources of the document.
#[derive(Debug)]
pub(super) struct Sources {
    /// The start of the process.
    pub(super) started: Instant,
    /// The address for agents.
    pub(super) listening: String,
    /// The datastores, which the document shows as one, and each by itself.
    pub(super) stores: Vec<StoreView>,
    /// The pipelines in Typha's order.
    pub(super) pipelines: Vec<PipelineView>,
    /// The doors for agents.
    pub(super) doors: Doors,
    /// `running` or `draining`.
    pub(super) phase: watch::Receiver<&'static str>,
}

impl Sources {
    /// The document, with these clients.
    pub(super) fn snapshot(&self, listed: Listed) -> Snapshot {
        let clients = self.doors.clients();
        Snapshot {
            version: super::VERSION.to_owned(),
            uptime_secs: self.started.elapsed().as_secs_f64(),
            phase: (*self.phase.borrow()).to_owned(),
            listening: self.listening.clone(),
            datastore: datastore(&self.stores),
            datastores: self.stores.iter().map(alone).collect(),
            syncers: self.pipelines.iter().map(syncer).collect(),
            client_states: states(&clients),
            clients: slowest(clients, listed).into_iter().map(client).collect(),
        }
    }
}

/// Datastores as one: all kinds, all files.
fn datastore(views: &[StoreView]) -> Datastore {
    let kinds = stores::kinds(views);
    let in_trouble = |phase: Phase| matches!(phase, Phase::Retrying | Phase::Lost);
    let troubled: Vec<&KindStatus> = kinds.iter().filter(|kind| in_trouble(kind.phase)).collect();
    let state = match troubled.len() {
        0 if kinds.iter().any(|kind| kind.phase == Phase::Listing) => "listing".to_owned(),
        0 => "connected".to_owned(),
        n if n == kinds.len() => "away".to_owned(),
        n => format!("trouble with {n} of {} kinds", kinds.len()),
    };
    let last_error = troubled.first().and_then(|kind| kind.error.clone()).unwrap_or_default();
    let spared = kinds
        .iter()
        .filter(|kind| kind.phase == Phase::Absent)
        .filter_map(|kind| Some(format!("{}: {}", kind.kind, kind.error.as_ref()?)));
    let mut datastore = Datastore {
        spared: spared.collect(),
        datastore_type: stores::types(views),
        location: stores::locations(views),
        state,
        last_error,
        ..Datastore::default()
    };
    let mut held = Vec::new();
    for files in views.iter().filter_map(|store| store.files.as_ref()) {
        let files = files.borrow();
        let error = |error: &crate::datastore::file::FileError| FileError {
            file: error.file.clone(),
            line: error.line,
            reason: error.reason.clone(),
        };
        datastore.file_errors.extend(files.errors.iter().map(error));
        held.extend(files.held.clone());
    }
    datastore.held = held.join("; ");
    datastore
}

/// One datastore.
fn alone(view: &StoreView) -> Datastore {
    Datastore { name: view.name.clone(), ..datastore(std::slice::from_ref(view)) }
}

fn syncer(view: &PipelineView) -> Syncer {
    let crumb = view.reader.newest();
    let age = |as_of: crate::model::AsOf| SystemTime::now().duration_since(as_of.at).unwrap_or_default().as_secs_f64();
    Syncer {
        name: view.syncer.to_string(),
        status: crumb.status.to_string(),
        keys: crumb.map.len() as u64,
        sequence: crumb.sequence,
        as_of_age_secs: view.reader.as_of().map(age),
        invalid: view.metrics.values_invalid.get(),
        unconvertible: view.metrics.objects_unconvertible.get(),
        problems: view.problems.snapshot(MAX_PROBLEMS).into_iter().map(problem).collect(),
        problem_count: view.problems.len() as u64,
        kinds: crumb.kinds.iter().map(|(kind, sequence)| (kind.to_string(), *sequence)).collect(),
        sources: view.inlets.iter().map(|inlet| source(&inlet.borrow())).collect(),
        conflicts: view.conflicts.snapshot(MAX_PROBLEMS).into_iter().map(|found| conflict(view, found)).collect(),
        conflict_count: view.conflicts.len() as u64,
    }
}

fn source(inlet: &InletStatus) -> Source {
    Source {
        datastore: inlet.datastore.clone(),
        kinds: inlet.kinds as u64,
        unknown: inlet.unknown.iter().map(|(pattern, reason)| format!("{pattern}: {reason}")).collect(),
        error: inlet.error.clone().unwrap_or_default(),
        missed: inlet.spared,
    }
}

fn conflict(view: &PipelineView, found: publish::Conflict) -> Conflict {
    let origin = |origin: &Origin| {
        let name = view.inlets.get(usize::from(origin.rank)).map(|inlet| inlet.borrow().datastore.clone());
        let name = name.unwrap_or_default();
        if origin.place.is_empty() { name } else { format!("{name} ({})", origin.place) }
    };
    Conflict {
        object: key::parts(&found.key).map_or_else(|| found.key.to_string(), |parts| parts.to_string()),
        shown: origin(&found.shown),
        hidden: found.hidden.iter().map(|hidden| origin(hidden)).collect(),
    }
}

fn problem(problem: problems::Problem) -> Problem {
    let problems::Problem { subject, reason } = problem;
    Problem { found_by: subject.found_by.to_string(), name: subject.name, reason }
}

/// The number of clients in each state.
fn states(clients: &[ClientStatus]) -> BTreeMap<String, u64> {
    let mut states = BTreeMap::new();
    for client in clients {
        *states.entry(client.state.as_str().to_owned()).or_default() += 1;
    }
    states
}

/// The clients that are furthest behind, slowest first.
fn slowest(mut clients: Vec<ClientStatus>, listed: Listed) -> Vec<ClientStatus> {
    let slower_first =
        |a: &ClientStatus, b: &ClientStatus| (b.lag, b.lag_updates).cmp(&(a.lag, a.lag_updates)).then(a.id.cmp(&b.id));
    let count = listed.of(clients.len());
    if count < clients.len() {
        // Sorting tens of thousands of clients to show ten would be wasted work.
        clients.select_nth_unstable_by(count, slower_first);
        clients.truncate(count);
    }
    clients.sort_unstable_by(slower_first);
    clients
}

fn client(client: ClientStatus) -> Client {
    Client {
        id: client.id,
        peer: client.peer.to_string(),
        agent: client.agent.name,
        syncer: client.syncer.map(|syncer| syncer.to_string()).unwrap_or_default(),
        format: client.wire.unwrap_or_default().to_owned(),
        dialect: client.dialect.map(ToString::to_string).unwrap_or_default(),
        version: client.agent.version,
        state: client.state.as_str().to_owned(),
        sequence: client.sequence,
        lag_secs: client.lag.as_secs_f64(),
        lag_updates: client.lag_updates,
        applied: client.applied,
        failed_keys: client.failed_keys,
        bytes_sent: client.bytes_sent,
        connected_secs: client.connected_for.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::outlet::status::Agent;
    use crate::outlet::status::ClientState;

    fn client(id: u64, lag_millis: u64, lag_updates: u64) -> ClientStatus {
        ClientStatus {
            id,
            peer: SocketAddr::from(([10, 0, 0, 1], 4000)),
            agent: Agent::default(),
            syncer: None,
            wire: None,
            dialect: None,
            state: if lag_updates > 50 { ClientState::CatchUp } else { ClientState::Following },
            sequence: 1,
            lag: Duration::from_millis(lag_millis),
            lag_updates,
            bytes_sent: 0,
            connected_for: Duration::ZERO,
            applied: None,
            failed_keys: 0,
        }
    }

    fn ids(clients: Vec<ClientStatus>) -> Vec<u64> {
        clients.into_iter().map(|client| client.id).collect()
    }

    #[test]
    fn time_counts_first_then_updates_then_age() {
        let all = || vec![client(1, 5, 0), client(2, 5, 9), client(3, 7, 1), client(4, 0, 99), client(5, 5, 9)];
        assert_eq!(ids(slowest(all(), Listed::All)), [3, 2, 5, 1, 4]);
        assert_eq!(ids(slowest(all(), Listed::Slowest(2))), [3, 2]);
        assert!(slowest(all(), Listed::Slowest(0)).is_empty());
        let states: Vec<(String, u64)> = states(&all()).into_iter().collect();
        assert_eq!(states, [("catch-up".to_owned(), 1), ("following".to_owned(), 4)]);
    }

    #[test]
    fn what_a_client_says_of_itself_is_in_the_document() {
        let told = ClientStatus { applied: Some(7), failed_keys: 2, ..client(1, 1500, 3) };
        let document = serde_json::to_value(super::client(told)).unwrap();
        let expected = serde_json::json!({"applied": 7, "failed_keys": 2, "lag_secs": 1.5, "lag_updates": 3});
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&document[field], value, "{field}");
        }
    }

    proptest! {
        /// A short list is the beginning of the long one.
        #[test]
        fn the_slowest_are_the_first_of_all(lags in proptest::collection::vec((0_u64..20, 0_u64..20), 0..60), most in 0_usize..70) {
            let all = || lags.iter().zip(1..).map(|((millis, updates), id)| client(id, *millis, *updates)).collect();
            let mut first = ids(slowest(all(), Listed::All));
            first.truncate(most);
            prop_assert_eq!(ids(slowest(all(), Listed::Slowest(most))), first);
        }
    }
}
