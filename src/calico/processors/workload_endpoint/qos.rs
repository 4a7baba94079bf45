//! Traffic limits and marks in annotations.

use crate::calico::numorstring::Uint8OrString;
use crate::calico::v1::endpoint::QosControls;
use crate::calico::v1::text::TextMap;
use crate::model::quantity;

/// Prefix of the names of Calico's annotations about traffic.
const PREFIX: &str = "qos.projectcalico.org/";
/// Bits per second.
const BANDWIDTH: Limit = Limit { min: 1_000, max: 1_000_000_000_000_000 };
/// Bits.
const BURST: Limit = Limit { min: 1_000, max: 34_359_738_360 };
/// Bits per second.
const PEAKRATE: Limit = Limit { min: 1_010, max: 1_010_000_000_000_000 };
/// Bits.
const MINBURST: Limit = Limit { min: 1_000, max: 100_000_000 };
/// Packets per second, and packets.
const PACKETS: Limit = Limit { min: 1, max: 10_000 };
/// Connections.
const CONNECTIONS: Limit = Limit { min: 1, max: 4_294_967_295 };
/// Default burst with a bandwidth.
const DEFAULT_BURST: i64 = 4_294_967_296;
/// Default packet burst with a packet rate.
const DEFAULT_PACKET_BURST: i64 = 5;
/// Largest DSCP value.
const MAX_DSCP: u8 = 63;
/// Names of DSCP values.
const DSCP_NAMES: [&str; 21] = [
    "DF", "EF", "AF11", "AF12", "AF13", "AF21", "AF22", "AF23", "AF31", "AF32", "AF33", "AF41", "AF42", "AF43", "CS0",
    "CS1", "CS2", "CS3", "CS4", "CS5", "CS6",
];

/// Bounds of a quantity. Values outside become the nearest bound.
struct Limit {
    min: i64,
    max: i64,
}

/// Limits of one direction.
struct Direction {
    bandwidth: i64,
    burst: i64,
    peakrate: i64,
    minburst: i64,
    packet_rate: i64,
    packet_burst: i64,
    max_connections: i64,
}

/// The traffic controls in a pod's annotations; `None`: no valid ones.
pub(super) fn controls(annotations: &TextMap<'_>) -> Option<QosControls> {
    if !annotations.iter().any(|(name, _)| name.starts_with(PREFIX) || name.ends_with("gress-bandwidth")) {
        return None;
    }
    let ingress = Direction::read(annotations, "ingress");
    let egress = Direction::read(annotations, "egress");
    let controls = QosControls {
        ingress_bandwidth: ingress.bandwidth,
        ingress_burst: ingress.burst,
        ingress_peakrate: ingress.peakrate,
        ingress_minburst: ingress.minburst,
        egress_bandwidth: egress.bandwidth,
        egress_burst: egress.burst,
        egress_peakrate: egress.peakrate,
        egress_minburst: egress.minburst,
        ingress_packet_rate: ingress.packet_rate,
        ingress_packet_burst: ingress.packet_burst,
        egress_packet_rate: egress.packet_rate,
        egress_packet_burst: egress.packet_burst,
        ingress_max_connections: ingress.max_connections,
        egress_max_connections: egress.max_connections,
        dscp: dscp(annotations),
    };
    (controls != QosControls::default()).then_some(controls)
}

/// The DSCP mark in annotations; `None`: absent or invalid.
pub(in crate::calico::processors) fn dscp(annotations: &TextMap<'_>) -> Option<Uint8OrString> {
    let text = annotations.get("qos.projectcalico.org/dscp")?;
    let known = |text: &str| DSCP_NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(text));
    match Uint8OrString::from_text(text.to_owned()) {
        Uint8OrString::Number(number) => (number <= MAX_DSCP).then_some(Uint8OrString::Number(number)),
        // Blanks around a name are accepted and kept.
        Uint8OrString::Name(text) => match known(&text) {
            Some(name) => Some(Uint8OrString::Name(name.to_owned())),
            None => known(text.trim()).is_some().then_some(Uint8OrString::Name(text)),
        },
    }
}

