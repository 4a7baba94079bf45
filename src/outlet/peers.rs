//! The other servers of the service, to which a client is sent when it has to leave this one.
//!
//! Set through [`Outlet::set_peers`](super::Outlet::set_peers) by the watch of the service; read when a connection is
//! closed to spread the load or because the server stops. No I/O, no clock.
//!
//! Invariants: a client is never sent back to the server that it leaves, as far as that server is recognised (by its
//! own addresses, or because the connection ended there); each other server is named at most once; at most
//! [`MAX_ALTERNATIVES`] are named, in a different order for each connection.

use std::net::{IpAddr, SocketAddr};

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;

/// Most servers that a goodbye names. A client that finds none of eight alive still has the address of the service.
pub(crate) const MAX_ALTERNATIVES: usize = 8;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    servers: Vec<Vec<SocketAddr>>,
}

impl Peers {
    /// All servers of a service, each with its addresses, without the one that has an address in `own`.
    #[must_use]
    pub fn new(servers: impl IntoIterator<Item = Vec<SocketAddr>>, own: &[SocketAddr]) -> Self {
        let mut servers: Vec<Vec<SocketAddr>> = servers.into_iter().collect();
        servers.retain(|addresses| !addresses.is_empty() && !addresses.iter().any(|address| own.contains(address)));
        Self { servers }
    }

    /// The servers for a client at `client`, connected to our address `near`. `seed` decides the order.
    pub(crate) fn for_client(&self, client: SocketAddr, near: Option<SocketAddr>, seed: u64) -> Vec<String> {
        let near = near.map(canonical);
        let is_v4 = client.ip().to_canonical().is_ipv4();
        let mut chosen: Vec<SocketAddr> = self
            .servers
            .iter()
            .filter(|addresses| near.is_none_or(|near| !addresses.contains(&near)))
            // An address of the family that the client speaks.
            .filter_map(|addresses| {
                addresses.iter().find(|address| address.is_ipv4() == is_v4).or_else(|| addresses.first()).copied()
            })
            .collect();
        chosen.shuffle(&mut SmallRng::seed_from_u64(seed));
        chosen.truncate(MAX_ALTERNATIVES);
        chosen.iter().map(SocketAddr::to_string).collect()
    }
}

/// The address in its usual form: a socket of both families calls IPv4 addresses `::ffff:a.b.c.d`.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("an address")
    }

    fn servers(servers: &[&[&str]]) -> Vec<Vec<SocketAddr>> {
        servers.iter().map(|addresses| addresses.iter().map(|address| at(address)).collect()).collect()
    }

    const THREE: &[&[&str]] =
        &[&["10.0.0.1:5473", "[fd00::1]:5473"], &["10.0.0.2:5473", "[fd00::2]:5473"], &["10.0.0.3:5473"]];

    fn named(peers: &Peers, client: &str, near: Option<&str>) -> Vec<String> {
        let mut named = peers.for_client(at(client), near.map(at), 1);
        named.sort();
        named
    }

    #[test]
    fn a_client_is_sent_to_others_by_the_family_that_it_speaks() {
        let peers = Peers::new(servers(THREE), &[]);
        let v4 = ["10.0.0.2:5473", "10.0.0.3:5473"];
        assert_eq!(named(&peers, "10.9.9.9:1", Some("10.0.0.1:5473")), v4);
        assert_eq!(named(&peers, "[::ffff:10.9.9.9]:1", Some("[::ffff:10.0.0.1]:5473")), v4);
        let v6 = ["10.0.0.3:5473", "[fd00::2]:5473"];
        assert_eq!(named(&peers, "[fd00::9]:1", Some("[fd00::1]:5473")), v6);
    }

    #[test]
    fn the_server_itself_is_left_out_by_any_of_its_addresses() {
        let peers = Peers::new(servers(THREE), &[at("[fd00::1]:5473")]);
        assert_eq!(named(&peers, "10.9.9.9:1", Some("127.0.0.1:5473")), ["10.0.0.2:5473", "10.0.0.3:5473"]);
        // Another server on the same host has another port.
        let same_host = Peers::new(servers(&[&["10.0.0.1:5473"], &["10.0.0.1:5474"]]), &[]);
        assert_eq!(named(&same_host, "10.9.9.9:1", Some("10.0.0.1:5473")), ["10.0.0.1:5474"]);
        assert_eq!(named(&Peers::default(), "10.9.9.9:1", None), [""; 0]);
        assert_eq!(named(&Peers::new([Vec::new()], &[]), "10.9.9.9:1", None), [""; 0]);
    }

    proptest! {
        #[test]
        fn few_are_named_and_the_load_is_spread(count in 0_usize..40, seed: u64) {
            let all: Vec<Vec<SocketAddr>> =
                (0..count).map(|n| vec![SocketAddr::from(([10, 0, 0, u8::try_from(n).unwrap_or(0)], 5473))]).collect();
            let peers = Peers::new(all, &[at("10.0.0.0:5473")]);
            let named = peers.for_client(at("10.9.9.9:1"), None, seed);
            let distinct: BTreeSet<&String> = named.iter().collect();
            prop_assert_eq!(distinct.len(), named.len());
            prop_assert_eq!(named.len(), count.saturating_sub(1).min(MAX_ALTERNATIVES));
            prop_assert!(!named.contains(&"10.0.0.0:5473".to_owned()));
        }
    }

    #[test]
    fn every_connection_has_its_own_order() {
        let all: Vec<Vec<SocketAddr>> = (1..=4_u8).map(|n| vec![SocketAddr::from(([10, 0, 0, n], 5473))]).collect();
        let peers = Peers::new(all, &[]);
        let firsts: BTreeSet<String> =
            (0..64).filter_map(|seed| peers.for_client(at("10.9.9.9:1"), None, seed).into_iter().next()).collect();
        assert_eq!(firsts.len(), 4, "each server is first for some client");
    }
}
