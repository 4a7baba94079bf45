//! The status document, read from the structures that metrics read too.

use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::datastore::file::FileStatus;
use crate::pipeline::PipelineView;
use crate::problems;
use crate::status::{Client, Datastore, FileError, MAX_PROBLEMS, Problem, Snapshot, StatusSource, Syncer};
use crate::syncer::kind_watch::{KindStatus, Phase};
use crate::syncserver::{ClientStatus, Handle};

/// Where the parts of the document come from.
#[derive(Debug)]
pub(super) struct Sources {
    /// When the process started.
    pub(super) started: Instant,
    /// Where agents connect to.
    pub(super) listening: String,
    /// The datastore's type and place.
    pub(super) datastore_type: String,
    /// Endpoints or a path.
    pub(super) location: String,
    /// All kinds that are watched.
    pub(super) kinds: watch::Receiver<Vec<watch::Receiver<KindStatus>>>,
    /// Only for a folder.
    pub(super) files: Option<watch::Receiver<FileStatus>>,
    /// The pipelines in Typha's order.
    pub(super) pipelines: Vec<PipelineView>,
    /// The server.
    pub(super) server: Handle,
    /// `running` or `draining`.
    pub(super) phase: watch::Receiver<&'static str>,
}

impl StatusSource for Sources {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            version: super::VERSION.to_owned(),
            uptime_secs: self.started.elapsed().as_secs_f64(),
            phase: (*self.phase.borrow()).to_owned(),
            listening: self.listening.clone(),
            datastore: self.datastore(),
            syncers: self.pipelines.iter().map(syncer).collect(),
            clients: self.server.clients().into_iter().map(client).collect(),
        }
    }
}

impl Sources {
    fn datastore(&self) -> Datastore {
        let kinds: Vec<KindStatus> = self.kinds.borrow().iter().map(|kind| kind.borrow().clone()).collect();
        let in_trouble = |phase: Phase| matches!(phase, Phase::Retrying | Phase::Lost);
        let troubled: Vec<&KindStatus> = kinds.iter().filter(|kind| in_trouble(kind.phase)).collect();
        let state = match troubled.len() {
            0 if kinds.iter().any(|kind| kind.phase == Phase::Listing) => "listing".to_owned(),
            0 => "connected".to_owned(),
            n if n == kinds.len() => "away".to_owned(),
            n => format!("trouble with {n} of {} kinds", kinds.len()),
        };
        let last_error = troubled.first().and_then(|kind| kind.error.clone()).unwrap_or_default();
        let mut datastore = Datastore {
            datastore_type: self.datastore_type.clone(),
            location: self.location.clone(),
            state,
            last_error,
            ..Datastore::default()
        };
        if let Some(files) = &self.files {
            let files = files.borrow();
            let error = |error: &crate::datastore::file::FileError| FileError {
                file: error.file.clone(),
                line: error.line,
                reason: error.reason.clone(),
            };
            datastore.file_errors = files.errors.iter().map(error).collect();
            datastore.held = files.held.clone().unwrap_or_default();
        }
        datastore
    }
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
    }
}

fn problem(problem: problems::Problem) -> Problem {
    let problems::Problem { subject, reason } = problem;
    Problem { found_by: subject.found_by.to_owned(), name: subject.name, reason }
}

fn client(client: ClientStatus) -> Client {
    Client {
        id: client.id,
        peer: client.peer.to_string(),
        agent: client.agent.name,
        syncer: client.syncer.map(|syncer| syncer.to_string()).unwrap_or_default(),
        format: client.wire.map(|wire| wire.name().to_owned()).unwrap_or_default(),
        state: client.state.as_str().to_owned(),
        sequence: client.sequence,
        lag_secs: client.lag.as_secs_f64(),
        lag_updates: client.lag_updates,
        bytes_sent: client.bytes_sent,
        connected_secs: client.connected_for.as_secs_f64(),
    }
}