impl Direction {
    fn read(annotations: &TextMap<'_>, direction: &str) -> Self {
        let own = |what: &str, limit: &Limit| quantity(annotations, &format!("{PREFIX}{direction}{what}"), limit);
        let set = |quantity: Option<i64>| quantity.unwrap_or(0);
        let bandwidth = own("Bandwidth", &BANDWIDTH)
            .or_else(|| quantity(annotations, &format!("kubernetes.io/{direction}-bandwidth"), &BANDWIDTH));
        let mut limits = Self {
            bandwidth: set(bandwidth),
            burst: set(own("Burst", &BURST)),
            peakrate: set(own("Peakrate", &PEAKRATE)),
            minburst: set(own("Minburst", &MINBURST)),
            packet_rate: set(own("PacketRate", &PACKETS)),
            packet_burst: set(own("PacketBurst", &PACKETS)),
            max_connections: set(own("MaxConnections", &CONNECTIONS)),
        };
        limits.settle();
        limits
    }

    /// Drops limits that need another limit which is absent, and sets defaults.
    fn settle(&mut self) {
        if self.bandwidth == 0 {
            self.burst = 0;
        } else if self.burst == 0 {
            self.burst = DEFAULT_BURST;
        }
        if self.bandwidth == 0 || self.peakrate <= self.bandwidth {
            self.peakrate = 0;
        }
        if self.peakrate == 0 {
            self.minburst = 0;
        }
        if self.packet_rate == 0 {
            self.packet_burst = 0;
        } else if self.packet_burst == 0 {
            self.packet_burst = DEFAULT_PACKET_BURST;
        }
    }
}

/// A quantity, moved into its bounds; 0 if the text is no quantity.
fn quantity(annotations: &TextMap<'_>, name: &str, limit: &Limit) -> Option<i64> {
    let text = annotations.get(name)?;
    Some(quantity::parse(text).map_or(0, |quantity| quantity.clamp(limit.min, limit.max)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gojson;

    #[track_caller]
    fn check(annotations: &[(&str, &str)], expected: &str) {
        let annotations: TextMap<'_> = annotations
            .iter()
            .map(|(name, value)| {
                let name = if name.contains('/') { (*name).to_owned() } else { format!("{PREFIX}{name}") };
                (name.into(), (*value).into())
            })
            .collect();
        assert_eq!(gojson::to_string(&controls(&annotations)), expected);
    }

    #[test]
    fn limits_need_each_other() {
        check(&[], "null");
        check(&[("other/x", "1")], "null");
        check(&[("ingressBurst", "10M")], "null");
        check(&[("ingressBandwidth", "10M")], r#"{"ingressBandwidth":10000000,"ingressBurst":4294967296}"#);
        check(&[("kubernetes.io/ingress-bandwidth", "5M"), ("ingressBandwidth", "junk")], "null");
        check(
            &[("egressBandwidth", "1M"), ("egressBurst", "2k"), ("egressPeakrate", "1M"), ("egressMinburst", "2k")],
            r#"{"egressBandwidth":1000000,"egressBurst":2000}"#,
        );
        check(
            &[("egressBandwidth", "1M"), ("egressPeakrate", "2M"), ("egressMinburst", "1")],
            r#"{"egressBandwidth":1000000,"egressBurst":4294967296,"egressPeakrate":2000000,"egressMinburst":1000}"#,
        );
        check(&[("ingressPacketRate", "7")], r#"{"ingressPacketRate":7,"ingressPacketBurst":5}"#);
        check(&[("ingressMaxConnections", "99999999999")], r#"{"ingressMaxConnections":4294967295}"#);
    }

    #[test]
    fn marks_are_names_or_numbers() {
        for (text, expected) in [
            ("ef", r#"{"dscp":"EF"}"#),
            ("af43", r#"{"dscp":"AF43"}"#),
            ("0", r#"{"dscp":0}"#),
            ("63", r#"{"dscp":63}"#),
            ("64", "null"),
            ("cs7", "null"),
            ("-1", "null"),
            ("+5", "null"),
            (" 5", "null"),
            (" EF", r#"{"dscp":" EF"}"#),
            ("", "null"),
        ] {
            check(&[("dscp", text)], expected);
        }
    }
}
