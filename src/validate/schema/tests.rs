use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Library;
use crate::model::finding::{Finding, Findings, MAX_FINDINGS};

/// A library with one kind, of this schema for `spec`.
fn library(spec: Value) -> Result<Library, Vec<(String, String)>> {
    let mut library = Library::empty();
    let root = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.a.example"},
        "spec": {"group": "a.example", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": root}}]},
    });
    library.add(&definition, "things.yaml").map(|_| library)
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "a.example/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "default"}, "spec": spec})
}

fn lines(library: &Library, spec: Value, old: Option<Value>) -> Vec<String> {
    let mut findings = Findings::up_to(1000);
    assert!(library.check_into(&thing(spec), old.map(thing).as_ref(), &mut findings));
    findings.as_slice().iter().map(Finding::line).collect()
}

/// Each row: a schema, a value that it accepts, one that it refuses, and the findings about that one.
fn table() -> Vec<(Value, Value, Value, &'static [&'static str])> {
    vec![
        (
            json!({"type": "object", "properties": {"match": {"type": "string"}}}),
            json!({"match": "x"}),
            json!({"mach": "x"}),
            &[r#"error unknown-field /spec/mach: did you mean "match"?"#],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"b": {"type": "integer"}}}}}),
            json!({"a": {"z": {"y": 1}, "b": 1}}),
            json!({"a": {"z": 1, "b": "1"}}),
            &[r#"error wrong-type /spec/a/b: "1" is not valid: a whole number: without quotes"#],
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({"a": ""}),
            json!({}),
            &["error missing-field /spec/a: it has to be set"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}, "c": {"type": "array", "items": {"type": "number"}}}}),
            json!({"a": "1", "b": true, "c": [1, 1.5]}),
            json!({"a": 1, "b": "true", "c": [[]]}),
            &[
                r#"error wrong-type /spec/a: "1" is not valid: a text: put it in quotes"#,
                r#"error wrong-type /spec/b: "true" is not valid: true or false: without quotes"#,
                r#"error wrong-type /spec/c/0: "a list of 0" is not valid: a number"#,
            ],
        ),
        (
            json!({"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "multipleOf": 3}),
            json!(9.0),
            json!(10),
            &[
                r#"error bad-value /spec: "10" is not valid: a number below 10"#,
                r#"error bad-value /spec: "10" is not valid: a multiple of 3"#,
            ],
        ),
        (
            json!({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^é+$"}),
            json!("ééé"),
            json!("x"),
            &[
                "error bad-value /spec: it has 1 character, and needs 2 characters at least",
                r#"error bad-value /spec: "x" is not valid: a text that matches ^é+$"#,
            ],
        ),
        (
            json!({"type": "string", "enum": ["ROUND_ROBIN", "RANDOM"]}),
            json!("RANDOM"),
            json!("RANDON"),
            &[r#"error bad-value /spec: "RANDON" is not valid: one of ROUND_ROBIN, RANDOM; did you mean "RANDOM"?"#],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b"]),
            json!(["a", "b", "a"]),
            &["error repeated /spec/2: the same as item 0: the list has each once"],
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}),
            json!([{"k": "a", "v": 1}, {"k": "b", "v": 1}]),
            json!([{"k": "a", "v": 1}, {"k": "a", "v": 2}]),
            &["error repeated /spec/1: the same by k as item 0: the list has each once"],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            json!("80%"),
            json!(true),
            &[r#"error wrong-type /spec: "true" is not valid: a whole number or a text"#],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"a": ""}),
            json!({"a": "", "b": ""}),
            &["error no-alternative /spec: only one of a, b may be set"],
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "not": {"required": ["c"]}}),
            json!({"a": ""}),
            json!({}),
            &["error no-alternative /spec: one of a, b has to be set"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"any": "x"}),
            json!({"any": "x", "other": 1}),
            &[
                "error bad-value /spec: it has 2 fields, and 1 at most are accepted",
                r#"error wrong-type /spec/other: "1" is not valid: a text: put it in quotes"#,
            ],
        ),
        (
            json!({"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer", "default": 5}}, "x-kubernetes-validations": [{"rule": "self.min <= self.max", "messageExpression": "'min is more than ' + string(self.max)", "fieldPath": ".min"}]}),
            json!({"min": 5}),
            json!({"min": 6}),
            &["error rule-broken /spec/min: min is more than 5"],
        ),
        (
            json!({"type": "object", "properties": {"in": {"type": "string"}, "a-b": {"type": "integer"}, "c_d": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.__in__ == 'x' && self.a__dash__b == self.c_d"}]}),
            json!({"in": "x", "a-b": 1, "c_d": 1}),
            json!({"in": "x", "a-b": 1, "c_d": 2}),
            &["error rule-broken /spec: failed rule: self.__in__ == 'x' && self.a__dash__b == self.c_d"],
        ),
        (
            json!({"type": "object", "properties": {"t": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"}, "n": {"type": "number"}}, "x-kubernetes-validations": [{"rule": "self.t > timestamp('2025-01-01T00:00:00Z') && self.d < duration('1h') && self.n < 2.5", "message": "late"}]}),
            json!({"t": "2026-01-01T00:00:00Z", "d": "1m", "n": 2}),
            json!({"t": "2024-01-01T00:00:00Z", "d": "1m", "n": 2}),
            &["error rule-broken /spec: late"],
        ),
        (
            json!({"type": "object", "properties": {"o": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}),
            json!({"o": {"apiVersion": "v1", "kind": "Pod", "spec": {}}}),
            json!({"o": {"apiVersion": "v1"}}),
            &["error missing-field /spec/o/kind: it has to be set"],
        ),
        // Rules see only values of the right form: one with a wrong type has one finding, not two.
        (
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.a > 0"}]}),
            json!({"a": 1}),
            json!({"a": "x"}),
            &[r#"error wrong-type /spec/a: "x" is not valid: a whole number: without quotes"#],
        ),
    ]
}

#[test]
fn schemas_accept_and_refuse_as_the_api_server_does() {
    for (schema, good, bad, expected) in table() {
        let library = library(schema.clone()).unwrap_or_else(|mistakes| panic!("{schema}: {mistakes:?}"));
        assert_eq!(lines(&library, good, None), [""; 0], "{schema}");
        assert_eq!(lines(&library, bad, None), expected, "{schema}");
    }
}

#[test]
fn rules_compare_with_the_old_object_if_there_is_one() {
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "maxItems": 9,
        "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "v may only grow"}]}}}});
    let library = library(keyed).expect("a schema");
    let (old, new) = (json!([{"k": "a", "v": 5}, {"k": "b", "v": 1}]), json!([{"k": "b", "v": 2}, {"k": "a", "v": 4}]));
    assert_eq!(lines(&library, new.clone(), None), [""; 0]);
    assert_eq!(
        lines(&library, new, Some(old)),
        ["error rule-broken /spec/1/v: v may only grow"],
        "items are compared by key"
    );
    let optional = json!({"type": "string", "x-kubernetes-validations": [{"rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true, "message": "fixed"}]});
    let library = self::library(optional).expect("a schema");
    assert_eq!(lines(&library, json!("x"), None), [""; 0]);
    assert_eq!(lines(&library, json!("x"), Some(json!("y"))), ["error rule-broken /spec: fixed"]);
}

#[test]
fn values_that_were_wrong_before_and_are_unchanged_are_left_alone() {
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 1}, "b": {"type": "string"}}});
    let library = library(schema).expect("a schema");
    let old = json!({"a": "long", "b": "x"});
    assert_eq!(lines(&library, json!({"a": "long", "b": "y"}), Some(old.clone())), [""; 0]);
    assert_eq!(lines(&library, json!({"a": "other", "b": "x"}), Some(old)).len(), 1);
}

#[test]
fn mistakes_of_a_schema_are_told_all_at_once_with_their_place() {
    let mistakes = library(json!({"type": "object", "properties": {
        "a": {"type": "strnig"},
        "b": {"type": "string", "pattern": "("},
        "c": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >"}, {"rule": "selv > 1"}, {"rule": "self > 1", "fieldPath": ".x"}]},
        "d": {"type": "string", "maxLenght": 3},
        "e": {},
        "f": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}},
        "g": {"type": "object", "properties": {"port": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": "self.prot > 1"}]},
    }}))
    .expect_err("it is full of mistakes");
    let place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let found: Vec<String> = mistakes
        .iter()
        .map(|(pointer, reason)| format!("{}: {reason}", pointer.strip_prefix(place).unwrap_or(pointer)))
        .collect();
    for expected in [
        "/a/type: type must be object, array, string, integer, number or boolean, not \"strnig\"",
        "/b/pattern: the pattern \"(\": ",
        "/c/x-kubernetes-validations/0: the rule \"self >\": ",
        "/c/x-kubernetes-validations/1: the rule \"selv > 1\": there is no variable \"selv\"",
        "/c/x-kubernetes-validations/2: the rule \"self > 1\": its fieldPath \".x\" names no field",
        "/d/maxLenght: \"maxLenght\" has no place in a structural schema; did you mean \"maxLength\"?",
        "/e: the type is missing",
        "/f/items/x-kubernetes-validations/0: the rule \"self == oldSelf\": oldSelf is not known",
        "/g/x-kubernetes-validations/0: the rule \"self.prot > 1\": there is no field \"prot\" at that place; did you mean \"port\"?",
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected}\nis not in\n{}", found.join("\n"));
    }
}

#[test]
fn limits_are_named_in_findings() {
    let items = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}, "x-kubernetes-validations": [{"rule": "self.l.all(x, self.l.exists_one(y, x == y))"}]});
    let library = library(items).expect("a schema");
    assert_eq!(lines(&library, json!({"l": ["a", "b"]}), None), [""; 0]);
    let many: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let found = lines(&library, json!({ "l": many }), None);
    assert!(
        found.len() == 1 && found[0].starts_with("error rule-too-costly /spec: ") && found[0].contains("10000000"),
        "{found:?}"
    );
    for (rule, limit) in [
        (format!("{}true{}", "(".repeat(100), ")".repeat(100)), "nested more than 24 deep"),
        (format!("true{}", " && true".repeat(1000)), "more than 400 operators"),
        (format!("'{}' == ''", "x".repeat(20_000)), "longer than 10000 bytes"),
    ] {
        let mistakes = self::library(json!({"type": "string", "x-kubernetes-validations": [{"rule": rule}]}))
            .expect_err("too large");
        assert!(mistakes[0].1.contains(limit), "{mistakes:?}");
    }
    let mut deep = json!({"type": "string"});
    for _ in 0..80 {
        deep = json!({"type": "array", "items": deep});
    }
    assert!(self::library(deep).expect_err("too deep")[0].1.contains("nested more than 64 deep"));
    let large = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let found = lines(&self::library(large).expect("a schema"), json!({"x": "y".repeat(1_600_000)}), None);
    assert!(found[0].starts_with("error too-large: ") && found[0].contains("1572864"), "{found:?}");
}

#[test]
fn rules_at_their_limits_stay_within_the_stack() {
    // 2 MiB are a worker's stack; so are they a test's.
    let long = |count: usize| {
        [
            format!("1{} > 0", "+1".repeat(count)),
            format!("{}true", "!".repeat(count)),
            format!("self{}", ".a".repeat(count)),
        ]
    };
    let nested = |count: usize| {
        [("(", ")"), ("[", "]"), ("f(", ")"), ("{1:", "}")]
            .map(|(open, close)| format!("{}1{} == 1", open.repeat(count), close.repeat(count)))
    };
    let mut evaluated = 0;
    for rule in long(25).into_iter().chain(long(398)).chain(nested(24)) {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": [{"rule": rule}]});
        if let Ok(library) = library(schema) {
            lines(&library, json!({}), None);
            evaluated += 1;
        }
    }
    assert!(evaluated >= 3, "{evaluated}");
}

#[test]
fn libraries_are_shared_by_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Library>();
}

#[test]
fn versions_and_scopes_are_checked() {
    let mut library = Library::empty();
    let version = |name: &str, served: bool| json!({"name": name, "served": served, "deprecated": name == "v1beta1", "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.a.example"},
        "spec": {"group": "a.example", "names": {"kind": "Thing", "plural": "things"}, "scope": "Cluster", "versions": [version("v1", true), version("v1beta1", true), version("v1alpha1", false)]},
    });
    library.add(&definition, "a.yaml").expect("a definition");
    assert!(library.add(&definition, "b.yaml").expect_err("it is there twice")[0].1.contains("a.yaml"));
    assert_eq!((library.scope("a.example", "Thing"), library.scope("a.example", "Other")), (Some(false), None));
    let known: Vec<_> = library.kinds().collect();
    assert_eq!(
        (known.len(), known[0].plural, &known[0].versions[..]),
        (1, Some("things"), &["v1", "v1alpha1", "v1beta1"][..])
    );
    let check = |version: &str, namespace: Option<&str>| -> Vec<String> {
        let object = json!({"apiVersion": format!("a.example/{version}"), "kind": "Thing", "metadata": {"name": "x", "namespace": namespace}});
        library.check(&object, None).as_slice().iter().map(Finding::line).collect()
    };
    assert_eq!(check("v1", None), [""; 0]);
    assert_eq!(check("v1beta1", None), ["warning deprecated /apiVersion: a.example/v1beta1 Thing is deprecated"]);
    assert_eq!(
        check("v1alpha1", None),
        [
            r#"error unknown-version /apiVersion: "v1alpha1" is not valid: one of v1, v1beta1: the kind has no other version"#
        ]
    );
    assert!(check("v1", Some("n"))[0].starts_with("error wrong-scope /metadata/namespace"));
}

