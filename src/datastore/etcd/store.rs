//! An etcd cluster as a datastore.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::config::{ConfigError, EtcdConfig};
use super::endpoints::Endpoints;
use super::shared::Shared;
use super::{list, watch};
use crate::datastore::filter;
use crate::datastore::inlet::{Datastore, Error, ListPage, WatchBatch};
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::model::object::Kind;

/// An etcd cluster as a datastore. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct EtcdStore {
    pub(super) shared: Arc<Shared>,
}

impl EtcdStore {
    /// Prepares the connections. Nothing is sent yet: an etcd that is away shows as [`Error::Retry`] of lists and watches.
    ///
    /// # Errors
    /// The fault of the configuration, TLS files included.
    pub fn connect(config: EtcdConfig) -> Result<Self, ConfigError> {
        let (page_limit, catalog) = (config.page_limit.max(1), Arc::clone(&config.catalog));
        let endpoints = Endpoints::new(config)?;
        Ok(Self { shared: Arc::new(Shared { endpoints, catalog, page_limit, listed_from: Mutex::default() }) })
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore").field("endpoints", &self.shared.endpoints).finish_non_exhaustive()
    }
}

impl Datastore for EtcdStore {
    fn list(&self, selection: &Selection) -> BoxStream<'static, Result<ListPage, Error>> {
        match self.shared.layout(selection) {
            Some(layout) => {
                let (pages, selection) = (list::pages(Arc::clone(&self.shared), layout), selection.clone());
                pages.map(move |page| Ok(filter::page(&selection, page?))).boxed()
            }
            None => absent(selection.kind()),
        }
    }

    fn watch(&self, selection: &Selection, from: &Revision) -> BoxStream<'static, Result<WatchBatch, Error>> {
        match self.shared.layout(selection) {
            Some(layout) => {
                let batches = watch::batches(Arc::clone(&self.shared), layout, from.clone());
                let selection = selection.clone();
                batches.map(move |batch| Ok(filter::batch(&selection, batch?))).boxed()
            }
            None => absent(selection.kind()),
        }
    }
}

fn absent<T: Send + 'static>(kind: &Kind) -> BoxStream<'static, Result<T, Error>> {
    let error = Error::KindAbsent { kind: kind.to_string(), gone: false };
    stream::once(async move { Err(error) }).boxed()
}
