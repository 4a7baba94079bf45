use std::fs;

use super::*;

const BAD_REVIEWS: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: reviews
spec:
  hosts: [reviews]
  http:
    - name: testers
      mach:
        - uri: {exact: /a}
      route:
        - destination: {host: reviews}
          weight: 101
        - destination: {host: ratings}
    - timeout: 0s
";
const OTHERS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: Settings}
data: {verbose: yes}
---
apiVersion: v1
kind: List
items:
- apiVersion: projectcalico.org/v3
  kind: BGPPeer
  metadata: {name: peer}
  spec: {peerIP: here}
- apiVersion: networking.istio.io/v1
  kind: VirtualService
  metadata: {name: reviews}
  spec: {hosts: [a], http: [{redirect: {}}]}
";

/// Runs the command in a folder with these files. Gives the exit status and the output, with names relative to the folder.
fn run_on(files: &[(&str, &str)], with: impl FnOnce(&Path, &mut ValidateArgs), colours: bool) -> (u8, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file");
    }
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh/schemas");
    let mut args = ValidateArgs {
        files: vec![folder.path().to_owned()],
        schemas: vec![schemas],
        output: Form::Text,
        fail_on: FailOn::Error,
    };
    with(folder.path(), &mut args);
    let mut out = Vec::new();
    let mut input = BAD_REVIEWS.as_bytes();
    let status = run(&args, Screen { width: None, colours }, &mut input, &mut out).expect("memory can be written to");
    let text = String::from_utf8(out).expect("UTF-8");
    (status, text.replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn every_mistake_is_shown_with_its_place() {
    let (status, text) = run_on(
        &[("reviews.yaml", BAD_REVIEWS), ("others.yaml", OTHERS), ("broken.json", "{\"a\": ")],
        |_, _| {},
        false,
    );
    assert_eq!(status, 1);
    insta::assert_snapshot!(text);
}

#[test]
fn json_is_for_programs() {
    let (status, text) = run_on(&[("reviews.yaml", BAD_REVIEWS)], |_, args| args.output = Form::Json, false);
    assert_eq!(status, 1);
    insta::assert_snapshot!(text);
}

#[test]
fn the_shipped_sample_is_clean() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh");
    let (status, text) = run_on(&[], |_, args| (args.files, args.schemas) = (vec![sample], Vec::new()), false);
    assert_eq!(
        (status, text.as_str()),
        (0, "5 files, 7 objects: no errors; 1 object without a schema: v1/ConfigMap\n")
    );
}

#[test]
fn schemas_among_the_files_count() {
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh/schemas");
    let (status, text) =
        run_on(&[("reviews.yaml", BAD_REVIEWS)], |folder, args| args.files = vec![folder.to_owned(), schemas], false);
    assert!(status == 1 && text.contains("did you mean \"match\"?"), "{text}");
    let bad = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: as.b.c}\nspec:\n  group: b.c\n  scope: Cluster\n  names: {kind: A, plural: as}\n  versions:\n  - name: v1\n    schema:\n      openAPIV3Schema:\n        type: objekt\n";
    let (status, text) = run_on(&[("crd.yaml", bad)], |_, _| {}, false);
    let expected = "crd.yaml:12:9 error bad-schema /spec/versions/0/schema/openAPIV3Schema/type: ";
    assert!(status == 1 && text.starts_with(expected), "{text}");
}

#[test]
fn standard_input_warnings_and_colours() {
    let (status, text) = run_on(&[], |_, args| args.files = vec!["-".into()], true);
    assert!(status == 1 && text.starts_with("standard input:9:7 \x1b[31merror\x1b[0m unknown-field"), "{text:?}");
    let odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {verbose: yes}\n";
    let (status, text) = run_on(&[("a.yaml", odd)], |_, _| {}, false);
    assert!(status == 0 && text.contains("a.yaml:4:8 warning ambiguous /data/verbose: yes counts as true"), "{text}");
    assert_eq!(run_on(&[("a.yaml", odd)], |_, args| args.fail_on = FailOn::Warning, false).0, 1);
    let (status, text) = run_on(&[], |folder, args| args.files = vec![folder.join("none.yaml")], false);
    assert!(status == 1 && text.starts_with("none.yaml error unreadable: the file cannot be read"), "{text}");
}