#[test]
fn json_schemas_are_bound_to_kinds() {
    let mut library = Library::empty();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ConfigMap"}],
        "type": "object", "required": ["data"], "additionalProperties": false,
        "properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "data": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^\\d+$"}}},
    });
    library.add(&schema, "configmap.json").expect("a schema");
    let by_fields = json!({"properties": {"apiVersion": {"const": "a.example/v1"}, "kind": {"enum": ["Thing"]}}});
    library.add(&by_fields, "thing.json").expect("a schema");
    assert!(library.schema("a.example", "v1", "Thing").is_some());
    let object = |data: Value, more: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data, "dato": more});
    let check =
        |object: &Value| -> Vec<String> { library.check(object, None).as_slice().iter().map(Finding::line).collect() };
    let mut good = object(json!({"a": "1"}), Value::Null);
    good.as_object_mut().expect("an object").remove("dato");
    assert_eq!(check(&good), [""; 0]);
    let found = check(&object(json!({"a": "x", "b": 1}), json!(1)));
    for expected in [
        r#"error unknown-field /dato: did you mean "data"?"#,
        "error bad-value /data/a: ",
        "error wrong-type /data/b: ",
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{found:?}");
    }
    for (schema, reason) in [
        (json!({"$schema": "x", "properties": {}}), "does not say for which kind"),
        (
            json!({"x-kubernetes-group-version-kind": {"version": "v1", "kind": "A"}, "$ref": "https://a.example/b.json"}),
            "a.example",
        ),
        (json!({"x-kubernetes-group-version-kind": {"version": "v1", "kind": "A"}, "type": "strnig"}), "strnig"),
        (json!({"a": 1}), "neither"),
    ] {
        let mistakes = library.add(&schema, "x.json").expect_err("it is no schema");
        assert!(mistakes[0].1.contains(reason), "{mistakes:?}");
    }
}

