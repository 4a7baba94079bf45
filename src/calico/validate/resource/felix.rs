//! Rules for FelixConfigurations that are distributed whole (by node selector).

use super::formats::{
    ip, is_interface, is_interface_filter, is_key_value_list, is_network, is_network_v4, is_plain_interface,
    is_prometheus_host, is_regexp, is_reporter_name,
};
use super::rule::check_port;
use super::tree::At;

/// iptables' multiport match takes 15 ports, a range counts twice.
const NODE_PORT_RANGES: usize = 7;
/// `openstack-region-` and the region have to fit a DNS label.
const REGION_LENGTH: usize = 63 - "openstack-region-".len();
/// The kernel numbers routing tables with 32 bits.
const LAST_ROUTE_TABLE: i64 = u32::MAX as i64;
/// Calico's bound on the tables in all ranges together.
const MOST_ROUTE_TABLES: i64 = 0xffff;

const REGEXP: &str = "a regular expression";
const CIDRS: &str = "a list of CIDRs or addresses";
const FILTER: &str = "an interface name of up to 15 characters, + at its end matches the rest";

/// A field and its accepted values.
type Rule = (&'static str, Accept);

/// The values that a field accepts when it is set.
#[derive(Clone, Copy, Debug)]
enum Accept {
    /// One of these words.
    Of(&'static [&'static str]),
    /// A number between these two, inclusive.
    In(i64, i64),
    /// Text for which the function holds.
    Text(fn(&str) -> bool, &'static str),
    /// A list of text for which the function holds.
    Each(fn(&str) -> bool, &'static str),
}

use Accept::{Each, In, Of, Text};

/// The bounds of a port number where 0 is allowed.
const PORT: Accept = In(0, 65_535);
const PRIORITY: Accept = In(1, 2_147_483_646);

const RULES: &[Rule] = &[
    ("featureDetectOverride", Text(is_key_value_list, "a list key=value,…")),
    ("featureGates", Text(is_key_value_list, "a list key=value,…")),
    ("logDebugFilenameRegex", Text(is_regexp, REGEXP)),
    ("prometheusMetricsHost", Text(is_prometheus_host, "an address or host name of up to 64 characters")),
    (
        "prometheusMetricsClientAuth",
        Of(&["RequireAndVerifyClientCert", "RequireAnyClientCert", "VerifyClientCertIfGiven", "NoClientCert"]),
    ),
    ("natOutgoingExclusions", Of(&["IPPoolsOnly", "IPPoolsAndHostIPs"])),
    ("debugPort", PORT),
    ("iptablesNATOutgoingInterfaceFilter", Text(is_interface_filter, FILTER)),
    ("nftablesFlowTableDataIfacePattern", Text(is_regexp, REGEXP)),
    ("bpfOverlayHostSourceIP", Of(&["TunnelAddress", "HostAddress"])),
    ("bpfJITHardening", Of(&["Auto", "Strict"])),
    ("bpfConntrackLogLevel", Of(&["Off", "Debug"])),
    ("bpfConntrackMode", Of(&["Auto", "Userspace", "BPFProgram"])),
    ("bpfDataIfacePattern", Text(is_regexp, REGEXP)),
    ("bpfL3IfacePattern", Text(is_regexp, REGEXP)),
    ("bpfConnectTimeLoadBalancing", Of(&["TCP", "Enabled", "Disabled"])),
    ("bpfHostNetworkedNATWithoutCTLB", Of(&["Enabled", "Disabled"])),
    ("bpfDSROptoutCIDRs", Each(is_network, CIDRS)),
    ("bpfExtToServiceConnmark", In(0, 4_294_967_295)),
    ("bpfKubeProxyHealthzPort", PORT),
    ("bpfMapSizeConntrackCleanupQueue", In(1, i64::MAX)),
    ("bpfForceTrackPacketsFromIfaces", Each(is_interface_filter, FILTER)),
    ("bpfDisableGROForIfaces", Text(is_regexp, REGEXP)),
    ("bpfExcludeCIDRsFromNAT", Each(is_network, CIDRS)),
    ("bpfAttachType", Of(&["TC", "TCX", "Netkit"])),
    ("ipv4NormalRoutePriority", PRIORITY),
    ("ipv4ElevatedRoutePriority", PRIORITY),
    ("ipv6NormalRoutePriority", PRIORITY),
    ("ipv6ElevatedRoutePriority", PRIORITY),
    ("wireguardListeningPort", In(1, 65_535)),
    ("wireguardListeningPortV6", In(1, 65_535)),
    ("wireguardRoutingRulePriority", In(1, 32_765)),
    ("wireguardInterfaceName", Text(is_interface, "an interface name of up to 15 characters")),
    ("wireguardInterfaceNameV6", Text(is_interface, "an interface name of up to 15 characters")),
    ("awsSrcDstCheck", Of(&["DoNothing", "Enable", "Disable"])),
    ("serviceLoopPrevention", Of(&["Drop", "Reject", "Disabled"])),
    ("workloadSourceSpoofing", Of(&["Disabled", "Any"])),
    ("mtuIfacePattern", Text(is_regexp, REGEXP)),
    ("localSubnetL2Reachability", Of(&["Disabled", "PodsAndLoadBalancers"])),
    ("windowsManageFirewallRules", Of(&["Enabled", "Disabled"])),
    ("goGCThreshold", In(-1, i64::MAX)),
    ("goMemoryLimitMB", In(-1, i64::MAX)),
    ("goMaxProcs", In(-1, i64::MAX)),
    ("bpfMaglevMaxEndpointsPerService", In(1, 3_000)),
    ("bpfMaglevMaxServices", In(1, 3_000)),
    ("externalNodesList", Each(|text| is_network_v4(text, false), "a list of IPv4 CIDRs or addresses")),
    ("openstackRegion", Text(is_region, "a DNS label of up to 46 characters")),
    ("natOutgoingAddress", Text(|text| ip(text).is_some(), "an IP address")),
    ("deviceRouteSourceAddress", Text(|text| ip(text).is_some(), "an IP address")),
    ("deviceRouteSourceAddressIPv6", Text(|text| ip(text).is_some(), "an IP address")),
];

fn is_region(text: &str) -> bool {
    text.len() <= REGION_LENGTH && !text.contains('.') && super::formats::is_name(text)
}

/// Checks the spec of a FelixConfiguration.
pub(super) fn check(configuration: &At<'_>) {
    let Some(spec) = configuration.get("spec") else { return };
    for (name, accept) in RULES {
        match *accept {
            // Empty text is printed only for pointers in Go, whose target is checked even if it is empty.
            Of(choices) => spec.field_of(name, choices),
            In(least, most) => spec.field_in(name, least..=most),
            Text(good, expected) => spec.field_is(name, good, expected),
            Each(good, expected) => {
                for item in spec.list(name) {
                    item.text_is(good, expected);
                }
            }
        }
    }
    check_node_ports(&spec);
    check_route_tables(&spec);
    for name in ["natPortRange", "bpfPSNATPorts"] {
        if let Some(port) = spec.get(name) {
            check_port(&port);
        }
    }
    for reporter in spec.list("healthTimeoutOverrides") {
        let name = reporter.get("name").map_or("", |name| name.text());
        if !is_reporter_name(name) {
            reporter.bad("a name of letters, digits, blanks, _ and -");
        }
        if reporter.get("timeout").is_some_and(|timeout| timeout.text().starts_with('-')) {
            reporter.bad("a timeout that is not negative");
        }
    }
    if let Some(filters) = spec.get("bpfLogFilters")
        && let Some(map) = filters.value().as_object()
        && !map.keys().all(|name| is_plain_interface(name))
    {
        filters.bad("interface names of up to 15 characters as keys");
    }
}

fn check_node_ports(spec: &At<'_>) {
    let ranges = spec.list("kubeNodePortRanges");
    if let Some(extra) = ranges.get(NODE_PORT_RANGES) {
        extra.bad(format!("at most {NODE_PORT_RANGES} ranges"));
    }
    for range in &ranges {
        check_port(range);
        if range.value().as_str().is_some_and(|text| !text.contains(':')) {
            range.bad("port numbers or ranges, not names");
        }
    }
}

fn check_route_tables(spec: &At<'_>) {
    let ends = |range: &At<'_>| {
        let number = |name: &str| range.get(name).and_then(|field| field.value().as_i64()).unwrap_or(0);
        (number("min"), number("max"))
    };
    let mut tables = 0_i64;
    for range in spec.list("routeTableRanges") {
        let (min, max) = ends(&range);
        if min < 1 || min > max || max > LAST_ROUTE_TABLE {
            range.bad("min and max of a range of route tables, from 1");
            continue;
        }
        tables = tables.saturating_add(max - min + 1);
        if tables > MOST_ROUTE_TABLES {
            range.bad(format!("at most {MOST_ROUTE_TABLES} tables in all ranges together"));
        }
    }
    if let Some(range) = spec.get("routeTableRange") {
        let (min, max) = ends(&range);
        if min < 1 || min > max || max > 250 {
            range.bad("min and max of a range of route tables within 1 to 250");
        }
    }
}
