//! Whether a kind is there, and when to look for it again. No I/O; the time is given.
//!
//! A server that has just begun says of all custom resources that it does not know them, so that one such answer is not enough.
//! The kind's definition decides where it can be seen; where it cannot (Calico's own role does not permit it), the kind is
//! missing once the server has said so for [`ABSENT_AFTER`], and nothing is ever gone.

use std::time::Duration;

use tokio::time::Instant;

use super::known::Sighting;

/// For how long the server has to answer that it does not know a kind, if no definition tells: one that has just begun says so
/// of all custom resources for a second or two.
pub(super) const ABSENT_AFTER: Duration = Duration::from_secs(3);
/// How often to look for a missing kind of a family when definitions cannot be watched: it is probably just being installed.
pub(super) const POLL_EXPECTED: Duration = Duration::from_secs(5);
/// How often to look for another missing kind then.
const POLL_OTHERS: Duration = Duration::from_secs(60);
/// How often to look for a missing kind although its definition is watched and did not appear: the kind may be served
/// without one, by an aggregated API server.
pub(super) const POLL_WATCHED: Duration = Duration::from_secs(300);
/// A definition is there a moment before its kind is served: first and longest pause before looking (again).
pub(super) const SETTLE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// The meaning of an answer that the server does not know a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// Perhaps nothing: ask again.
    Uncertain,
    /// It is not there.
    Certain {
        /// It was, and its objects are gone with its definition.
        gone: bool,
    },
}

/// Whether a kind is there, by the answers of the server and by the kind's definition.
///
/// ```text
///             found                 404                      the definitions tell, or it has lasted
///  Unknown ──────────► Served ────────────────► Doubted ───────────────────────────────────────────► Absent
///     │                  ▲ ▲                     │ │ ▲                                                  │
///     │                  │ └──────── found ──────┘ │ │ 404                                              │
///     └─── 404 ──────────┼─────────────────────────┼─┘                                                  │
///    back to what it was ◄──── another answer ─────┘                                                    │
///                        └──────────────────────────────── found ───────────────────────────────────────┘
///
///  A 404, and the definition ...         has the kind     is absent
///    is there                                             once it has lasted
///    was there, and is removed                            at once, and its objects are gone
///    was never there                                      at once; if it was served all the same: once it has lasted
///    may not be seen                                      once it has lasted
///    is not known at the moment                           not now
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Presence {
    /// Nobody has asked for it with success.
    #[default]
    Unknown,
    /// The server has it.
    Served,
    /// The server says that it does not know it.
    Doubted {
        /// It was served before.
        was_served: bool,
        /// When the server first said so.
        since: Instant,
    },
    /// It is not there, until it is found.
    Absent {
        /// Its objects are gone with it.
        gone: bool,
        /// For which change of its definition it was looked for, and how often.
        looked: (u64, u32),
    },
}

impl Presence {
    /// The kind is there. Should it be missing again, everything begins anew.
    pub(super) fn found(&mut self) {
        *self = Self::Served;
    }

    /// The server answered something else about the kind, or nothing: its doubt does not last.
    pub(super) fn interrupted(&mut self) {
        if let Self::Doubted { was_served, .. } = *self {
            *self = if was_served { Self::Served } else { Self::Unknown };
        }
    }

    /// The server says that it does not know the kind. Returns whether it has said so for long enough to be believed without a
    /// definition.
    pub(super) fn doubted(&mut self, now: Instant) -> bool {
        match *self {
            Self::Unknown => *self = Self::Doubted { was_served: false, since: now },
            Self::Served => *self = Self::Doubted { was_served: true, since: now },
            Self::Doubted { .. } | Self::Absent { .. } => {}
        }
        matches!(*self, Self::Doubted { since, .. } if now - since >= ABSENT_AFTER)
    }

    /// The meaning of the doubt, now that the definition is seen like this; `lasts` is the answer of [`Self::doubted`].
    pub(super) fn judge(&mut self, definition: Sighting, lasts: bool) -> Absence {
        let gone = definition == Sighting::Removed;
        match *self {
            Self::Absent { looked, .. } => *self = Self::Absent { gone, looked },
            Self::Doubted { was_served, .. } => {
                let is_certain = match definition {
                    Sighting::Defined { .. } | Sighting::Hidden => lasts,
                    Sighting::Removed => true,
                    Sighting::Never => lasts || !was_served,
                    Sighting::Unseen => false,
                };
                if !is_certain {
                    return Absence::Uncertain;
                }
                *self = Self::Absent { gone, looked: (0, 0) };
            }
            // Found meanwhile by another request.
            Self::Unknown | Self::Served => return Absence::Uncertain,
        }
        Absence::Certain { gone }
    }

