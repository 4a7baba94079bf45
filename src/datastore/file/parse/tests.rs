//! Files, and the resources that they turn into.

use proptest::prelude::*;

use super::*;
use crate::calico::catalog::catalog;
use crate::calico::kinds;
use crate::model::yaml::MAX_ALIASED_NODES;

fn parse_file(name: &str, bytes: &[u8]) -> Result<Vec<Resource>, ParseError> {
    parse(Path::new(name), bytes, &catalog(None))
}

fn yaml(text: &str) -> Result<Vec<Resource>, ParseError> {
    parse_file("x.yaml", text.as_bytes())
}

fn names(resources: &[Resource]) -> Vec<String> {
    resources.iter().map(|resource| resource.identity.to_string()).collect()
}

const POOL: &str = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/8\n";

#[test]
fn documents_and_lists_are_unrolled() {
    let text = format!(
        "# comment\n---\n{POOL}---\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {{name: ns}}\n- {{apiVersion: v1, kind: List, items: [{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: ns}}}}]}}\n---\napiVersion: projectcalico.org/v3\nkind: TierList\nitems:\n- metadata: {{name: t}}\n"
    );
    let resources = yaml(&text).unwrap();
    assert_eq!(
        names(&resources),
        ["IPPool.projectcalico.org a", "Namespace ns", "Pod ns/p", "Tier.projectcalico.org t"]
    );
    assert!(resources[0].may_be_of(&kinds::IP_POOL.into()));
    assert!(resources[1].may_be_of(&kinds::NAMESPACE.into()));
    assert!(resources[3].may_be_of(&kinds::TIER.into()));
    assert_eq!(resources[3].dialect, Dialect::V3);
    assert_eq!(yaml("").unwrap(), []);
    assert_eq!(yaml("# nothing\n---\n").unwrap(), []);
    assert_eq!(yaml("apiVersion: v1\nkind: List\nitems: []\n").unwrap(), []);
}

#[test]
fn both_groups_of_calico_are_one_identity_in_two_dialects() {
    let v3 = yaml(POOL).unwrap().remove(0);
    let v1 = yaml(&POOL.replace("projectcalico.org/v3", "crd.projectcalico.org/v1")).unwrap().remove(0);
    assert_eq!(v3.identity, v1.identity);
    assert_eq!((v3.dialect, v1.dialect), (Dialect::V3, Dialect::CrdV1));
    assert_ne!(v3.digest, v1.digest);
    assert!(v1.may_be_of(&kinds::IP_POOL.into()) && v3.may_be_of(&kinds::IP_POOL.into()));
    assert!(yaml(&POOL.replace("/v3", "/v4")).is_err());
}

#[test]
fn the_digest_is_of_the_value_and_not_of_its_spelling() {
    let a = yaml(POOL).unwrap().remove(0);
    let json = br#"{"kind": "IPPool", "spec": {"cidr": "10.0.0.0/8"},
        "metadata": {"resourceVersion": "99", "name": "a"}, "apiVersion": "projectcalico.org/v3"}"#;
    let b = parse_file("x.json", json).unwrap().remove(0);
    assert_eq!((a.digest, &a.body), (b.digest, &b.body));
    let c = yaml(&POOL.replace("10.0", "10.1")).unwrap().remove(0);
    assert_ne!(a.digest, c.digest);
}

#[test]
fn objects_carry_our_version() {
    let object = yaml(POOL).unwrap().remove(0).object(&Revision::from("7"), Path::new("x.yaml"));
    let value: Value = serde_json::from_slice(&object.body).unwrap();
    assert_eq!(value["metadata"]["resourceVersion"], "7");
    assert_eq!(value["metadata"]["name"], "a");
    assert_eq!(value["spec"]["cidr"], "10.0.0.0/8");
    assert_eq!(&*object.revision, "7");
}

