//! Schemas and samples that nobody here wrote, against the validation library: Istio's CRDs, its samples, the valid and invalid objects of its own
//! tests, and the Gateway API's CRDs. They are Go modules, which `tests/run` downloads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bulrush::model::finding::{BAD_VALUE, Finding, Findings, MISSING_FIELD, REPEATED, RULE_BROKEN, WRONG_TYPE};
use bulrush::validate::schema::load::unroll;
use bulrush::validate::schema::metadata::kind_of;
use bulrush::validate::schema::node::{Additional, Node};
use bulrush::validate::schema::{Library, RULE_FAILED, Schema, text};
use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::need::{Program, need};

/// Findings about Istio's valid objects, and the reason why Bulrush differs: the file, the finding's path, the reason.
const DIFFERENT: [(&str, &str, &str); 1] = [(
    "serviceentry-valid.yaml",
    "/spec/addresses/1",
    "[1.2.3.4, 001:db8::] without quotes: a colon before a bracket makes a mapping in YAML 1.2, and is a letter for Go's reader",
)];

fn corpora() -> Option<PathBuf> {
    need(Program::Corpora)
}

fn load(path: PathBuf) -> Library {
    Library::load(&[path]).unwrap_or_else(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("schemas that do not compile:\n{}", lines.join("\n"))
    })
}

fn istio(corpora: &Path) -> Library {
    load(corpora.join("istio-api/kubernetes/customresourcedefinitions.gen.yaml"))
}

fn gateway(corpora: &Path) -> Library {
    load(corpora.join("gateway-api/config/crd/experimental"))
}

/// The rules in CEL of a schema, and how many of them compare with the old object.
fn rules(node: &Node) -> (usize, usize) {
    let mut sum = (node.rules.len(), node.rules.iter().filter(|rule| rule.transition).count());
    let additional = match &node.additional {
        Additional::Schema(inner) => Some(&**inner),
        _ => None,
    };
    for inner in node.properties.values().chain(node.items.as_deref()).chain(additional) {
        let below = rules(inner);
        sum = (sum.0 + below.0, sum.1 + below.1);
    }
    sum
}

fn all_rules(library: &Library) -> (usize, usize, usize) {
    let mut sum = (0, 0, 0);
    for known in library.kinds() {
        for version in &known.versions {
            if let Some(Schema::Structural(node)) = library.schema(known.group, version, known.kind) {
                let found = rules(node);
                sum = (sum.0 + 1, sum.1 + found.0, sum.2 + found.1);
            }
        }
    }
    sum
}

fn yaml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            yaml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path);
        }
    }
    found.sort();
}

fn all_findings(library: &Library, object: &Value, old: Option<&Value>) -> Vec<Finding> {
    let mut findings = Findings::up_to(1000);
    assert!(library.check_into(object, old, &mut findings), "there is a schema");
    findings.into_vec()
}

#[test]
fn every_rule_of_istio_and_of_the_gateway_api_compiles() {
    let Some(corpora) = corpora() else { return };
    let istio = istio(&corpora);
    assert_eq!(
        (istio.kinds().count(), all_rules(&istio)),
        (15, (33, 398, 0)),
        "kinds, (versions, rules, transition rules)"
    );
    let (_, rules, transitions) = all_rules(&gateway(&corpora));
    assert!(rules > 300, "{rules}");
    assert_eq!(transitions, 3);
}

