//! The memory that a replica needs, by the formula of docs/operations.md under "Sizing". Its figures are measured (docs/performance.md).

/// The process itself.
const BASE: u64 = 20 << 20;
/// Each key, at the peak of a start: 1.5 KiB.
const PER_KEY: u64 = 3 << 9;
/// Each connection without TLS.
const PER_CONNECTION: u64 = 3 << 10;
/// Each connection with TLS.
const PER_TLS_CONNECTION: u64 = 11 << 10;
/// Connections of one node: Felix, confd, the tunnel addresses, the node's status.
const CONNECTIONS_PER_NODE: u64 = 4;

/// Bytes at the peak of a start, if one replica serves all nodes.
#[must_use]
pub fn memory(keys: u64, nodes: u64, tls: bool) -> u64 {
    let per_connection = if tls { PER_TLS_CONNECTION } else { PER_CONNECTION };
    BASE + keys * PER_KEY + nodes * CONNECTIONS_PER_NODE * per_connection
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/operations.md, which uses decimal thousands.
    #[test]
    fn the_estimate_is_that_of_the_sizing_text() {
        assert_eq!(memory(33_000, 1_000, false) >> 20, 80);
        assert_eq!(memory(0, 1, true) - memory(0, 0, true), 44 << 10);
    }
}