#[test]
fn namespaces_follow_the_scope() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n";
    assert_eq!(names(&yaml(pod).unwrap()), ["Pod default/p"]);
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, namespace: oops}\n";
    assert_eq!(names(&yaml(node).unwrap()), ["Node n1"]);
    let other = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: t1, namespace: x}\n";
    assert_eq!(names(&yaml(other).unwrap()), ["Thing.example.org x/t1"]);
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let text = format!("{POOL}  a: yes\n  b: 0644\n  c: '0644'\n  d: 1e3\n  e: 2024-01-02T03:04:05Z\n  f: ~\n  8: x\n");
    let object = yaml(&text).unwrap().remove(0).object(&Revision::from("1"), Path::new("x.yaml"));
    let value: Value = serde_json::from_slice(&object.body).unwrap();
    let spec = &value["spec"];
    assert_eq!((&spec["a"], &spec["b"], &spec["c"]), (&Value::from(true), &Value::from(0o644), &Value::from("0644")));
    assert_eq!((&spec["e"], &spec["f"], &spec["8"]), (&"2024-01-02T03:04:05Z".into(), &Value::Null, &"x".into()));
    assert_eq!(spec["d"].as_f64(), Some(1000.0));
    let error = yaml(&POOL.replace("name: a", "name: n")).unwrap_err();
    assert!(error.reason.contains("quotes"), "{error:?}");
    assert!(yaml(&format!("{POOL}  x: .inf\n")).is_err());
}

#[test]
fn another_version_of_a_kind_is_not_listed() {
    let old = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: p}\n";
    assert!(!yaml(old).unwrap()[0].may_be_of(&kinds::K8S_CLUSTER_NETWORK_POLICY.into()));
    assert!(yaml(&old.replace("alpha1", "alpha2")).unwrap()[0].may_be_of(&kinds::K8S_CLUSTER_NETWORK_POLICY.into()));
}

#[test]
fn errors_name_the_line_and_the_reason() {
    for (text, line, reason) in [
        ("a: [1\nb: 2\n", Some(2), ""),
        ("apiVersion: v1\nkind: Pod\n  metadata: x\n", Some(3), ""),
        ("---\nx: 1\n", Some(2), "apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}\n", Some(1), "kind is missing"),
        ("apiVersion: v1\nkind: Pod\n", Some(1), "metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", Some(1), "metadata.name is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 12}\n", Some(1), "quotes"),
        ("apiVersion: 1\nkind: Pod\nmetadata: {name: a}\n", Some(1), "apiVersion is not a text"),
        ("just text\n", Some(1), "no mapping"),
        ("apiVersion: v1\nkind: PodList\nitems: 3\n", Some(1), "no list"),
        ("apiVersion: v1\nkind: PodList\nitems: [{metadata: {}}]\n", Some(1), "item 1 of PodList"),
        ("a: 1\na: 2\n", Some(2), "duplicate"),
    ] {
        let error = yaml(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}: {error:?}");
        assert!(error.reason.contains(reason), "{text:?}: {error:?}");
    }
    let error = parse_file("x.json", b"{\"a\":1}\n{\"b\":").unwrap_err();
    assert_eq!(error.line, Some(2));
}

#[test]
fn bombs_are_refused() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let deep = "[".repeat(100_000);
    let nested = format!("{}1", "a:\n ".repeat(50));
    for bomb in [laughs.as_str(), deep.as_str(), nested.as_str(), "? ".repeat(5_000).as_str()] {
        assert!(yaml(bomb).is_err());
    }
    assert!(parse_file("x.json", deep.as_bytes()).is_err());
    assert!(parse_file("x.yaml", b"a: \xff\xfe").is_err());
    let mut lists = "{apiVersion: v1, kind: Pod, metadata: {name: a}}".to_owned();
    for _ in 0..6 {
        lists = format!("{{apiVersion: v1, kind: List, items: [{lists}]}}");
    }
    assert!(yaml(&lists).unwrap_err().reason.contains("nested"));
}

#[test]
fn aliases_are_taken_within_reason() {
    let file = |uses: usize| {
        let uses = vec!["*a"; uses].join(", ");
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nx: &a [one, two, three]\ny: [{uses}]\n")
    };
    assert_eq!(yaml(&file(1_000)).unwrap().len(), 1);
    let refused = yaml(&file(MAX_ALIASED_NODES / 4)).unwrap_err();
    assert!(refused.line.is_some() && refused.reason.contains("alias"), "{refused:?}");
}

#[test]
fn names_of_files_decide() {
    for (name, read) in
        [("a.yaml", true), ("b.yml", true), ("c.json", true), ("d.txt", false), ("e", false), ("f.yaml~", false)]
    {
        assert_eq!(is_resource_file(Path::new(name)), read, "{name}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse_file("x.yaml", &bytes);
        let _ = parse_file("x.json", &bytes);
    }

    #[test]
    fn no_yaml_like_text_makes_it_panic(text in "[-a-c:{}\\[\\]&*!|>?,'\"# \n]{0,200}") {
        let _ = yaml(&text);
    }
}
