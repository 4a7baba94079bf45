//! Formats of single fields: text in, verdict out. Named after Calico's validator tags.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;

use crate::calico::net::parse_cidr;
pub(crate) use crate::calico::net::parse_ip as ip;
use crate::calico::v1::endpoint::Mac;

/// Longest port name.
const MAX_PORT_NAME: usize = 15;
/// [`is_port_name`] in words.
pub(crate) const A_PORT_NAME: &str =
    "a port name (up to 15 lower-case letters, digits and single dashes within, at least one letter)";

/// Whether a text has one of these lengths, and only letters, digits and these further characters.
pub(crate) fn all_in(text: &str, lengths: RangeInclusive<usize>, extra: &str) -> bool {
    lengths.contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
}

/// `name`: lower-case DNS subdomain of any length.
pub(crate) fn is_name(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    text.split('.')
        .all(|label| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(inner))
}

/// `portName`: Kubernetes' name of a port, narrower than Calico's.
pub(crate) fn is_port_name(text: &str) -> bool {
    let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=MAX_PORT_NAME).contains(&text.len())
        && text.bytes().all(known)
        && text.bytes().any(|c| c.is_ascii_lowercase())
        && !text.contains("--")
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// `interface`: `*`, or a Linux interface name.
pub(crate) fn is_interface(text: &str) -> bool {
    text == "*" || all_in(text, 1..=15, "_.-")
}

/// A Linux interface name without wildcard.
pub(crate) fn is_plain_interface(text: &str) -> bool {
    all_in(text, 1..=15, "_.-")
}

/// `bgpFilterInterface`: an interface name in which `*` may stand.
pub(crate) fn is_bgp_filter_interface(text: &str) -> bool {
    all_in(text, 1..=15, "_.*-")
}

/// `ignoredInterface`: an interface name in which `*` may stand, but not alone.
pub(crate) fn is_ignored_interface(text: &str) -> bool {
    text != "*" && is_bgp_filter_interface(text)
}

/// `ifaceFilter`: an interface name, where `+` is iptables' wildcard.
pub(crate) fn is_interface_filter(text: &str) -> bool {
    all_in(text, 1..=15, ":._+-")
}

/// `prometheusHost`: an address or a host name of up to 64 characters.
pub(crate) fn is_prometheus_host(text: &str) -> bool {
    all_in(text, 1..=64, ":._+-")
}

/// Name of a health timeout override.
pub(crate) fn is_reporter_name(text: &str) -> bool {
    all_in(text, 1..=usize::MAX, "_ -")
}

/// `ipv4`.
pub(crate) fn is_ipv4(text: &str) -> bool {
    ip(text).is_some_and(|address| address.is_ipv4())
}

/// `ipv6`.
pub(crate) fn is_ipv6(text: &str) -> bool {
    ip(text).is_some_and(|address| address.is_ipv6())
}

/// A network, or an address as a network of one: the address as written, and the network.
pub(crate) fn network(text: &str) -> Option<(IpAddr, IpNet)> {
    if let Some(address) = ip(text) {
        return Some((address, IpNet::from(address)));
    }
    parse_cidr(text).map(|net| (net.addr(), net.trunc()))
}

/// `net`: a network whose host bits are zero, or an address.
pub(crate) fn is_strict_network(text: &str) -> bool {
    network(text).is_some_and(|(address, net)| net.addr() == address)
}

/// `cidr`: any network or address.
pub(crate) fn is_network(text: &str) -> bool {
    network(text).is_some()
}

/// `cidrv4`, and `netv4` if `strict`.
pub(crate) fn is_network_v4(text: &str, strict: bool) -> bool {
    network(text).is_some_and(|(address, net)| address.is_ipv4() && (!strict || net.addr() == address))
}

/// `cidrv6`, and `netv6` if `strict`.
pub(crate) fn is_network_v6(text: &str, strict: bool) -> bool {
    network(text).is_some_and(|(address, net)| address.is_ipv6() && (!strict || net.addr() == address))
}

/// `mac`: 6, 8 or 20 bytes in hexadecimal, in pairs with `:` or `-`, or in fours with `.`.
pub(crate) fn is_mac(text: &str) -> bool {
    Mac::parse(text).is_some()
}

/// `wireguardPublicKey`: 32 bytes in Base64.
pub(crate) fn is_wireguard_key(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|key| key.len() == 32)
}

