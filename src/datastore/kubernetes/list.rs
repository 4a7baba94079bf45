//! Lists: all objects of a kind at one revision.
//!
//! A server that can is asked for a stream (a watch that begins with everything there is): it holds no whole list in memory
//! for us, and the stream goes on as the watch. A server that refuses that is asked for pages, all of the revision of the
//! first one. Both are consistent reads: what they vouch for is as new as the request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::time::sleep_until;
use tracing::{debug, info, warn};

use super::client::end_of_pause;
use super::events::{Read, read};
use super::failure::{Failure, Resource};
use super::lines::MAX_LINE_BYTES;
use super::object::{Page, object};
use super::shared::Shared;
use super::stream::{OpenWatch, Received};
use super::watch;
use crate::datastore::inlet::{Error, Event, ListPage};
use crate::datastore::selection::Selection;
use crate::model::object::{Dialect, Object};
use crate::model::{AsOf, gojson, no_revision, strict};

/// Objects that are handed on together from a stream, and their bytes: enough that handing on costs nothing, little enough
/// that a slow consumer holds little.
const MAX_PAGE_OBJECTS: usize = 500;
const MAX_PAGE_BYTES: usize = 1024 * 1024;
/// How long a stream may be silent before its initial events are complete: as long as the API server tries to bring its
/// own cache up to date (3 s), with room. A server that ignores the wish for initial events is found out by this.
const STREAM_PATIENCE: Duration = Duration::from_secs(20);
/// How often in a row a server may put off one further page before the list begins anew: its revision lives for some minutes.
const MAX_PAGE_REFUSALS: u32 = 8;

