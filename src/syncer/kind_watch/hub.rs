//! Owns the watches of all selections: one each, however many syncers use it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::driver::{KindWatch, Shared};
use super::event::Subscriber;
use super::policy::{KindPolicy, Plain};
use super::status::KindStatus;
use crate::datastore::{Datastore, Selection};

/// Late subscribers that may wait for the hub or for one kind: a handful, at a reload of the configuration.
const JOINING: usize = 16;

/// The watches of all selections. Subscribe everyone, then [`Self::run`].
#[derive(Debug)]
pub struct KindHub {
    shared: Shared,
    watched: HashMap<Selection, Vec<Subscriber>>,
    joining: mpsc::Receiver<(Selection, Subscriber)>,
    joiner: mpsc::Sender<(Selection, Subscriber)>,
    statuses: watch::Sender<Vec<watch::Receiver<KindStatus>>>,
}

/// Subscribes while the hub runs. A selection that is watched already is listed again, for all its subscribers.
#[derive(Clone, Debug)]
pub struct Joiner(mpsc::Sender<(Selection, Subscriber)>);

impl Joiner {
    /// Subscribes. False: the hub has stopped.
    ///
    /// # Cancel safety
    /// A cancelled call has not subscribed.
    pub async fn subscribe(&self, selection: impl Into<Selection>, subscriber: Subscriber) -> bool {
        self.0.send((selection.into(), subscriber)).await.is_ok()
    }
}

impl KindHub {
    /// A hub without subscribers. `seed` decides the jitter of pauses.
    #[must_use]
    pub fn new(datastore: Arc<dyn Datastore>, seed: u64) -> Self {
        let (joiner, joining) = mpsc::channel(JOINING);
        let (statuses, _) = watch::channel(Vec::new());
        Self {
            shared: Shared { datastore, policy: Arc::new(Plain), seed, permitted: watch::Sender::new(None) },
            watched: HashMap::new(),
            joining,
            joiner,
            statuses,
        }
    }

    /// Treats kinds that are absent or not permitted by this policy. Unless told otherwise: by that of [`Plain`].
    #[must_use]
    pub fn with_policy(mut self, policy: impl KindPolicy) -> Self {
        self.shared.policy = Arc::new(policy);
        self
    }

    /// Subscribes before the start.
    pub fn subscribe(&mut self, selection: impl Into<Selection>, subscriber: Subscriber) {
        self.watched.entry(selection.into()).or_default().push(subscriber);
    }

    /// A handle to subscribe later.
    #[must_use]
    pub fn joiner(&self) -> Joiner {
        Joiner(self.joiner.clone())
    }

    /// The statuses of all kinds that are watched; the list grows when a kind joins.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<Vec<watch::Receiver<KindStatus>>> {
        self.statuses.subscribe()
    }

    /// Watches all kinds until cancelled.
    ///
    /// # Panics
    /// Passes on a panic of a kind's watch: the composition root decides what happens then.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut watched = HashMap::new();
        info!(kinds = self.watched.len(), "watching");
        for (selection, subscribers) in std::mem::take(&mut self.watched) {
            self.start(selection, subscribers, &mut tasks, &mut watched);
        }
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                Some((selection, subscriber)) = self.joining.recv() => match watched.get(&selection) {
                    Some(joiner) => {
                        // The watch itself cannot have ended: this map holds its joining end.
                        let _ = cancel.run_until_cancelled(joiner.send(subscriber)).await;
                    }
                    None => self.start(selection, vec![subscriber], &mut tasks, &mut watched),
                },
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
            }
        }
        tasks.shutdown().await;
        debug!("watches stopped");
    }

    fn start(
        &self,
        selection: Selection,
        subscribers: Vec<Subscriber>,
        tasks: &mut JoinSet<()>,
        watched: &mut HashMap<Selection, mpsc::Sender<Subscriber>>,
    ) {
        let (joiner, joining) = mpsc::channel(JOINING);
        let (watch, status) = KindWatch::new(selection.clone(), self.shared.clone(), subscribers, joining);
        self.statuses.send_modify(|statuses| statuses.push(status));
        watched.insert(selection, joiner);
        tasks.spawn(watch.run());
    }
}