/// `IP:port`: an address, or with a port from 1: `1.2.3.4:179`, `[fd00::1]:179`. Returns the address.
pub(crate) fn peer_address(text: &str) -> Option<IpAddr> {
    if let Some(address) = ip(text) {
        return Some(address);
    }
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = match bare {
        Some(host) => ip(host)?,
        None => ip(host).filter(IpAddr::is_ipv4)?,
    };
    (port >= 1).then_some(address)
}

/// Whether the numbers of a BGP community fit: 16 bits each in `aa:nn`, 32 in `aa:nn:mm`. `None`: another form.
pub(crate) fn community(text: &str) -> Option<bool> {
    let parts: Vec<&str> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) || parts.iter().any(|p| p.is_empty() || !p.bytes().all(|c| c.is_ascii_digit())) {
        return None;
    }
    let fits = |part: &&str| {
        if parts.len() == 2 { part.parse::<u16>().is_ok() } else { part.parse::<u32>().is_ok() }
    };
    Some(parts.iter().all(fits))
}

/// `keyValueList`: `key=value,…`, where keys are words; empty items are allowed.
pub(crate) fn is_key_value_list(text: &str) -> bool {
    text.trim().is_empty()
        || text.split(',').filter(|item| !item.is_empty()).all(|item| {
            let key = item.trim_start().split_once('=').map_or("", |(key, _)| key);
            !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
        })
}

/// `regexp`.
pub(crate) fn is_regexp(text: &str) -> bool {
    regex::Regex::new(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        type Format = fn(&str) -> bool;
        let table: &[(&str, Format, &[&str], &[&str])] = &[
            ("name", is_name, &["a", "a-b.c", "0"], &["", "A", "-a", "a-", "a..b", "a_b"]),
            (
                "port name",
                is_port_name,
                &["http", "p-1", "0a", "fifteen-letters"],
                &["", "HTTP_ALT", "-1", "80", "a--b", "-a", "a-", "sixteen-letters-", "a-name-too-long-"],
            ),
            ("interface", is_interface, &["*", "eth0", "cali.1"], &["", "eth0:1", "abcdefghijklmnop", "a*"]),
            ("filter", is_interface_filter, &["docker+", "eth0:1"], &["", "*", "a b"]),
            ("ignored", is_ignored_interface, &["veth*", "docker0"], &["*", "", "a+"]),
            ("ipv4", is_ipv4, &["1.2.3.4", "::ffff:1.2.3.4"], &["1.2.3.4/32", "01.2.3.4", "fd00::1", ""]),
            ("ipv6", is_ipv6, &["fd00::1"], &["1.2.3.4", "fd00::1%eth0", "fd00::1/128"]),
            ("net", is_strict_network, &["10.0.0.0/8", "10.1.2.3", "fd00::/8"], &["10.0.0.1/8", "x", "fd00::1/8"]),
            ("cidr", is_network, &["10.0.0.1/8", "10.1.2.3"], &["10.0.0.0/33", "10.0.0/8"]),
            (
                "mac",
                is_mac,
                &["66:aa:bb:cc:dd:ee", "66-AA-BB-CC-DD-EE", "66aa.bbcc.ddee"],
                &["66:aa", "zz", "", "66:aa:bb:cc:dd:e"],
            ),
            ("key", is_wireguard_key, &["jlkVyQYooZYzI2wFfNhSZez5eWh44yfq1wKVjLvSXgY="], &["", "jlkV", "?"]),
            (
                "peer",
                |t| peer_address(t).is_some(),
                &["1.2.3.4", "1.2.3.4:179", "[fd00::1]:179", "fd00::1"],
                &["1.2.3.4:0", "fd00::1]:1", "[1.2.3.4", "host:1", "1.2.3.4:70000"],
            ),
            ("list", is_key_value_list, &["", "a=b", "a=b,,c=d,", " a="], &["a", "=b", "a-b=c"]),
            ("regexp", is_regexp, &["eth.*", "^a$"], &["(", "[a"]),
        ];
        for (name, format, good, bad) in table {
            for text in *good {
                assert!(format(text), "{name}: {text:?} is good");
            }
            for text in *bad {
                assert!(!format(text), "{name}: {text:?} is bad");
            }
        }
    }

    #[test]
    fn communities_have_two_small_or_three_large_numbers() {
        assert_eq!(community("63400:300"), Some(true));
        assert_eq!(community("1:2:4294967295"), Some(true));
        assert_eq!(community("65536:1"), Some(false));
        assert_eq!(community("1:2:4294967296"), Some(false));
        assert_eq!(community("c1"), None);
        assert_eq!(community("1:"), None);
    }
}
