//! Owns the watches of all kinds: one each, however many syncers use it.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::driver::KindWatch;
use super::{KindStatus, Shared, Subscriber};
use crate::datastore::{Datastore, Kind};
use crate::model::release::Release;

/// Late subscribers that may wait for the hub or for one kind: a handful, at a reload of the configuration.
const JOINING: usize = 16;

/// The watches of all kinds. Subscribe everyone, then [`Self::run`].
#[derive(Debug)]
pub struct KindHub {
    shared: Shared,
    kinds: HashMap<Kind, Vec<Subscriber>>,
    joining: mpsc::Receiver<(Kind, Subscriber)>,
    joiner: mpsc::Sender<(Kind, Subscriber)>,
    statuses: watch::Sender<Vec<watch::Receiver<KindStatus>>>,
}

/// Subscribes to kinds while the hub runs. A kind that is watched already is listed again, for all its subscribers.
#[derive(Clone, Debug)]
pub struct Joiner(mpsc::Sender<(Kind, Subscriber)>);

impl Joiner {
    /// Subscribes. False: the hub has stopped.
    ///
    /// # Cancel safety
    /// A cancelled call has not subscribed.
    pub async fn subscribe(&self, kind: Kind, subscriber: Subscriber) -> bool {
        self.0.send((kind, subscriber)).await.is_ok()
    }
}

impl KindHub {
    /// A hub without subscribers. `seed` decides the jitter of pauses.
    #[must_use]
    pub fn new(datastore: Arc<dyn Datastore>, seed: u64) -> Self {
        let (joiner, joining) = mpsc::channel(JOINING);
        let (statuses, _) = watch::channel(Vec::new());
        Self { shared: Shared { datastore, seed, cluster: None }, kinds: HashMap::new(), joining, joiner, statuses }
    }

    /// Counts kinds as absent that are not permitted and that the cluster's own Calico does not read either.
    #[must_use]
    pub fn in_cluster_of(mut self, release: watch::Receiver<Option<Release>>) -> Self {
        self.shared.cluster = Some(release);
        self
    }

    /// Subscribes before the start.
    pub fn subscribe(&mut self, kind: Kind, subscriber: Subscriber) {
        self.kinds.entry(kind).or_default().push(subscriber);
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
    /// Passes on a panic of a kind's watch: the composition root decides what then.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut watched = HashMap::new();
        info!(kinds = self.kinds.len(), "watching");
        for (kind, subscribers) in std::mem::take(&mut self.kinds) {
            self.start(kind, subscribers, &mut tasks, &mut watched);
        }
        loop {
            tokio::select! {
                () = cancel.cancelled() => break,
                Some((kind, subscriber)) = self.joining.recv() => match watched.get(&kind) {
                    Some(joiner) => {
                        // The watch itself cannot have ended: this map holds its joining end.
                        let _ = cancel.run_until_cancelled(joiner.send(subscriber)).await;
                    }
                    None => self.start(kind, vec![subscriber], &mut tasks, &mut watched),
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
        kind: Kind,
        subscribers: Vec<Subscriber>,
        tasks: &mut JoinSet<()>,
        watched: &mut HashMap<Kind, mpsc::Sender<Subscriber>>,
    ) {
        let (joiner, joining) = mpsc::channel(JOINING);
        let (watch, status) = KindWatch::new(kind.clone(), self.shared.clone(), subscribers, joining);
        self.statuses.send_modify(|statuses| statuses.push(status));
        watched.insert(kind, joiner);
        tasks.spawn(watch.run());
    }
}
