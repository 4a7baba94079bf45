//! Canonical forms, refusals, and that printing and reading agree.

use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> Option<String> {
    Selector::parse(text).ok().map(|selector| selector.with_prefix("p.").to_string())
}

#[test]
fn prints_canonically() {
    for (text, expected) in [
        ("", "all()"),
        (" \t", "all()"),
        ("all( )", "all()"),
        ("global()", "global()"),
        ("has( a )", "has(p.a)"),
        ("a == 'it\"s'", "p.a == 'it\"s'"),
        ("a=='b'&&c!=\"d\"||e=='f'", "((p.a == \"b\" && p.c != \"d\") || p.e == \"f\")"),
        ("!!has(a)", "has(p.a)"),
        ("!!!has(a)", "!has(p.a)"),
        ("!(!has(a))", "!!has(p.a)"),
        ("((a == 'b'))", "p.a == \"b\""),
        ("a in {}", "p.a in {}"),
        ("a in {'x','x','b',}", "p.a in {\"b\", \"x\"}"),
        ("a notin{'b'}", "p.a not in {\"b\"}"),
        ("a not  in {'b'}", "p.a not in {\"b\"}"),
        (
            "a contains 'b' && c startswith 'd' && e ends with 'f'",
            "(p.a contains \"b\" && p.c starts with \"d\" && p.e ends with \"f\")",
        ),
        ("!(t in {'b','a'})", "!p.t in {\"a\", \"b\"}"),
        ("in in {'in'}", "p.in in {\"in\"}"),
        ("all() && has(x)", "(all() && has(p.x))"),
        ("has == 'x'", "p.has == \"x\""),
    ] {
        assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn refuses_text_outside_the_grammar() {
    for text in [
        "a ==",
        "a",
        "== 'b'",
        "a = 'b'",
        "a endsWith 'c'",
        "a inside {'b'}",
        "a == 'b",
        "(a == 'b'",
        "a == 'b')",
        "a in {'b'",
        "a in {b}",
        "has(a",
        "has()",
        "all() all()",
        "a == b",
        "a & b",
        "a == 'b' &&",
        "|| has(a)",
        "a\n== 'b'",
        "ä == 'b'",
        "!",
        "a in {,}",
        "'a' == 'b'",
        "a IN {'b'}",
    ] {
        assert_eq!(canonical(text), None, "{text}");
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| format!("{}has(a){}", "(".repeat(levels), ")".repeat(levels));
    assert!(Selector::parse(&deep(200)).is_ok());
    assert!(Selector::parse(&deep(100_000)).is_err());
}

#[test]
fn labels_longer_than_the_limit_are_refused() {
    assert!(Selector::parse(&format!("has({})", "a".repeat(512))).is_ok());
    assert!(Selector::parse(&format!("has({})", "a".repeat(513))).is_err());
}

fn node() -> impl Strategy<Value = Node> {
    let label = "[a-z][a-z./-]{0,6}";
    let values = proptest::collection::btree_set("[a-z \"]{0,4}", 0..3);
    let leaf = prop_oneof![
        Just(Node::All),
        Just(Node::Global),
        label.prop_map(Node::Has),
        (label, "[a-z ']{0,4}").prop_map(|(label, value)| Node::Compare(label, Operator::Equal, value)),
        (label, "[a-z]{0,4}").prop_map(|(label, value)| Node::Compare(label, Operator::StartsWith, value)),
        (label, values.clone()).prop_map(|(label, values)| Node::In(label, values)),
        (label, values).prop_map(|(label, values)| Node::NotIn(label, values)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Node::And),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Node::Or),
            inner
                .prop_filter("leading ! collapse", |node| !matches!(node, Node::Not(_)))
                .prop_map(|node| Node::Not(Box::new(node))),
        ]
    })
}

proptest! {
    #[test]
    fn printed_values_read_as_the_same(node in node()) {
        let selector = Selector(node);
        prop_assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector);
    }

    #[test]
    fn no_text_panics(text in "[a-z!&|(){}'\", =\\tä]{0,40}") {
        let _ = Selector::parse(&text);
    }
}
