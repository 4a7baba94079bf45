//! Keys of a line from the cache's, and the other way round.
//!
//! Up to 3.31 a policy's key carries its tier and a name that tells the kind; the tier follows from the stored name
//! alone.

use std::borrow::Cow;

use crate::calico::keys;
use crate::calico::release::Release;
use crate::calico::syncers::FELIX;
use crate::model::Key;
use crate::model::SyncerName;

const POLICIES: &str = "/calico/v1/policy/";
const OLD_POLICIES: &str = "/calico/v1/policy/tier/";
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// Prefix of the names of Kubernetes' policies.
const OF_KUBERNETES: &str = "knp.default.";
/// Prefix of the names of staged policies.
const STAGED: &str = "staged:";
/// Prefix of the names of AdminNetworkPolicies; its second part is their tier.
const ADMIN: &str = "kanp.adminnetworkpolicy.";
/// The same for BaselineAdminNetworkPolicies.
const BASELINE_ADMIN: &str = "kbanp.baselineadminnetworkpolicy.";
/// Prefix of the names of OpenStack's policies, which are in the default tier.
const OF_OPENSTACK: &str = "ossg.";
const DEFAULT_TIER: &str = "default";

/// The form of a cache's key in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// The same key.
    Same,
    /// Another key; several keys of the cache may become the same.
    Other(Key),
    /// No key: the line's agents do not know it, or would misread it.
    None,
}

/// A policy, from its key in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Policy<'a> {
    /// The policy of a key of the cache, if it is a policy's.
    fn of(key: &'a str) -> Option<Self> {
        let mut parts = key.strip_prefix(POLICIES)?.splitn(3, '/');
        let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
        kind.ends_with("NetworkPolicy").then_some(Self { kind, namespace, name })
    }

    fn key(self) -> Key {
        let Self { kind, namespace, name } = self;
        format!("{POLICIES}{kind}/{namespace}/{name}").into()
    }

    /// Its key in a line with old keys, if the line's agents receive it.
    fn old_key(self, line: Release) -> Option<Key> {
        let Self { kind, namespace, name } = self;
        let staged = line >= Release::V3_30;
        let (tier, full) = match kind {
            "GlobalNetworkPolicy" => (tier_of(line, name), name.to_owned()),
            "NetworkPolicy" => (tier_of(line, name), format!("{namespace}/{name}")),
            "KubernetesNetworkPolicy" => (DEFAULT_TIER, format!("{namespace}/{OF_KUBERNETES}{name}")),
            "StagedGlobalNetworkPolicy" if staged => (tier_of(line, name), format!("{STAGED}{name}")),
            "StagedNetworkPolicy" if staged => (tier_of(line, name), format!("{namespace}/{STAGED}{name}")),
            "StagedKubernetesNetworkPolicy" if staged => {
                (DEFAULT_TIER, format!("{namespace}/{STAGED}{OF_KUBERNETES}{name}"))
            }
            _ => return None,
        };
        Some(keys::old_policy(tier, &full))
    }
}

/// The tier of a policy in a line with old keys: the stored name decides, never the policy's field.
fn tier_of(line: Release, name: &str) -> &str {
    if line < Release::V3_29 || name.starts_with(OF_KUBERNETES) || name.starts_with(OF_OPENSTACK) {
        return DEFAULT_TIER;
    }
    if name.starts_with(ADMIN) {
        return "adminnetworkpolicy";
    }
    if line >= Release::V3_30 && name.starts_with(BASELINE_ADMIN) {
        return "baselineadminnetworkpolicy";
    }
    name.split_once('.').map_or(DEFAULT_TIER, |(tier, _)| tier)
}

/// Spells a key of the cache as a line does.
pub(super) fn spelling(syncer: SyncerName, line: Release, key: &str) -> Spelling {
    if syncer != FELIX {
        return Spelling::Same;
    }
    if !line.has_modern_policy_keys()
        && let Some(policy) = Policy::of(key)
    {
        return policy.old_key(line).map_or(Spelling::None, Spelling::Other);
    }
    if is_known(line, key) { Spelling::Same } else { Spelling::None }
}

