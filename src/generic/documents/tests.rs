use proptest::prelude::*;

use super::*;
use crate::datastore::Dialect;

fn documents(form: Form, keep_last_good: bool) -> Documents {
    let patterns = ["v1/ConfigMap", "example.org/*", "bulrush.io/v1/Bytes"];
    let wanted = Wanted {
        patterns: patterns.iter().map(|text| text.parse().unwrap()).collect(),
        namespaces: ["default", "a"].into_iter().map(str::to_owned).collect(),
        labels: Labels::parse("!old").unwrap(),
        catalog: Arc::new(Catalog::of_kubernetes()),
    };
    Documents::new("/mesh/", form, wanted, 2, Choices { with_status: false, keep_last_good, check: None })
}

fn id(name: &str) -> ObjectId {
    ObjectId { namespace: "".into(), name: name.into() }
}

fn put(documents: &mut Documents, name: &str, body: &str) -> String {
    let object = Object {
        id: id(name),
        revision: "1".into(),
        dialect: Dialect::Etcd,
        body: body.to_owned().into(),
        place: None,
    };
    said(documents, ObjectEvent::Put(&object))
}

fn delete(documents: &mut Documents, name: &str) -> String {
    said(documents, ObjectEvent::Delete(&id(name), None))
}

/// The pairs of an event (`+` with a value, `-` without), and `!` if the document is reported.
fn said(documents: &mut Documents, event: ObjectEvent<'_>) -> String {
    let mut out = Vec::new();
    let result = documents.process(event, &mut out);
    let sign = |pair: &KvPair| if pair.value.is_some() { '+' } else { '-' };
    let mut words: Vec<String> = out.iter().map(|pair| format!("{}{}", sign(pair), pair.key.as_str())).collect();
    words.extend(result.err().map(|_| "!".to_owned()));
    words.join(" ").replace("/bulrush/v1/core/ConfigMap/", "").replace("/bulrush/v1/", "")
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n")
}

#[test]
fn a_document_says_which_object_it_is() {
    for (body, expected) in [
        (config_map("x").as_str(), "+default/x"),
        (r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"a"}}"#, "+a/x"),
        (r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"elsewhere"}}"#, ""),
        (r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"old":"y"}}}"#, ""),
        (r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#, ""),
        (r#"{"apiVersion":"example.org/v3","kind":"Garden","metadata":{"name":"x"}}"#, "+example.org/Garden/-/x"),
        (r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#, "!"),
        (r#"{"apiVersion":"v1","metadata":{"name":"x"}}"#, "!"),
        (r#"{"apiVersion":1,"kind":"ConfigMap","metadata":{"name":"x"}}"#, "!"),
        ("", "!"),
        ("{", "!"),
        ("[1, 2]", "!"),
        ("a: &a [*a]", "!"),
    ] {
        assert_eq!(put(&mut documents(Form::Objects, true), "x", body), expected, "{body}");
    }
    assert_eq!(put(&mut documents(Form::Raw, true), "x/y", "any text"), "+bulrush.io/Bytes/-/x/y");
}

#[test]
fn bombs_end_at_a_limit() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        bomb += &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(", "));
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [bomb, deep.clone(), format!("{{\"a\":{deep}}}")] {
        assert_eq!(put(&mut documents(Form::Objects, true), "x", &body), "!");
    }
}

#[test]
fn of_two_documents_with_one_object_the_first_counts_and_the_other_one_is_its_heir() {
    let mut documents = documents(Form::Objects, true);
    assert_eq!(put(&mut documents, "m", &config_map("x")), "+default/x");
    assert_eq!(put(&mut documents, "n", &config_map("x")), "!");
    assert_eq!(put(&mut documents, "m", &config_map("x")), "+default/x");
    assert_eq!(delete(&mut documents, "m"), "+default/x");
    // A document that becomes another object.
    assert_eq!(put(&mut documents, "n", &config_map("z")), "-default/x +default/z");
    assert_eq!(delete(&mut documents, "n"), "-default/z");
    assert_eq!(delete(&mut documents, "n"), "");
    assert!(documents.objects.is_empty() && documents.owners.is_empty() && documents.heirs.is_empty());
}

#[test]
fn an_unreadable_document_keeps_its_last_object_over_a_list_as_well() {
    let mut documents = documents(Form::Objects, true);
    assert_eq!(put(&mut documents, "m", &config_map("x")), "+default/x");
    assert_eq!(put(&mut documents, "m", "{"), "!");
    documents.on_resync();
    assert_eq!(put(&mut documents, "m", "{"), "!");
    documents.on_list_end(&mut Vec::new());
    assert_eq!(
        documents.keeps_last_good(&id("m")).map(|key| key.to_string()).as_deref(),
        Some("/bulrush/v1/core/ConfigMap/default/x")
    );
    assert_eq!(delete(&mut documents, "m"), "-default/x");
    let mut strict = self::documents(Form::Objects, false);
    assert_eq!(put(&mut strict, "m", &config_map("x")), "+default/x");
    assert_eq!(put(&mut strict, "m", "{"), "- !".replace("- ", "-default/x "));
}

proptest! {
    /// Each object that some good document has is there, whatever happened before, and no other one is.
    #[test]
    fn agents_hold_the_objects_of_the_documents(steps in proptest::collection::vec((0_u8..4, 0_u8..4), 0..60)) {
        let (mut documents, mut model, mut held) = (documents(Form::Objects, true), BTreeMap::new(), BTreeSet::new());
        for (document, object) in steps {
            let name = format!("d{document}");
            let mut out = Vec::new();
            if object == 0 {
                model.remove(&document);
                let _ = documents.process(ObjectEvent::Delete(&id(&name), None), &mut out);
            } else {
                model.insert(document, object);
                let body = config_map(&format!("o{object}")).into();
                let object = Object { id: id(&name), revision: "1".into(), dialect: Dialect::Etcd, body, place: None };
                let _ = documents.process(ObjectEvent::Put(&object), &mut out);
            }
            for pair in out {
                if pair.value.is_some() {
                    held.insert(pair.key.to_string());
                } else {
                    held.remove(pair.key.as_str());
                }
            }
            let expected: BTreeSet<String> =
                model.values().map(|object| format!("/bulrush/v1/core/ConfigMap/default/o{object}")).collect();
            prop_assert_eq!(&held, &expected);
        }
    }

    #[test]
    fn any_bytes_are_read_or_reported(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let object = Object { id: id("x"), revision: "1".into(), dialect: Dialect::Etcd, body: body.into(), place: None };
        let _ = documents(Form::Objects, true).process(ObjectEvent::Put(&object), &mut Vec::new());
    }
}
