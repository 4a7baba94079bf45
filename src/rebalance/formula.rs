//! The number of connections that one server should allow, from the size of the cluster. A pure function; Typha's, digit by digit.
//!
//! Fed by [`super::driver`] with the figures of the moment. Every node opens up to one connection per syncer. The share of
//! one server gets a fifth of headroom and is counted as if one server were missing, so that neither a node that comes nor a
//! server that goes makes connections move.
//!
//! Invariants: never below the lower limit, unless the upper one is lower still; never above the upper limit; an unknown
//! figure gives the upper limit, because a client that is dropped must have another server to go to.

/// The limits of a server's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Never fewer.
    pub lower: usize,
    /// Never more; counts more than `lower`.
    pub upper: usize,
}

/// The figures of the cluster, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Nodes; `None` while the count is not complete.
    pub nodes: Option<usize>,
    /// Servers that take connections, this one included; `None` while they are not known.
    pub replicas: Option<usize>,
}

/// The share of nodes that a server is prepared for, in per cent: 20 per cent of headroom.
const SHARE_PERCENT: usize = 120;

/// The number of connections that a server should allow, where each node opens up to `syncers` of them.
#[must_use]
pub fn max_connections(figures: Figures, syncers: usize, limits: Limits) -> usize {
    let (Some(nodes), Some(replicas)) = (figures.nodes, figures.replicas) else { return limits.upper };
    let others = replicas.saturating_sub(1);
    if others == 0 {
        return limits.upper;
    }
    // Divided one after the other, each rounded down, as Typha does.
    let share = nodes.saturating_mul(SHARE_PERCENT) / others / 100;
    let candidate = share.saturating_add(1).saturating_mul(syncers);
    candidate.max(limits.lower).min(limits.upper)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figures(replicas: impl Into<Option<usize>>, nodes: impl Into<Option<usize>>) -> Figures {
        Figures { nodes: nodes.into(), replicas: replicas.into() }
    }

    /// The table of Typha's unit tests (three syncers), and its production example (four).
    #[test]
    fn the_limits_are_typhas() {
        let small = Limits { lower: 11, upper: 101 };
        let normal = Limits { lower: 400, upper: 10_000 };
        for (replicas, nodes, syncers, limits, expected, why) in [
            (Some(5), Some(100), 3, small, 93, "within the limits"),
            (Some(5), Some(200), 3, small, 101, "not above the upper limit"),
            (Some(1), Some(100), 3, small, 101, "a lone server"),
            (Some(0), Some(100), 3, small, 101, "not even ourselves in the list"),
            (Some(10), Some(10), 3, small, 11, "not below the lower limit"),
            (None, Some(100), 3, small, 101, "servers not known"),
            (Some(5), None, 3, small, 101, "nodes not known"),
            (None, None, 3, small, 101, "nothing known"),
            (Some(7), Some(1000), 4, normal, 804, "production"),
            (Some(2), Some(0), 4, small, 11, "no nodes"),
            (Some(3), Some(1), 4, Limits { lower: 0, upper: 9 }, 4, "one connection per syncer at least"),
            (Some(4), Some(27), 1, Limits { lower: 0, upper: 99 }, 11, "both divisions round down"),
            (Some(2), Some(10), 4, Limits { lower: 50, upper: 20 }, 20, "the upper limit counts more"),
        ] {
            assert_eq!(max_connections(figures(replicas, nodes), syncers, limits), expected, "{why}");
        }
    }

    proptest! {
        #[test]
        fn the_target_is_within_the_limits_and_has_room_for_everybody(
            nodes in 0_usize..200_000, replicas in 0_usize..2000, lower in 0_usize..2000, more in 0_usize..1_000_000,
        ) {
            let limits = Limits { lower, upper: lower + more };
            let target = max_connections(figures(replicas, nodes), 4, limits);
            prop_assert!(target >= limits.lower && target <= limits.upper);
            let (wanted, total) = (nodes * 4, target.saturating_mul(replicas));
            // Enough for all, unless the operator's own upper limit forbids it.
            prop_assert!(replicas < 2 || total >= wanted || target == limits.upper, "{total} for {wanted}");
        }

        #[test]
        fn more_servers_never_raise_the_target(nodes in 0_usize..100_000, replicas in 2_usize..500) {
            let limits = Limits { lower: 1, upper: usize::MAX };
            let target = |replicas| max_connections(figures(replicas, nodes), 4, limits);
            prop_assert!(target(replicas + 1) <= target(replicas));
        }

        #[test]
        fn absurd_figures_do_no_harm(nodes: usize, replicas: usize, syncers: usize) {
            let limits = Limits { lower: 1, upper: 10 };
            prop_assert!(max_connections(figures(replicas, nodes), syncers, limits) <= 10);
        }
    }
}
