//! Asks an API server which kinds it serves, of the groups that somebody wants.
//!
//! Fed by [`kinds`](super::kinds), which says when; [`served`](super::served) reads the answers. One request for the core group, one for
//! the list of all other groups, one for each version of a wanted group.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, stream};

use super::client::ApiClient;
use super::failure::Failure;
use super::served::{Group, Groups, read_groups, read_kinds};

/// Largest answer that is read, in bytes: the list of the kinds of one version has some 300 bytes for each.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// Requests that wait for their answers at the same time.
const AT_ONCE: usize = 4;
/// The version of the core group, which has never had another one.
const CORE_VERSION: &str = "v1";

/// The result of a look.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The groups that were answered for.
    pub(super) groups: Groups,
    /// The paths that were not, and why.
    pub(super) failed: Vec<(String, Failure)>,
}

/// Looks at these groups. A group of which one version is not answered for is not there at all: half of it would look like the
/// end of the other half.
///
/// # Cancel safety
/// May be dropped at any time.
pub(super) async fn look(client: &ApiClient, wanted: &BTreeSet<String>) -> Look {
    let mut look = Look::default();
    let mut versions: Vec<(String, String)> = Vec::new();
    if wanted.contains("") {
        versions.push((String::new(), CORE_VERSION.to_owned()));
    }
    if wanted.iter().any(|group| !group.is_empty()) {
        match groups(client, wanted).await {
            Ok(served) => {
                for (group, served) in served {
                    look.groups.insert(group.clone(), Group::default());
                    versions.extend(served.into_iter().map(|version| (group.clone(), version)));
                }
                for group in wanted.iter().filter(|group| !group.is_empty()) {
                    look.groups.entry(group.clone()).or_default();
                }
            }
            Err(failure) => look.failed.push(("/apis".to_owned(), failure)),
        }
    }
    let answers = stream::iter(versions).map(|(group, version)| async move {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let kinds = match client.get_at_most(&path, MAX_ANSWER_BYTES).await {
            Ok(body) => read_kinds(&body, &group, &version),
            // The list of groups had it a moment ago: it is just going.
            Err(Failure::NotFound(_)) if !group.is_empty() => Ok(Vec::new()),
            Err(failure) => Err(everybody_has_it(failure)),
        };
        (group, version, path, kinds)
    });
    let mut answers = answers.buffered(AT_ONCE);
    let mut incomplete = BTreeSet::new();
    while let Some((group, version, path, kinds)) = answers.next().await {
        match kinds {
            Ok(kinds) => look.groups.entry(group).or_default().0.push((version, kinds)),
            Err(failure) => {
                look.failed.push((path, failure));
                incomplete.insert(group);
            }
        }
    }
    look.groups.retain(|group, _| !incomplete.contains(group));
    look
}

async fn groups(
    client: &ApiClient,
    wanted: &BTreeSet<String>,
) -> Result<std::collections::BTreeMap<String, Vec<String>>, Failure> {
    let body = client.get_at_most("/apis", MAX_ANSWER_BYTES).await.map_err(everybody_has_it)?;
    read_groups(&body, wanted)
}

/// The failure of a request for something that every API server has.
fn everybody_has_it(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound(said) => Failure::retry(format!(
            "{said}; every API server has this: check the server's address and its path, and what is in between"
        )),
        other => other,
    }
}
