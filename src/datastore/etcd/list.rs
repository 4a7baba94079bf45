//! Lists: all keys below a prefix, in pages, all at the revision of the first page.
//!
//! Each page is handed on before the next one is asked for, so that a list is never in memory as a whole here.

use std::sync::Arc;
use std::time::SystemTime;

use etcd_client::GetOptions;
use futures_util::stream::{self, Stream};

use super::config::MAX_MESSAGE_BYTES;
use super::failure::Failure;
use super::object::{Layout, revision_text};
use super::shared::Shared;
use crate::datastore::inlet::{Error, ListPage};
use crate::model::{AsOf, no_revision};

struct Listing {
    shared: Arc<Shared>,
    layout: Layout,
    /// Where the next page starts.
    next_key: Vec<u8>,
    /// First key beyond the prefix.
    end: Vec<u8>,
    /// Revision and start of the list, known from the first page on.
    at: Option<(i64, SystemTime)>,
    limit: u32,
}

/// The pages of a list. Ends after the last page or the first error.
pub(super) fn pages(shared: Arc<Shared>, layout: Layout) -> impl Stream<Item = Result<ListPage, Error>> {
    let limit = shared.page_limit;
    let (next_key, end) = (layout.range.clone().into_bytes(), range_end(&layout.range));
    let listing = Listing { shared, layout, next_key, end, at: None, limit };
    stream::unfold(Some(listing), |listing| async move {
        let mut listing = listing?;
        match listing.page().await {
            Ok((page, true)) => Some((Ok(page), Some(listing))),
            Ok((page, false)) => Some((Ok(page), None)),
            Err(error) => Some((Err(error), None)),
        }
    })
}

/// The first key that is greater than all keys with this prefix. Prefixes of kinds end in `/`.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

impl Listing {
    /// Gets the next page, and whether more follow.
    async fn page(&mut self) -> Result<(ListPage, bool), Error> {
        let started = SystemTime::now();
        let mut response = loop {
            match self.ask().await {
                Ok(response) => break response,
                Err(Failure::TooLarge(_)) if self.limit > 1 => self.limit = (self.limit / 2).max(1),
                Err(failure) => {
                    let (Layout { kind, range, .. }, urls) = (&self.layout, self.shared.endpoints.urls());
                    let doing = format!("list {kind} below {range} in etcd at {urls}");
                    let revision = self.at.map_or_else(no_revision, |(revision, _)| revision_text(revision));
                    return Err(failure.into_error(doing, &revision));
                }
            }
        };
        let (revision, started) = *self.at.get_or_insert_with(|| {
            let header = response.0.header.take().unwrap_or_default();
            self.shared.note_cluster(&self.layout.range, header.cluster_id);
            (header.revision, started)
        });
        let kvs = std::mem::take(&mut response.0.kvs);
        let more = response.0.more && !kvs.is_empty();
        if let Some(last) = kvs.last() {
            self.next_key = [&last.key, &[0][..]].concat();
        }
        let mut malformed = Vec::new();
        let objects = kvs.into_iter().filter_map(|kv| {
            let object = self.layout.object(&kv.key, kv.value, kv.mod_revision);
            object.map_err(|unreadable| malformed.push(unreadable)).ok()
        });
        let objects = objects.collect();
        let revision = revision_text(revision);
        let as_of = (!more).then(|| AsOf { revision: revision.clone(), at: started });
        Ok((ListPage { objects, malformed, revision, as_of }, more))
    }

    async fn ask(&self) -> Result<etcd_client::GetResponse, Failure> {
        let mut options = GetOptions::new().with_range(self.end.clone()).with_limit(i64::from(self.limit));
        if let Some((revision, _)) = self.at {
            options = options.with_revision(revision);
        }
        self.shared
            .endpoints
            .request(|connection| {
                let (key, options) = (self.next_key.clone(), options.clone());
                async move {
                    let mut client = connection.client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES);
                    client.get(key, Some(options)).await.map_err(|error| Failure::of(&error))
                }
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_ends_right_behind_the_prefix() {
        assert_eq!(range_end("/a/"), b"/a0");
        assert_eq!(range_end("\u{7f}"), b"\x80");
    }
}