#[test]
fn istios_samples_are_valid() {
    let Some(corpora) = corpora() else { return };
    let library = istio(&corpora);
    let (mut files, mut checked, mut wrong) = (Vec::new(), 0, Vec::new());
    yaml_files(&corpora.join("istio/samples"), &mut files);
    for path in files {
        // Three of the files are templates.
        let Ok(documents) = text::read(&std::fs::read(&path).expect("a file"), false) else { continue };
        for document in &documents {
            unroll(&document.value, &mut String::new(), 0, &mut |_, object| {
                let (group, version, kind) = kind_of(object);
                if library.schema(group, version, kind).is_none() {
                    return;
                }
                checked += 1;
                let found = all_findings(&library, object, None);
                wrong.extend(found.iter().map(|finding| format!("{}: {}", path.display(), finding.line())));
            });
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(checked, 67);
}

#[test]
fn istios_valid_objects_pass_and_its_invalid_ones_are_refused_for_its_reasons() {
    let Some(corpora) = corpora() else { return };
    let library = istio(&corpora);
    let (mut files, mut valid, mut invalid, mut wrong) = (Vec::new(), 0, 0, Vec::new());
    yaml_files(&corpora.join("istio/pkg/config/validation/testdata/crds"), &mut files);
    let mut different = BTreeSet::new();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        for mut document in text::read(&std::fs::read(&path).expect("a file"), false).expect("YAML") {
            let expected = document.value.as_object_mut().expect("an object").remove("_err");
            let found = all_findings(&library, &document.value, None);
            let lines: Vec<String> = found.iter().map(Finding::line).collect();
            let Some(expected) = expected.as_ref().and_then(Value::as_str) else {
                valid += 1;
                for (finding, line) in found.iter().zip(&lines) {
                    if DIFFERENT.iter().any(|(file, path, _)| *file == name && *path == finding.path) {
                        different.insert(format!("{name}{}", finding.path));
                    } else {
                        wrong.push(format!("{name} {}: {line}", document.position("")));
                    }
                }
                continue;
            };
            invalid += 1;
            if !found.iter().any(|finding| agrees(expected, finding)) {
                wrong.push(format!("{name} {}: expected {expected}, found {lines:#?}", document.position("")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // One more document is all comments.
    assert_eq!((valid, invalid, different.len()), (35, 76, DIFFERENT.len()));
}

/// Whether a finding says what the API server's message, or a part of it, says.
fn agrees(expected: &str, finding: &Finding) -> bool {
    let is_path = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".[]".contains(c));
    let (path, fault) = expected
        .split_once(": ")
        .or_else(|| expected.split_once(" in body "))
        .filter(|(path, _)| is_path(path.split(' ').next().unwrap_or_default()) && is_path(path))
        .unwrap_or(("", expected));
    let (path, fault) = match path.is_empty().then(|| expected.split_once(" in body ")).flatten() {
        Some((path, fault)) if is_path(path) => (path, fault),
        _ => (path, fault),
    };
    let pointer = Finding::of_field(BAD_VALUE, path, "").pointer();
    if !finding.pointer().ends_with(&pointer) {
        return false;
    }
    let text = finding.text();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match fault {
        // Go's words for a text that is no number; ours are those of the crate `cel`.
        _ if fault.contains("type conversion error") => finding.id == RULE_FAILED,
        _ if fault.contains("Required value") => finding.id == MISSING_FIELD,
        _ if fault.contains("Duplicate value") => finding.id == REPEATED,
        _ if fault.contains("Unsupported value") => finding.id == BAD_VALUE && says(&["one of"]),
        _ if fault.contains("must be of type") => [WRONG_TYPE, MISSING_FIELD].contains(&finding.id),
        _ if fault.contains("should match") => finding.id == BAD_VALUE && says(&["matches"]),
        _ if fault.contains("chars lon") => finding.id == BAD_VALUE && says(&["character"]),
        _ if fault.contains("should be at least") => finding.id == BAD_VALUE,
        _ if fault.contains("should have at least") => finding.id == BAD_VALUE && says(&["field"]),
        _ if fault.contains("greater than or equal to") => finding.id == BAD_VALUE && says(&["from"]),
        _ => match fault.strip_prefix("Invalid value").map(|rest| rest.rsplit(": ").next().unwrap_or_default()) {
            Some("") => true,
            Some(message) => says(&[message]),
            None => says(&[fault]),
        },
    }
}

#[test]
fn the_transition_rules_of_the_gateway_api_compare_with_the_old_object() {
    let Some(corpora) = corpora() else { return };
    let library = gateway(&corpora);
    let class = |version: &str, controller: &str| json!({"apiVersion": format!("gateway.networking.k8s.io/{version}"), "kind": "GatewayClass", "metadata": {"name": "a"}, "spec": {"controllerName": controller}});
    let mesh = |controller: &str| json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XMesh", "metadata": {"name": "a"}, "spec": {"controllerName": controller}});
    let pairs = [
        (class("v1", "a.example/x"), class("v1", "a.example/y")),
        (class("v1beta1", "a.example/x"), class("v1beta1", "a.example/y")),
        (mesh("a.example/x"), mesh("a.example/y")),
    ];
    for (old, new) in pairs {
        let errors = |old: Option<&Value>| -> Vec<String> {
            let found = all_findings(&library, &new, old);
            found.iter().filter(|finding| finding.id == RULE_BROKEN).map(Finding::pointer).collect()
        };
        assert_eq!(errors(None), [""; 0], "without an old object nothing changes");
        assert_eq!(errors(Some(&new)), [""; 0]);
        assert_eq!(errors(Some(&old)), ["/spec/controllerName"]);
    }
}

/// The verdicts of a real API server that differ, and the reason: file, number of the document in it, whether the server accepts it.
const OTHER_VERDICTS: [(&str, usize, bool, &str); 0] = [];

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_gives_the_same_verdicts() -> anyhow::Result<()> {
    let Some(corpora) = corpora() else { return Ok(()) };
    let Some(api) = ApiServer::start().await else { return Ok(()) };
    let rest = api.rest();
    let definitions = std::fs::read(corpora.join("istio-api/kubernetes/customresourcedefinitions.gen.yaml"))?;
    let mut plurals = BTreeMap::new();
    for document in text::read(&definitions, false).map_err(|errors| anyhow::anyhow!("{errors:?}"))? {
        let text = |pointer| document.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind, plural) = (text("/spec/group"), text("/spec/names/kind"), text("/spec/names/plural"));
        rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &document.value).await?;
        plurals.insert((group, kind), plural);
    }
    let library = istio(&corpora);
    let (mut files, mut compared, mut wrong, mut unseen) = (Vec::new(), 0, Vec::new(), OTHER_VERDICTS.len());
    yaml_files(&corpora.join("istio/pkg/config/validation/testdata/crds"), &mut files);
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let documents = text::read(&std::fs::read(&path)?, false).map_err(|errors| anyhow::anyhow!("{errors:?}"))?;
        for (index, mut document) in documents.into_iter().enumerate() {
            document.value.as_object_mut().expect("an object").remove("_err");
            let (group, version, kind) = kind_of(&document.value);
            let plural = &plurals[&(group.to_owned(), kind.to_owned())];
            let namespace = document.value.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
            let collection = format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}");
            crate::apiserver::crds::served_at(&rest, &collection).await?;
            let asked = format!("{collection}?dryRun=All&fieldValidation=Strict");
            let verdict = rest.create(&asked, &document.value).await;
            // A dry run in a namespace that is not there is refused for that alone.
            let verdict = verdict.or_else(|error| {
                let only_the_namespace =
                    error.to_string().contains("namespaces \"") && error.to_string().contains("not found");
                if only_the_namespace { Ok(Value::Null) } else { Err(error) }
            });
            let found = all_findings(&library, &document.value, None);
            compared += 1;
            if verdict.is_ok() == found.is_empty() {
                continue;
            }
            if OTHER_VERDICTS
                .iter()
                .any(|(file, at, accepts, _)| (*file, *at, *accepts) == (&name, index, verdict.is_ok()))
            {
                unseen -= 1;
                continue;
            }
            let ours: Vec<String> = found.iter().map(Finding::line).collect();
            wrong.push(format!(
                "{name} {index}: the server says {:?}, we say {ours:?}",
                verdict.err().map(|error| format!("{error:#}"))
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((compared, unseen), (111, 0), "documents, and differences that did not occur");
    Ok(())
}