/// Keys of the cache that may become this old key, the winning key first. Prefixes of Kubernetes' and staged policies
/// are reserved: a policy of that kind wins over another policy that uses the prefix in its name.
pub(super) fn sources(line: Release, old_key: &str) -> Vec<Key> {
    let Some((_, name)) = old_key.strip_prefix(OLD_POLICIES).and_then(|rest| rest.rsplit_once("/policy/")) else {
        return Vec::new();
    };
    let full = unescape(name);
    let (namespace, name) = full.split_once('/').unwrap_or(("", &full));
    let candidate = |kind, prefix: &str| Some(Policy { kind, namespace, name: name.strip_prefix(prefix)? });
    let candidates = if namespace.is_empty() {
        [candidate("StagedGlobalNetworkPolicy", STAGED), candidate("GlobalNetworkPolicy", ""), None, None]
    } else {
        [
            candidate("StagedKubernetesNetworkPolicy", &format!("{STAGED}{OF_KUBERNETES}")),
            candidate("KubernetesNetworkPolicy", OF_KUBERNETES),
            candidate("StagedNetworkPolicy", STAGED),
            candidate("NetworkPolicy", ""),
        ]
    };
    let leads_here = |policy: &Policy<'_>| policy.old_key(line).is_some_and(|key| key.as_str() == old_key);
    candidates.into_iter().flatten().filter(leads_here).map(Policy::key).collect()
}

/// Whether a key of the cache is a namespaced policy's.
pub(super) fn is_namespaced_policy(key: &str) -> bool {
    Policy::of(key).is_some_and(|policy| !policy.namespace.is_empty())
}

/// Undoes [`keys::escape`].
fn unescape(text: &str) -> Cow<'_, str> {
    if text.contains('%') { Cow::Owned(text.replace("%2f", "/").replace("%25", "%")) } else { Cow::Borrowed(text) }
}

/// Whether Felix of this line receives a key that is no policy's.
fn is_known(line: Release, key: &str) -> bool {
    let since = |first: Release| line >= first;
    if let Some(resource) = key.strip_prefix(RESOURCES) {
        return match resource.split('/').next() {
            Some("bgppeers") => since(Release::V3_30),
            Some("livemigrations" | "felixconfigurations") => since(Release::V3_32),
            _ => true,
        };
    }
    if key.starts_with(OLD_POLICIES) {
        return since(Release::V3_29);
    }
    match config_name(key) {
        Some(name) => since(first_line_of_setting(name)),
        None => true,
    }
}

/// The setting in a key, for all hosts or for one.
fn config_name(key: &str) -> Option<&str> {
    if let Some(name) = key.strip_prefix("/calico/v1/config/") {
        return Some(name);
    }
    let (_, rest) = key.strip_prefix("/calico/v1/host/")?.split_once('/')?;
    rest.strip_prefix("config/")
}

/// Settings added after 3.26, with their first line. Sorted.
const SETTINGS: [(&str, Release); 46] = [
    ("BPFAttachType", Release::V3_31),
    ("BPFCTLBLogFilter", Release::V3_27),
    ("BPFConnectTimeLoadBalancing", Release::V3_27),
    ("BPFConntrackCleanupMode", Release::V3_30),
    ("BPFConntrackLogLevel", Release::V3_30),
    ("BPFConntrackTimeouts", Release::V3_30),
    ("BPFDisableGROForIfaces", Release::V3_27),
    ("BPFExcludeCIDRsFromNAT", Release::V3_27),
    ("BPFExportBufferSizeMB", Release::V3_30),
    ("BPFForceTrackPacketsFromIfaces", Release::V3_27),
    ("BPFHostNetworkedNATWithoutCTLB", Release::V3_27),
    ("BPFJITHardening", Release::V3_31),
    ("BPFKubeProxyHealthzPort", Release::V3_30),
    ("BPFLogFilters", Release::V3_27),
    ("BPFMapSizeConntrackCleanupQueue", Release::V3_30),
    ("BPFMapSizeConntrackScaling", Release::V3_30),
    ("BPFMapSizePerCPUConntrack", Release::V3_30),
    ("BPFOverlayHostSourceIP", Release::Master),
    ("BPFProfiling", Release::V3_30),
    ("BPFRedirectToPeer", Release::V3_29),
    ("CgroupV2Path", Release::V3_30),
    ("DebugHost", Release::V3_28),
    ("DebugPort", Release::V3_28),
    ("DebugSimulateDataplaneApplyDelay", Release::V3_28),
    ("EndpointStatusPathPrefix", Release::V3_28),
    ("GoGCThreshold", Release::V3_29),
    ("GoMaxProcs", Release::V3_29),
    ("GoMemoryLimitMB", Release::V3_29),
    ("IPForwarding", Release::V3_29),
    ("IPv4ElevatedRoutePriority", Release::V3_32),
    ("IPv4NormalRoutePriority", Release::V3_32),
    ("IPv6ElevatedRoutePriority", Release::V3_32),
    ("IPv6NormalRoutePriority", Release::V3_32),
    ("LiveMigrationRouteConvergenceTime", Release::V3_32),
    ("LogActionRateLimit", Release::V3_30),
    ("LogActionRateLimitBurst", Release::V3_30),
    ("NATOutgoingExclusions", Release::V3_31),
    ("NFTablesMode", Release::V3_29),
    ("ProgramClusterRoutes", Release::V3_31),
    ("PrometheusMetricsCAFile", Release::V3_32),
    ("PrometheusMetricsCertFile", Release::V3_32),
    ("PrometheusMetricsClientAuth", Release::V3_32),
    ("PrometheusMetricsKeyFile", Release::V3_32),
    ("RequireMTUFile", Release::V3_31),
    ("WindowsManageFirewallRules", Release::V3_27),
    ("WireguardThreadingEnabled", Release::V3_28),
];

