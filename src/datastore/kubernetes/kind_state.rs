//! The memory of one selection of a kind, between its lists and watches. No I/O, no clock.

use tokio::time::Instant;

use super::absence::Presence;
use super::failure::Failure;
use super::stream::OpenWatch;
use crate::model::Revision;

/// A kind is listed after this many failures of the server itself in a row at the same position: some three seconds. Calico's
/// figure. Other failures do not count: being away or overloaded costs no list.
const MAX_FAILURES_AT: u32 = 5;

/// The memory of one selection: a whole kind mostly.
///
/// ```text
///  list ──► as a stream ── complete ──► the stream is kept ──► the watch goes on with it, or opens its own
///    │           └── refused, silent ──┐
///    └────────► in pages ◄─── for ever ┘
///
///  watch ──► fails at its position ── the server's own fault, MAX_FAILURES_AT times ──► the position is given up
///                  └── ends well: counted anew
///
///  any request ──► asked to wait ──► the next request of this kind waits
/// ```
///
/// Whether the kind is there at all is a picture of its own: [`Presence`].
#[derive(Default)]
pub(super) struct KindState {
    /// Whether the kind is there.
    pub(super) presence: Presence,
    /// The server does not give lists of it as streams.
    pub(super) only_pages: bool,
    /// The server does not want to be asked before. Taken by the request that waits.
    pub(super) not_before: Option<Instant>,
    /// The position at which the server failed, and how often in a row.
    failed_at: Option<(Revision, u32)>,
    /// The stream that has delivered a list and goes on as its watch.
    continuing: Option<OpenWatch>,
}

impl KindState {
    /// The failure of a watch at a position, and what it means: if the server itself fails there again and again (it cannot
    /// convert an old version of an object, for example), the position is gone.
    pub(super) fn watch_failed(&mut self, failure: Failure, at: &Revision) -> Failure {
        let (Failure::Failed(reason) | Failure::Refused(reason)) = failure else { return failure };
        let before = self.failed_at.take().filter(|(position, _)| position == at).map_or(0, |(_, times)| times);
        if before + 1 < MAX_FAILURES_AT {
            self.failed_at = Some((at.clone(), before + 1));
            return Failure::Failed(reason);
        }
        Failure::PositionGone(format!("{reason}; {MAX_FAILURES_AT} times in a row"))
    }

    /// A watch was in order to its end.
    pub(super) fn watch_ended(&mut self) {
        self.failed_at = None;
    }

    /// Keeps a stream for the watch that follows its list.
    pub(super) fn keep(&mut self, open: OpenWatch) {
        self.continuing = Some(open);
    }

    /// The stream that goes on from `from`, where a list left one.
    pub(super) fn continued(&mut self, from: &Revision) -> Option<OpenWatch> {
        self.continuing.take().filter(|open| open.revision() == from)
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;

    use super::super::failure::Resource;
    use super::*;
    use crate::model::object::Dialect;

    #[test]
    fn a_position_is_given_up_when_the_server_fails_there_again_and_again() {
        let failed = || Failure::Failed("cannot convert".to_owned());
        let away = || Failure::retry("refused");
        let mut state = KindState::default();
        // The failure, its position, and whether the position is given up.
        for (failure, at, given_up) in [
            (failed(), "1", false),
            (failed(), "1", false),
            (failed(), "2", false),
            (failed(), "1", false),
            (failed(), "1", false),
            (away(), "1", false),
            (failed(), "1", false),
            (Failure::Refused("odd".to_owned()), "1", false),
            (failed(), "1", true),
            (failed(), "1", false),
        ] {
            let meaning = state.watch_failed(failure, &at.into());
            assert_eq!(matches!(meaning, Failure::PositionGone(_)), given_up, "{meaning:?} at {at}");
        }
        state.watch_ended();
        for _ in 1..MAX_FAILURES_AT {
            assert_eq!(state.watch_failed(failed(), &"1".into()), failed(), "counted anew");
        }
    }

    #[test]
    fn a_stream_goes_on_once_and_only_where_it_is() {
        let pods = Resource { group: String::new(), version: "v1".to_owned(), plural: "pods".to_owned() };
        let open = || OpenWatch::new(Body::empty(), String::new(), pods.clone(), Dialect::Kubernetes, &"7".into());
        let mut state = KindState::default();
        state.keep(open());
        assert!(state.continued(&"7".into()).is_some());
        assert!(state.continued(&"7".into()).is_none(), "it was taken");
        state.keep(open());
        assert!(state.continued(&"8".into()).is_none());
        assert!(state.continued(&"7".into()).is_none(), "nobody can use it any more");
    }
}