    /// How long to wait, from now on, before the kind is looked for again. A kind that `is_expected` is probably just being
    /// installed.
    pub(super) fn pause(&self, definition: Sighting, is_expected: bool) -> Duration {
        match definition {
            Sighting::Defined { change } => {
                let times = match self {
                    Self::Absent { looked: (for_change, times), .. } if *for_change == change => *times,
                    _ => 0,
                };
                SETTLE.0.saturating_mul(2_u32.saturating_pow(times)).min(SETTLE.1)
            }
            // Nobody has been told yet that its objects are gone.
            Sighting::Removed if !matches!(self, Self::Absent { gone: true, .. }) => SETTLE.0,
            Sighting::Removed | Sighting::Never => POLL_WATCHED,
            Sighting::Hidden | Sighting::Unseen if is_expected => POLL_EXPECTED,
            Sighting::Hidden | Sighting::Unseen => POLL_OTHERS,
        }
    }

    /// The pause is over, and the kind is looked for.
    pub(super) fn looked(&mut self, definition: Sighting) {
        if let (Self::Absent { looked: (for_change, times), .. }, Sighting::Defined { change }) = (self, definition) {
            *times = if *for_change == change { times.saturating_add(1) } else { 1 };
            *for_change = change;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINED: Sighting = Sighting::Defined { change: 7 };

    fn doubted(was_served: bool) -> Presence {
        Presence::Doubted { was_served, since: Instant::now() }
    }

    fn absent(gone: bool) -> Presence {
        Presence::Absent { gone, looked: (7, 3) }
    }

    #[test]
    fn a_doubt_is_judged_by_the_definition() {
        let (uncertain, certain) = (Absence::Uncertain, |gone| Absence::Certain { gone });
        for (presence, definition, at_once, once_it_lasts) in [
            (doubted(false), DEFINED, uncertain, certain(false)),
            (doubted(true), DEFINED, uncertain, certain(false)),
            (doubted(false), Sighting::Removed, certain(true), certain(true)),
            (doubted(true), Sighting::Removed, certain(true), certain(true)),
            (doubted(false), Sighting::Never, certain(false), certain(false)),
            (doubted(true), Sighting::Never, uncertain, certain(false)),
            (doubted(true), Sighting::Hidden, uncertain, certain(false)),
            (doubted(true), Sighting::Unseen, uncertain, uncertain),
            (absent(false), DEFINED, certain(false), certain(false)),
            (absent(false), Sighting::Removed, certain(true), certain(true)),
            (absent(true), Sighting::Unseen, certain(false), certain(false)),
            (Presence::Served, Sighting::Never, uncertain, uncertain),
        ] {
            for (lasts, expected) in [(false, at_once), (true, once_it_lasts)] {
                let mut judged = presence;
                assert_eq!(judged.judge(definition, lasts), expected, "{presence:?}, {definition:?}, {lasts}");
                match expected {
                    Absence::Uncertain => assert_eq!(judged, presence),
                    Absence::Certain { gone } => {
                        assert!(matches!(judged, Presence::Absent { gone: is, .. } if is == gone))
                    }
                }
            }
        }
    }

    #[test]
    fn a_doubt_lasts_from_the_first_answer_without_another_in_between() {
        let start = Instant::now();
        let mut presence = Presence::default();
        assert!(!presence.doubted(start));
        assert!(!presence.doubted(start + ABSENT_AFTER / 2));
        presence.interrupted();
        assert_eq!(presence, Presence::Unknown);
        assert!(!presence.doubted(start + ABSENT_AFTER));
        assert!(presence.doubted(start + 2 * ABSENT_AFTER));
        presence.found();
        assert!(!presence.doubted(start + 9 * ABSENT_AFTER));
        presence.interrupted();
        assert_eq!(presence, Presence::Served, "as it was");
        let mut certain = absent(true);
        certain.interrupted();
        assert_eq!(certain, absent(true), "until it is found");
    }

    #[test]
    fn pauses_follow_the_definition() {
        for (presence, definition, is_expected, pause) in [
            (doubted(true), DEFINED, true, SETTLE.0),
            (absent(false), DEFINED, true, SETTLE.0 * 8),
            (absent(false), Sighting::Defined { change: 8 }, true, SETTLE.0),
            (absent(false), Sighting::Removed, true, SETTLE.0),
            (absent(true), Sighting::Removed, true, POLL_WATCHED),
            (absent(false), Sighting::Never, true, POLL_WATCHED),
            (absent(false), Sighting::Hidden, true, POLL_EXPECTED),
            (absent(false), Sighting::Hidden, false, POLL_OTHERS),
            (absent(false), Sighting::Unseen, true, POLL_EXPECTED),
            (absent(false), Sighting::Unseen, false, POLL_OTHERS),
        ] {
            assert_eq!(presence.pause(definition, is_expected), pause, "{presence:?}, {definition:?}");
        }
        let mut presence = absent(false);
        for _ in 0..40 {
            presence.looked(DEFINED);
        }
        assert_eq!(presence.pause(DEFINED, true), SETTLE.1);
        presence.looked(Sighting::Defined { change: 9 });
        assert_eq!(presence, Presence::Absent { gone: false, looked: (9, 1) });
    }
}
