//! Addresses and networks as Calico reads and prints them: IPv4 inside IPv6 is IPv4, networks are masked.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Length of the prefix that marks IPv4 addresses inside IPv6.
const MAPPED_PREFIX: u8 = 96;

/// An address without a zone; an IPv4-mapped IPv6 address is the IPv4 one.
#[must_use]
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// `address/length` as written: the address with its host bits. To require that these are zero, compare with
/// [`IpNet::trunc`].
#[must_use]
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    match address {
        IpAddr::V4(v4) => Ipv4Net::new(v4, length).ok().map(IpNet::V4),
        IpAddr::V6(v6) => unmap_net(v6, length),
    }
}

fn unmap_net(address: Ipv6Addr, length: u8) -> Option<IpNet> {
    match address.to_ipv4_mapped() {
        Some(v4) if length >= MAPPED_PREFIX => Ipv4Net::new(v4, length - MAPPED_PREFIX).ok().map(IpNet::V4),
        _ => Ipv6Net::new(address, length).ok().map(IpNet::V6),
    }
}

/// A network, masked; a bare address is a network of one.
#[must_use]
pub fn parse_net(text: &str) -> Option<IpNet> {
    if text.contains('/') { parse_cidr(text).map(|net| net.trunc()) } else { parse_ip(text).map(IpNet::from) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_masked_and_unmapped() {
        for (text, expected) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3/32")),
            ("FD00:0::1/64", Some("fd00::/64")),
            ("fd00::1", Some("fd00::1/128")),
            ("::ffff:1.2.3.4", Some("1.2.3.4/32")),
            ("::ffff:1.2.3.4/120", Some("1.2.3.0/24")),
            ("::ffff:1.2.3.4/64", Some("::/64")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("10.0.0.0/08", Some("10.0.0.0/8")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("010.0.0.1", None),
            ("fe80::1%eth0", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(parse_net(text).map(|net| net.to_string()).as_deref(), expected, "{text}");
        }
    }
}