/// The pages of a kind. Ends after the last page or the first error.
pub(super) fn pages(shared: Arc<Shared>, selection: Selection) -> impl Stream<Item = Result<ListPage, Error>> {
    stream::unfold(Some(Lister { shared, selection, step: Step::Start }), |lister| async move {
        let mut lister = lister?;
        // Boxed: the client's future is large, and there is one per kind.
        match Box::pin(lister.next()).await {
            Ok(Some(page)) => Some((Ok(page), Some(lister))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}

/// The error for a failure. No method: what a stream has read so far is not shared between threads.
async fn failed(shared: &Shared, selection: &Selection, resource: Option<&Resource>, failure: Failure) -> Error {
    shared.error("list", selection, resource, failure, &no_revision()).await
}

struct Lister {
    shared: Arc<Shared>,
    selection: Selection,
    step: Step,
}

enum Step {
    Start,
    Stream { open: Box<OpenWatch>, started: SystemTime, deferred: Vec<Event> },
    Pages { resource: Resource, dialect: Dialect, started: SystemTime, limit: u32, token: String },
    Over,
}

impl Lister {
    async fn next(&mut self) -> Result<Option<ListPage>, Error> {
        loop {
            match std::mem::replace(&mut self.step, Step::Over) {
                Step::Over => return Ok(None),
                Step::Start => self.step = self.start().await?,
                Step::Stream { open, started, deferred } => return self.streamed(open, started, deferred).await,
                Step::Pages { resource, dialect, started, limit, token } => {
                    let mut refusals = 0;
                    loop {
                        match self.page(&resource, dialect, started, limit, &token).await {
                            Ok(page) => return Ok(Some(page)),
                            // The pages that came are not asked for again because the server is busy.
                            Err(Failure::Retry { after: Some(after), reason })
                                if !token.is_empty() && refusals < MAX_PAGE_REFUSALS =>
                            {
                                refusals += 1;
                                debug!(kind = %self.selection, reason, ?after, "the next page has to wait");
                                sleep_until(end_of_pause(after)).await;
                            }
                            Err(failure) => {
                                return Err(failed(&self.shared, &self.selection, Some(&resource), failure).await);
                            }
                        }
                    }
                }
            }
        }
    }

    async fn start(&mut self) -> Result<Step, Error> {
        let (resource, dialect) = match self.shared.locate(&self.selection).await {
            Ok(located) => located,
            Err(failure) => return Err(failed(&self.shared, &self.selection, None, failure).await),
        };
        let started = SystemTime::now();
        if self.shared.with(&self.selection, |state| state.only_pages) {
            return Ok(self.pages(resource, dialect));
        }
        let query = [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")];
        match watch::open(&self.shared, &self.selection, resource, dialect, &no_revision(), &query).await {
            Ok(open) => Ok(Step::Stream { open: Box::new(open), started, deferred: Vec::new() }),
            Err((resource, Failure::Refused(reason))) => {
                debug!(kind = %self.selection, reason, "the API server gives no streaming list");
                self.shared.with(&self.selection, |state| state.only_pages = true);
                Ok(self.pages(resource, dialect))
            }
            Err((resource, failure)) => Err(failed(&self.shared, &self.selection, Some(&resource), failure).await),
        }
    }

    fn pages(&self, resource: Resource, dialect: Dialect) -> Step {
        let limit = self.shared.page_limit;
        Step::Pages { resource, dialect, started: SystemTime::now(), limit, token: String::new() }
    }

    /// Reads from the stream until a page is full or the initial events are complete.
    async fn streamed(
        &mut self,
        mut open: Box<OpenWatch>,
        started: SystemTime,
        mut deferred: Vec<Event>,
    ) -> Result<Option<ListPage>, Error> {
        let (mut objects, mut malformed) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        loop {
            let lines = match open.receive(STREAM_PATIENCE).await {
                Received::Lines(lines) => lines,
                Received::Ended => {
                    let failure = Failure::retry("the stream broke off before the list was complete");
                    return Err(failed(&self.shared, &self.selection, Some(open.resource()), failure).await);
                }
                Received::Oversized => {
                    warn!(
                        kind = %self.selection,
                        limit = MAX_LINE_BYTES,
                        "an object is longer than what is accepted: it counts as absent"
                    );
                    continue;
                }
                Received::Silent => {
                    warn!(kind = %self.selection, "a streaming list fell silent: it is asked for in pages from now on");
                    self.shared.with(&self.selection, |state| state.only_pages = true);
                    let failure = Failure::retry(format!("no byte of the list for {STREAM_PATIENCE:?}"));
                    return Err(failed(&self.shared, &self.selection, Some(open.resource()), failure).await);
                }
            };
            let mut end = None;
            for line in &lines {
                bytes += line.len();
                let event = match read(line, open.dialect()) {
                    Ok(Read::Event(event)) => event,
                    Ok(Read::Bookmark(revision, true)) if end.is_none() => {
                        end = Some(revision);
                        continue;
                    }
                    Ok(Read::Bookmark(..) | Read::Nothing) => continue,
                    Err(failure) => {
                        return Err(failed(&self.shared, &self.selection, Some(open.resource()), failure).await);
                    }
                };
                match event {
                    // A list knows no deletions: from the first one on, changes belong to the watch.
                    Event::Put(object) if end.is_none() && deferred.is_empty() => objects.push(object),
                    Event::Malformed(object) if end.is_none() && deferred.is_empty() => malformed.push(object),
                    other => deferred.push(other),
                }
            }
            if let Some(revision) = end {
                open.listed(revision.clone(), deferred);
                self.shared.with(&self.selection, |state| state.keep(*open));
                let as_of = Some(AsOf { revision: revision.clone(), at: started });
                return Ok(Some(ListPage { objects, malformed, revision, as_of }));
            }
            if objects.len() + malformed.len() >= MAX_PAGE_OBJECTS || bytes >= MAX_PAGE_BYTES {
                self.step = Step::Stream { open, started, deferred };
                return Ok(Some(ListPage { objects, malformed, revision: no_revision(), as_of: None }));
            }
        }
    }

    /// Asks for one page, and sets the step for what follows it.
    async fn page(
        &mut self,
        resource: &Resource,
        dialect: Dialect,
        started: SystemTime,
        mut limit: u32,
        token: &str,
    ) -> Result<ListPage, Failure> {
        let body = loop {
            let text = limit.to_string();
            let url = resource.url(&self.selection, &[("limit", &text), ("continue", token)]);
            match self.shared.client.get(&url).await {
                Err(Failure::TooLarge(reason)) if limit > 1 => {
                    limit /= 2;
                    info!(kind = %self.selection, reason, limit, "asking for smaller pages");
                }
                other => break other?,
            }
        };
        self.shared.found(&self.selection);
        let (mut page, token) = read_page(&body, dialect)?;
        if token.is_empty() {
            page.as_of = Some(AsOf { revision: page.revision.clone(), at: started });
        } else {
            self.step = Step::Pages { resource: resource.clone(), dialect, started, limit, token };
        }
        Ok(page)
    }
}

/// Reads a page, as of no time yet, and the token of the next one (empty: this was the last one).
///
/// # Errors
/// When the answer is no list.
pub(super) fn read_page(body: &Bytes, dialect: Dialect) -> Result<(ListPage, String), Failure> {
    let body = gojson::utf8(body);
    let page: Page<'_> =
        strict::from_slice(&body).map_err(|error| Failure::retry(format!("the answer is no list: {error}")))?;
    let items = match page.items {
        Some(items) => items,
        // Go writes an empty list as null in places; an answer that is something else has no revision.
        None if !page.metadata.resource_version.is_empty() => Vec::new(),
        None => return Err(Failure::retry("the answer is no list: it has neither items nor a revision")),
    };
    let mut objects: Vec<Object> = Vec::with_capacity(items.len());
    let mut malformed = Vec::new();
    for item in items {
        match object(&body, item, dialect) {
            Ok(object) => objects.push(object),
            Err(unreadable) => malformed.extend(unreadable.named()),
        }
    }
    let revision = page.metadata.resource_version.as_str().into();
    Ok((ListPage { objects, malformed, revision, as_of: None }, page.metadata.continue_token))
}