/// The same for groups of settings, by the prefix of their names.
const FAMILIES: [(&str, Release); 7] = [
    ("BPFIPFrag", Release::Master),
    ("BPFMaglev", Release::V3_32),
    ("FlowLogs", Release::V3_30),
    ("Istio", Release::V3_32),
    ("LocalSubnetL2Reachability", Release::Master),
    ("NFTablesFlowTable", Release::Master),
    ("Nftables", Release::V3_29),
];

fn first_line_of_setting(name: &str) -> Release {
    match SETTINGS.binary_search_by_key(&name, |(setting, _)| setting) {
        Ok(at) => SETTINGS[at].1,
        Err(_) => FAMILIES.iter().find(|(start, _)| name.starts_with(start)).map_or(Release::V3_26, |(_, line)| *line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calico::syncers::BGP;

    fn old(line: Release, kind: &str, namespace: &str, name: &str) -> Option<String> {
        let key = Policy { kind, namespace, name }.key();
        match spelling(FELIX, line, &key) {
            Spelling::Other(key) => Some(key.to_string()),
            Spelling::None => None,
            Spelling::Same => panic!("{key} has a kind"),
        }
    }

    /// From the answers of 3.31.7, 3.29.7 and 3.28.5.
    #[test]
    fn old_policies_are_named_as_their_typhas_do() {
        let cases = [
            ("GlobalNetworkPolicy", "", "default.x", "default", "default.x"),
            ("GlobalNetworkPolicy", "", "x", "default", "x"),
            ("GlobalNetworkPolicy", "", "sec.x", "sec", "sec.x"),
            ("GlobalNetworkPolicy", "", "knp.default.x", "default", "knp.default.x"),
            ("GlobalNetworkPolicy", "", "knp.other.x", "knp", "knp.other.x"),
            ("GlobalNetworkPolicy", "", "ossg.default.x", "default", "ossg.default.x"),
            ("GlobalNetworkPolicy", "", "kanp.adminnetworkpolicy.x", "adminnetworkpolicy", "kanp.adminnetworkpolicy.x"),
            ("NetworkPolicy", "ns", "sec.x", "sec", "ns%2fsec.x"),
            ("KubernetesNetworkPolicy", "ns", "x.y", "default", "ns%2fknp.default.x.y"),
        ];
        for (kind, namespace, name, tier, full) in cases {
            let expected = |tier: &str| Some(format!("/calico/v1/policy/tier/{tier}/policy/{full}"));
            for line in [Release::V3_29, Release::V3_30, Release::V3_31] {
                assert_eq!(old(line, kind, namespace, name), expected(tier), "{line} {kind} {name}");
            }
            assert_eq!(old(Release::V3_28, kind, namespace, name), expected("default"), "{kind} {name}");
            let modern = Policy { kind, namespace, name }.key();
            assert_eq!(spelling(FELIX, Release::V3_32, &modern), Spelling::Same);
        }
        let staged = [
            ("StagedGlobalNetworkPolicy", "", "sec.x", "sec/policy/staged:sec.x"),
            ("StagedNetworkPolicy", "ns", "sec.x", "sec/policy/ns%2fstaged:sec.x"),
            ("StagedKubernetesNetworkPolicy", "ns", "x", "default/policy/ns%2fstaged:knp.default.x"),
            (
                "StagedKubernetesNetworkPolicy",
                "ns",
                "knp.default.x",
                "default/policy/ns%2fstaged:knp.default.knp.default.x",
            ),
        ];
        for (kind, namespace, name, key) in staged {
            let expected = Some(format!("/calico/v1/policy/tier/{key}"));
            assert_eq!(old(Release::V3_30, kind, namespace, name), expected);
            assert_eq!(old(Release::V3_29, kind, namespace, name), None, "it would be enforced");
        }
        assert_eq!(old(Release::V3_31, "KubernetesClusterNetworkPolicy", "", "x"), None);
        let baseline = "kbanp.baselineadminnetworkpolicy.x";
        assert!(
            old(Release::V3_30, "GlobalNetworkPolicy", "", baseline)
                .unwrap()
                .contains("tier/baselineadminnetworkpolicy/")
        );
        assert!(old(Release::V3_29, "GlobalNetworkPolicy", "", baseline).unwrap().contains("tier/kbanp/"));
    }

    #[test]
    fn agents_receive_the_keys_that_their_line_knows() {
        let known_since = [
            ("/calico/v1/policy/tier/default/metadata", Release::V3_29),
            ("/calico/v1/policy/profile/kns.default/rules", Release::V3_26),
            ("/calico/resources/v3/projectcalico.org/bgppeers/p", Release::V3_30),
            ("/calico/resources/v3/projectcalico.org/livemigrations/ns/p", Release::V3_32),
            ("/calico/resources/v3/projectcalico.org/felixconfigurations/by-selector", Release::V3_32),
            ("/calico/resources/v3/projectcalico.org/nodes/n", Release::V3_26),
            ("/calico/v1/config/LogSeverityScreen", Release::V3_26),
            ("/calico/v1/config/BPFConnectTimeLoadBalancingEnabled", Release::V3_26),
            ("/calico/v1/config/BPFConnectTimeLoadBalancing", Release::V3_27),
            ("/calico/v1/host/n/config/NFTablesMode", Release::V3_29),
            ("/calico/v1/host/n/config/NftablesMarkMask", Release::V3_29),
            ("/calico/v1/config/FlowLogsGoldmaneServer", Release::V3_30),
            ("/calico/v1/config/NFTablesFlowTableOffload", Release::Master),
            ("/calico/v1/host/n/bird_ip", Release::V3_26),
        ];
        for (key, first) in known_since {
            for line in Release::ALL {
                let expected = if line >= first { Spelling::Same } else { Spelling::None };
                assert_eq!(spelling(FELIX, line, key), expected, "{line} {key}");
                assert_eq!(spelling(BGP, line, key), Spelling::Same, "other syncers have the same keys");
            }
        }
        assert!(SETTINGS.is_sorted(), "for the search");
    }

    #[test]
    fn of_two_policies_with_one_old_key_that_of_kubernetes_counts() {
        let key = "/calico/v1/policy/tier/default/policy/ns%2fknp.default.x";
        let kinds: Vec<Key> = sources(Release::V3_31, key);
        let expected =
            ["/calico/v1/policy/KubernetesNetworkPolicy/ns/x", "/calico/v1/policy/NetworkPolicy/ns/knp.default.x"];
        assert_eq!(kinds.iter().map(Key::as_str).collect::<Vec<_>>(), expected);
        assert_eq!(
            sources(Release::V3_31, "/calico/v1/policy/tier/other/policy/ns%2fknp.default.x"),
            [],
            "another tier"
        );
    }

    proptest::proptest! {
        /// The way back from any old key finds its policy.
        #[test]
        fn every_old_key_leads_back_to_its_policy(
            kind in 0..6_usize,
            name in "(knp\\.default\\.|staged:|kanp\\.adminnetworkpolicy\\.|ossg\\.|sec\\.)?[a-z.%]{1,6}",
            line in 0..6_usize,
        ) {
            let kinds = [
                ("GlobalNetworkPolicy", ""), ("NetworkPolicy", "ns"), ("KubernetesNetworkPolicy", "ns"),
                ("StagedGlobalNetworkPolicy", ""), ("StagedNetworkPolicy", "ns"), ("StagedKubernetesNetworkPolicy", "ns"),
            ];
            let (kind, namespace) = kinds[kind];
            let (line, policy) = (Release::ALL[line], Policy { kind, namespace, name: &name });
            if let Some(old) = policy.old_key(line) {
                proptest::prop_assert!(sources(line, &old).contains(&policy.key()), "{old}");
            }
        }
    }
}
