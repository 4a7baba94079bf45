//! Field order, omissions, nil against empty, custom types, and errors with their path.

use proptest::prelude::*;

use super::*;
use crate::model::strict::ReadError;

fn reencode(name: &str, json: &str, case: Case) -> Result<String, ReadError> {
    let mut out = Vec::new();
    decode(find(name).unwrap(), json.as_bytes(), case)?.write(&mut out);
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn fields_come_in_order_and_empty_ones_go() {
    for (name, json, expected) in [
        (
            "v3.BGPPeerSpec",
            r#"{"asNumber":"1.10","peerIP":"1.2.3.4","node":"","unknown":[{}],"filters":[],"ttlSecurity":0}"#,
            r#"{"peerIP":"1.2.3.4","asNumber":65546,"ttlSecurity":0}"#,
        ),
        ("v1.ServicePort", r#"{"port":80,"name":null}"#, r#"{"port":80,"targetPort":0}"#),
        (
            "v1.ServicePort",
            r#"{"port":80,"targetPort":"http","protocol":"TCP"}"#,
            r#"{"protocol":"TCP","port":80,"targetPort":"http"}"#,
        ),
        (
            "v1.EndpointSlice",
            r#"{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}}]}"#,
            r#"{"metadata":{},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}}],"ports":null}"#,
        ),
        (
            "v1.EndpointSlice",
            r#"{"endpoints":[],"ports":[]}"#,
            r#"{"metadata":{},"addressType":"","endpoints":[],"ports":[]}"#,
        ),
        (
            "v3.CalicoNodeStatusStatus",
            "{}",
            r#"{"lastUpdated":null,"agent":{"birdV4":{},"birdV6":{}},"bgp":{"numberEstablishedV4":0,"numberNotEstablishedV4":0,"numberEstablishedV6":0,"numberNotEstablishedV6":0},"routes":{}}"#,
        ),
        (
            "v3.Rule",
            r#"{"action":"Allow","source":{},"destination":{"nets":[]}}"#,
            r#"{"action":"Allow","destination":{}}"#,
        ),
        (
            "v3.Rule",
            r#"{"source":{"ports":[1,"2:3","http"]},"protocol":"TCP","notProtocol":6}"#,
            r#"{"action":"","protocol":"TCP","notProtocol":6,"source":{"ports":[1,"2:3","http"]}}"#,
        ),
        (
            "v1.ObjectMeta",
            r#"{"creationTimestamp":null,"labels":{"b":"2","a":"1"},"generation":0,"deletionGracePeriodSeconds":0}"#,
            r#"{"deletionGracePeriodSeconds":0,"labels":{"a":"1","b":"2"}}"#,
        ),
        (
            "v1.ObjectMeta",
            r#"{"creationTimestamp":"2024-01-01T02:00:00+02:00","deletionTimestamp":"2024-01-01T00:00:00Z"}"#,
            r#"{"creationTimestamp":"2024-01-01T00:00:00Z","deletionTimestamp":"2024-01-01T00:00:00Z"}"#,
        ),
        (
            "v1.ManagedFieldsEntry",
            r#"{"fieldsV1":{ "f:z":{}, "f:a":{"<":1} }}"#,
            "{\"fieldsV1\":{\"f:z\":{},\"f:a\":{\"\\u003c\":1}}}",
        ),
        (
            "v3.FelixConfigurationSpec",
            r#"{"iptablesRefreshInterval":"90s","failsafeInboundHostPorts":[],"bpfEnabled":null,"natPortRange":"1:2","bpfLogFilters":{}}"#,
            r#"{"iptablesRefreshInterval":"1m30s","failsafeInboundHostPorts":[],"natPortRange":"1:2","bpfLogLevel":"","bpfLogFilters":{}}"#,
        ),
    ] {
        assert_eq!(reencode(name, json, Case::Exact).as_deref(), Ok(expected), "{name} {json}");
    }
}

#[test]
fn bookkeeping_of_the_api_server_is_skipped_unread_and_kept_in_etcd() {
    let json = r#"{"metadata":{"name":"a","managedFields":[{"manager":"m"}],"uid":"u"}}"#;
    let lean = r#"{"metadata":{"name":"a","uid":"u"},"spec":{}}"#;
    for case in [Case::Exact, Case::FoldedLean] {
        assert_eq!(reencode("v3.BGPPeer", json, case).unwrap(), lean, "{case:?}");
    }
    let all = r#"{"metadata":{"name":"a","uid":"u","managedFields":[{"manager":"m"}]},"spec":{}}"#;
    assert_eq!(reencode("v3.BGPPeer", json, Case::Folded).unwrap(), all);
    // Unread: of the wrong type, and nested deeper than anything that is read may be.
    let deep = format!(r#"{{"metadata":{{"managedFields":{}7{}}}}}"#, "[".repeat(1000), "]".repeat(1000));
    assert_eq!(reencode("v3.BGPPeer", &deep, Case::Exact).unwrap(), r#"{"metadata":{},"spec":{}}"#);
    assert!(reencode("v3.BGPPeer", &deep, Case::Folded).is_err());
}

#[test]
fn names_are_folded_only_where_go_does() {
    let json = r#"{"PEERIP":"1.2.3.4"}"#;
    assert_eq!(reencode("v3.BGPPeerSpec", json, Case::Exact).unwrap(), "{}");
    assert_eq!(reencode("v3.BGPPeerSpec", json, Case::Folded).unwrap(), r#"{"peerIP":"1.2.3.4"}"#);
}

#[test]
fn errors_name_the_place() {
    for (name, json, path) in [
        ("v3.BGPPeer", r#"{"spec":{"filters":["a",7]}}"#, "spec.filters[1]"),
        ("v3.BGPPeer", r#"{"spec":{"filters":[["a"]]}}"#, "spec.filters[0]"),
        ("v3.BGPPeer", r#"{"spec":{"filters":{"a":"b"}}}"#, "spec.filters"),
        ("v3.BGPPeer", r#"{"spec":{"asNumber":-1}}"#, "spec.asNumber"),
        ("v3.BGPPeer", r#"{"metadata":{"labels":{"x":true}}}"#, "metadata.labels.x"),
        ("v3.BGPPeer", r#"{"metadata":{"creationTimestamp":"today"}}"#, "metadata.creationTimestamp"),
        ("v3.BGPPeer", r#"{"spec":{"ttlSecurity":256}}"#, "spec.ttlSecurity"),
        ("v3.BGPPeer", r#"{"spec":[]}"#, "spec"),
        ("v3.BGPConfiguration", r#"{"spec":{"listenPort":1.0}}"#, "spec.listenPort"),
        ("v3.BGPPeer", "[]", "."),
        ("v3.BGPPeer", "{} x", "."),
    ] {
        assert_eq!(reencode(name, json, Case::Exact).unwrap_err().path, path, "{json}");
    }
}

#[test]
fn the_table_is_complete() {
    let field = |name: &str, json: &str| {
        let schema = find(name).unwrap();
        &schema.fields[schema.index_of(json).unwrap()]
    };
    let interval = field("v3.FelixConfigurationSpec", "iptablesLockProbeInterval");
    let expected = (Some("IptablesLockProbeIntervalMillis"), true);
    assert_eq!((interval.config_name.as_deref(), interval.milliseconds), expected);
    assert_eq!(field("internalapi.NodeBGPSpec", "ipv4Address").validate, "omitempty,cidrv4");
}

proptest! {
    #[test]
    fn printing_is_stable(json in "\\{\"(spec|metadata|name)\":(\\{\\}|null|\\{\"(filters|labels|peerIP)\":(null|\\[\\]|\\{\\}|\"x\"|7)\\})\\}") {
        if let Ok(once) = reencode("v3.BGPPeer", &json, Case::Folded) {
            prop_assert_eq!(reencode("v3.BGPPeer", &once, Case::Folded).unwrap(), once);
        }
    }
}
