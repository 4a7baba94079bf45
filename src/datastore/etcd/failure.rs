//! The meaning of etcd's errors: whose fault it is and what to do next.
//!
//! Pure. Words for the person on call come from here: the address, what failed, what to check.

use std::error::Error as _;

use tonic_code::Code;

use crate::datastore::inlet::Error;
use crate::model::Revision;

/// The fault of one request to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// This endpoint cannot answer now; another one may.
    Endpoint(String),
    /// The revision that was asked for is compacted, or of a future that this cluster does not have.
    PositionGone(String),
    /// The answer would be larger than [`MAX_MESSAGE_BYTES`](super::config::MAX_MESSAGE_BYTES).
    TooLarge(String),
    /// etcd refuses us.
    Forbidden(String),
    /// Any other refusal: the same from every endpoint.
    Refused(String),
}

impl Failure {
    /// Reads an error of the client.
    pub(super) fn of(error: &etcd_client::Error) -> Self {
        let etcd_client::Error::GRpcStatus(status) = error else {
            return Self::Endpoint(with_hint(chain(error)));
        };
        let mut text = status.message().to_owned();
        let mut source = status.source();
        while let Some(cause) = source {
            push_cause(&mut text, &cause.to_string());
            source = cause.source();
        }
        let message = status.message();
        match Code::from_i32(status.code() as i32) {
            Code::OutOfRange if message.contains("compacted") || message.contains("future revision") => {
                Self::PositionGone(text)
            }
            Code::OutOfRange | Code::ResourceExhausted if message.contains("too large") => Self::TooLarge(text),
            Code::PermissionDenied | Code::Unauthenticated => Self::Forbidden(text),
            Code::InvalidArgument if message.contains("user name") => Self::Forbidden(text),
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::NotFound => Self::Refused(text),
            Code::ResourceExhausted | Code::Other => Self::Endpoint(with_hint(text)),
        }
    }

    /// Reads the reason that etcd gives when it cancels a watch.
    pub(super) fn of_cancel(compact_revision: i64, reason: &str) -> Self {
        if compact_revision > 0 || reason.contains("compacted") {
            Self::PositionGone(format!("compacted up to revision {compact_revision}"))
        } else if reason.contains("permission denied") || reason.contains("invalid auth token") {
            Self::Forbidden(reason.to_owned())
        } else if reason.is_empty() {
            Self::Endpoint("etcd cancelled the watch without a reason".to_owned())
        } else {
            Self::Endpoint(format!("etcd cancelled the watch: {reason}"))
        }
    }

    /// The error for the caller who was `doing` something at position `revision`.
    pub(super) fn into_error(self, doing: String, revision: &Revision) -> Error {
        match self {
            Self::Endpoint(reason) | Self::Refused(reason) => Error::Retry { doing, reason },
            Self::PositionGone(reason) => Error::Relist { doing, revision: revision.clone(), reason },
            Self::TooLarge(reason) => Error::Retry {
                doing,
                reason: format!("{reason}; a single value is beyond our limit: look for it with etcdctl and remove it"),
            },
            Self::Forbidden(reason) => Error::Forbidden {
                doing,
                reason: format!("{reason}; check the roles of the client certificate's user in etcd"),
            },
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        push_cause(&mut text, &cause.to_string());
        source = cause.source();
    }
    text
}

fn push_cause(text: &mut String, cause: &str) {
    if !text.contains(cause) {
        text.push_str(": ");
        text.push_str(cause);
    }
}

fn with_hint(text: String) -> String {
    let lower = text.to_lowercase();
    let hint = if lower.contains("certificate") || lower.contains("tls") || lower.contains("handshake") {
        "check EtcdCaFile, EtcdCertFile and EtcdKeyFile, and that the server's certificate names this host"
    } else if lower.contains("no leader") || lower.contains("leader changed") {
        "this member has no quorum: check the other members of the cluster"
    } else if lower.contains("refused")
        || lower.contains("timed out")
        || lower.contains("dns")
        || lower.contains("lookup")
    {
        "check that etcd runs at this address and that no firewall is between"
    } else if lower.contains("broken pipe") || lower.contains("reset by peer") {
        // The rest of a refused handshake when our first bytes cross with the refusal.
        "check the state of this etcd member, and whether it wants a client certificate (EtcdCertFile and EtcdKeyFile)"
    } else {
        "check the state of this etcd member"
    };
    format!("{text}; {hint}")
}

/// The gRPC codes that make a difference here. The client does not export its own enumeration of them.
mod tonic_code {
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) enum Code {
        InvalidArgument,
        NotFound,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        OutOfRange,
        Unauthenticated,
        Other,
    }

    impl Code {
        pub(super) fn from_i32(code: i32) -> Self {
            match code {
                3 => Self::InvalidArgument,
                5 => Self::NotFound,
                7 => Self::PermissionDenied,
                8 => Self::ResourceExhausted,
                9 => Self::FailedPrecondition,
                11 => Self::OutOfRange,
                16 => Self::Unauthenticated,
                _ => Self::Other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_reasons_say_what_to_do() {
        for (compact, reason, relist, forbidden) in [
            (7, "", true, false),
            (0, "etcdserver: mvcc: required revision has been compacted", true, false),
            (0, "rpc error: code = PermissionDenied desc = etcdserver: permission denied", false, true),
            (0, "etcdserver: no leader", false, false),
            (0, "", false, false),
        ] {
            let error = Failure::of_cancel(compact, reason).into_error("watch x".to_owned(), &Revision::from("5"));
            assert_eq!(matches!(error, Error::Relist { .. }), relist, "{reason}");
            assert_eq!(matches!(error, Error::Forbidden { .. }), forbidden, "{reason}");
        }
    }

    #[test]
    fn hints_fit_the_trouble() {
        assert!(with_hint("tcp connect error: Connection refused".to_owned()).contains("etcd runs"));
        assert!(with_hint("invalid peer certificate: UnknownIssuer".to_owned()).contains("EtcdCaFile"));
        assert!(with_hint("etcdserver: no leader".to_owned()).contains("quorum"));
    }
}