#[test]
fn objects_without_a_schema_have_no_findings() {
    let findings = Library::empty().check(&json!({"apiVersion": "v1", "kind": "Secret"}), None);
    assert_eq!(findings, Findings::none());
}

/// The schema of the properties below.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let rules = json!([{"rule": "self.n >= 0 || self.l.all(x, x != 'bad')"}, {"rule": "!has(self.m) || self.m.all(k, self.m[k] != k)"}]);
    library(json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
        "n": {"type": "integer", "default": 1, "minimum": -5}, "l": {"type": "array", "default": [], "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "m": {"type": "object", "additionalProperties": {"type": "string"}}, "i": {"x-kubernetes-int-or-string": true},
        "r": {"type": "object", "nullable": true, "required": ["n"], "properties": {"n": {"type": "integer"}}},
    }}))
    .expect("a schema")
});

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z~/]{0,4}".prop_map(Value::from),
        Just(json!("bad")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[nlmir]|[a-z~/]{1,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_is_checked_within_bounds(spec in any_json(), old in any_json()) {
        let (object, old) = (thing(spec), thing(old));
        let findings = LIBRARY.check(&object, Some(&old));
        prop_assert!(findings.as_slice().len() <= MAX_FINDINGS);
        for finding in findings.as_slice() {
            prop_assert!(finding.path.is_empty() || finding.path.starts_with('/'));
        }
        // An object that replaces itself breaks no rule for values that it has not broken without.
        let again = LIBRARY.check(&object, Some(&object));
        prop_assert!(again.as_slice().len() <= LIBRARY.check(&object, None).as_slice().len());
    }

    #[test]
    fn any_text_as_a_rule_or_pattern_does_no_harm(text in "\\PC{0,40}|[a-z().\\[\\]{}+*&|<>=! '\"]{0,60}") {
        let _ = library(json!({"type": "string", "pattern": text.clone(), "x-kubernetes-validations": [{"rule": text}]}));
    }

    #[test]
    fn any_json_as_a_schema_does_no_harm(schema in any_json()) {
        let _ = library(schema.clone());
        let _ = Library::empty().add(&schema, "x");
    }
}
