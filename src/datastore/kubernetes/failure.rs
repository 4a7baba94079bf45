//! The meaning of the API server's answers: whose fault it is and what to do next.
//!
//! Pure. Words for the person on call come from here: what was tried, what the server said, what to check.

use std::time::Duration;

use http::StatusCode;
use kube::core::Status;

use crate::datastore::inlet::Error;
use crate::datastore::selection::Selection;
use crate::model::Revision;
use crate::model::object::Kind;

/// The fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Try again, not before this long if the server said so.
    Retry { reason: String, after: Option<Duration> },
    /// The server itself, which is there, failed at this very request: what was asked for may be the reason.
    Failed(String),
    /// Our credentials are not accepted (any more).
    Unauthorized(String),
    /// We are known, and may not do this.
    Forbidden(String),
    /// The server itself says that it does not know the resource.
    NotFound(String),
    /// Somebody else changed or created the object.
    Conflict(String),
    /// The position that was asked for is gone.
    PositionGone(String),
    /// The server does not take the request as it is. For a streaming list: it does not know those.
    Refused(String),
    /// The answer is larger than we take.
    TooLarge(String),
}

/// The answer of an API server for a path where it serves nothing; for all others it is a `Status`.
const NOT_FOUND: &str = "404 page not found";
/// Longest text of a server's words that is passed on.
const MAX_WORDS: usize = 500;

impl Failure {
    /// Reads an answer that is no success. `body` is a `Status`, or whatever a proxy in between says.
    pub(super) fn of_answer(code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let words = String::from_utf8_lossy(body);
        let words = words.trim();
        let failure = match serde_json::from_slice::<Status>(body) {
            Ok(status) => Self::of_status(code.as_u16(), retry_after, &status),
            Err(_) => Self::of_code(code.as_u16(), retry_after, "", clip(words)),
        };
        match failure {
            Self::NotFound(said) if words != NOT_FOUND && !is_status(body) => Self::retry(format!(
                "{said}; an API server would say this in other words: check the server's address and its path, and what is \
                 in between"
            )),
            other => other,
        }
    }

    /// Reads the `Status` that a watch sends when it fails.
    pub(super) fn of_event(status: &Status) -> Self {
        let failure = Self::of_status(status.code, None, status);
        match failure {
            Self::Retry { .. }
            | Self::Failed(_)
            | Self::PositionGone(_)
            | Self::Unauthorized(_)
            | Self::Forbidden(_) => failure,
            // The same position would bring the same error.
            Self::NotFound(reason) | Self::Conflict(reason) | Self::Refused(reason) | Self::TooLarge(reason) => {
                Self::PositionGone(reason)
            }
        }
    }

    fn of_status(code: u16, retry_after: Option<Duration>, status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let after = retry_after.or_else(|| (seconds > 0).then(|| Duration::from_secs(u64::from(seconds))));
        let mut words = clip(&status.message);
        if words.is_empty() {
            words.clone_from(&status.reason);
        }
        let too_large = words.contains("Too large resource version")
            || status
                .details
                .as_ref()
                .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge"));
        if too_large {
            // The server is behind: its own cache, or a cluster restored from a backup. A list tells.
            return Self::PositionGone(words);
        }
        match Self::of_code(code, after, &status.reason, words) {
            // But not 502, 503 and 504: the server, or something behind it, is away.
            Self::Retry { reason, after: None } if matches!(code, 0 | 500) => Self::Failed(reason),
            other => other,
        }
    }

    fn of_code(code: u16, after: Option<Duration>, status_reason: &str, words: String) -> Self {
        let said = if words.is_empty() { format!("HTTP status {code}") } else { format!("{words} ({code})") };
        match (code, status_reason) {
            (410, _) | (_, "Expired" | "Gone") => Self::PositionGone(said),
            (401, _) => Self::Unauthorized(said),
            (403, _) => Self::Forbidden(said),
            (404 | 405, _) => Self::NotFound(said),
            (409, _) => Self::Conflict(said),
            (429, _) => Self::Retry { reason: format!("the API server is overloaded: {said}"), after },
            (400..=499, _) => Self::Refused(said),
            _ => Self::Retry { reason: said, after },
        }
    }

    /// Reads an error of the client: no answer came.
    pub(super) fn of_client(error: &kube::Error) -> Self {
        let mut text = String::new();
        // The library's own word for it is only the name of a variant.
        let mut cause = std::error::Error::source(error).or(Some(error));
        while let Some(error) = cause {
            let words = error.to_string();
            // Many layers only repeat what the next one says.
            if !text.contains(&words) {
                if !text.is_empty() {
                    text.push_str(": ");
                }
                text.push_str(&words);
            }
            cause = error.source();
        }
        if matches!(error, kube::Error::Auth(_)) {
            return Self::Unauthorized(text);
        }
        let hint = [
            ("refused", "; check that the API server runs and that address and port are right"),
            ("certificate", "; check the certificate authority in the kubeconfig or K8S_CA_FILE"),
            ("dns", "; check the host name"),
        ];
        let lower = text.to_ascii_lowercase();
        if let Some((_, hint)) = hint.iter().find(|(sign, _)| lower.contains(sign)) {
            text.push_str(hint);
        }
        Self::Retry { reason: text, after: None }
    }

    /// The error for the caller who looked for kinds.
    pub(super) fn into_discovery_error(self, doing: String) -> Error {
        match self {
            Self::Forbidden(reason) => Error::Forbidden {
                doing,
                reason: format!(
                    "{reason}; everybody whom the API server knows has the ClusterRole system:discovery by default: bind it, or add \
                     {{nonResourceURLs: [\"/api/*\", \"/apis\", \"/apis/*\"], verbs: [\"get\"]}}"
                ),
            },
            Self::Unauthorized(reason) => Error::Retry { doing, reason: unaccepted(&reason) },
            Self::Retry { reason, .. }
            | Self::Failed(reason)
            | Self::NotFound(reason)
            | Self::Refused(reason)
            | Self::Conflict(reason)
            | Self::PositionGone(reason)
            | Self::TooLarge(reason) => Error::Retry { doing, reason },
        }
    }

    /// A failure without words of the server's.
    pub(super) fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { reason: reason.into(), after: None }
    }

    /// The error for the caller who tried `verb` on a kind at `server`, at position `revision`. `resource` is the kind's
    /// place in the API.
    pub(super) fn into_error(self, verb: &str, resource: &Resource, server: &str, revision: &Revision) -> Error {
        let doing = format!("{verb} {} from the API server at {server}", resource.name());
        match self {
            // An absent kind has been judged before, unless not even its place is known.
            Self::Retry { reason, .. }
            | Self::Failed(reason)
            | Self::NotFound(reason)
            | Self::Refused(reason)
            | Self::Conflict(reason)
            | Self::TooLarge(reason) => Error::Retry { doing, reason },
            Self::Unauthorized(reason) => Error::Retry { doing, reason: unaccepted(&reason) },
            Self::Forbidden(reason) => Error::Forbidden {
                doing,
                reason: format!("{reason}; add to the ClusterRole: {}", resource.rule(&["list", "watch"])),
            },
            Self::PositionGone(reason) => Error::Relist { doing, revision: revision.clone(), reason },
        }
    }
}

fn unaccepted(reason: &str) -> String {
    format!(
        "{reason}; our credentials are not accepted: check the token (expired, or its service account deleted) or the client \
         certificate; they are read again before the next attempt"
    )
}

/// Whether a body says that it is a `Status`. All fields of one are optional, so that any JSON object looks like it.
fn is_status(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        kind: String,
    }
    serde_json::from_slice::<Named>(body).is_ok_and(|named| named.kind == "Status")
}

fn clip(words: &str) -> String {
    match words.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

/// Where a kind is in the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    /// API group as served; empty for the core group.
    pub(super) group: String,
    /// Version within the group.
    pub(super) version: String,
    /// Lower-case plural.
    pub(super) plural: String,
}

impl Resource {
    /// The kind in the group that this server serves.
    pub(super) fn new(kind: &Kind, group: &str, version: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), plural: kind.plural.clone().into_owned() }
    }

    /// `pods`, `ippools.crd.projectcalico.org`.
    pub(super) fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The path of all objects, or those of one namespace.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    /// The path of a selection's objects with a query, as closely as both can say which are wanted.
    pub(super) fn url(&self, selection: &Selection, query: &[(&str, &str)]) -> String {
        let labels = selection.labels().to_string();
        let query = query.iter().copied().chain([("labelSelector", labels.as_str())]);
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(query.filter(|(_, value)| !value.is_empty()));
        format!("{}?{}", self.path(selection.only_namespace()), text.finish())
    }

    /// The line of a `ClusterRole` that permits `verbs`.
    pub(super) fn rule(&self, verbs: &[&str]) -> String {
        format!("{{apiGroups: [{:?}], resources: [{:?}], verbs: {verbs:?}}}", self.group, self.plural)
    }
}

#[cfg(test)]
mod tests;
