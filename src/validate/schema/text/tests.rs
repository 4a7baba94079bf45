use serde_json::json;

use super::*;

fn remarks(text: &str, is_json: bool) -> Vec<String> {
    let documents = read(text.as_bytes(), is_json).expect("it can be read");
    let all = documents.iter().flat_map(|document| document.remarks.iter().map(move |remark| (document, remark)));
    all.map(|(document, remark)| format!("{} {}", document.position(&remark.path), remark.line())).collect()
}

#[test]
fn fields_are_found_in_yaml() {
    let text = "a:\n  b:\n    - c: 1\n      d: x\n    - e\n  f: {g: 2, h: [3, 4]}\n---\n# next\nz: 1\n";
    let documents = read(text.as_bytes(), false).expect("YAML");
    assert_eq!(documents[0].value, json!({"a": {"b": [{"c": 1, "d": "x"}, "e"], "f": {"g": 2, "h": [3, 4]}}}));
    for (pointer, expected) in [
        ("", "1:1"),
        ("/a", "1:1"),
        ("/a/b", "2:3"),
        ("/a/b/0", "3:7"),
        ("/a/b/0/d", "4:7"),
        ("/a/b/1", "5:7"),
        ("/a/f/h/1", "6:20"),
        ("/a/f/none/x", "6:3"),
    ] {
        assert_eq!(documents[0].position(pointer).to_string(), expected, "{pointer}");
    }
    assert_eq!(documents[1].position("/z").to_string(), "9:1");
}

#[test]
fn fields_are_found_in_json() {
    let text = " {\"a\": {\"b\": [{\"c\": 1},\n \"x}\\\"\", 2], \"d/e\": null}}\n{\"z\": 1}";
    let documents = read(text.as_bytes(), true).expect("JSON");
    assert_eq!(documents.len(), 2);
    for (pointer, expected) in [
        ("", "1:2"),
        ("/a", "1:3"),
        ("/a/b", "1:9"),
        ("/a/b/0/c", "1:16"),
        ("/a/b/1", "2:2"),
        ("/a/b/2", "2:10"),
        ("/a/d~1e", "2:14"),
        ("/a/d~1e/x", "2:14"),
        ("/a/b/9", "1:9"),
    ] {
        assert_eq!(documents[0].position(pointer).to_string(), expected, "{pointer}");
    }
    assert_eq!(documents[1].position("/z").to_string(), "3:2");
}

#[test]
fn odd_texts_are_remarked_with_their_place() {
    for (text, expected) in [
        ("a: 1\nb:\n  c: 2\n  c: 3\n", "4:3 error duplicate-key /b/c: the mapping has this key twice"),
        ("a: yes\n", "1:1 warning ambiguous /a: yes counts as true"),
        ("a:\n  - off\n", "2:5 warning ambiguous /a/0: off counts as false"),
        ("on: 1\n", "1:1 warning ambiguous /on: the key on is true for kubectl"),
        ("a: 0777\n", "1:1 warning ambiguous /a: the number begins with 0 and counts as octal, 511"),
        ("a:\n  1: x\n", "2:3 warning key-not-text /a/1: the key is a number"),
    ] {
        let found = remarks(text, false);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}, not {expected}");
    }
    assert_eq!(remarks("a: \"yes\"\nb: 'no'\nc: 0\nd: 0.5\ne: \"0777\"\nf: true\ng: |\n  yes\n", false), [""; 0]);
    let found = remarks("{\"a\": 1,\n \"a\": 2}", true);
    assert!(found[0].starts_with("2:2 error duplicate-key /a"), "{found:?}");
}

#[test]
fn merged_keys_are_not_there_twice() {
    let text = "base: &b {x: 1, z: 2}\nmore:\n  <<: *b\n  z: 3\n";
    let documents = read(text.as_bytes(), false).expect("YAML");
    assert_eq!((&documents[0].value["more"], documents[0].remarks.len()), (&json!({"x": 1, "z": 3}), 0));
}

#[test]
fn unreadable_texts_say_where_and_why() {
    for (text, is_json, place, reason) in [
        ("a: [1\nb: 2\n", false, "2:", ""),
        ("{\"a\": }", true, "1:7", "expected value"),
        ("\n\n {\"a\" 1}", true, "3:", "expected `:`"),
    ] {
        let error = read(text.as_bytes(), is_json).expect_err("it is broken");
        let at = error.position.map(|at| at.to_string()).unwrap_or_default();
        assert!(at.starts_with(place) && error.reason.contains(reason), "{text:?}: {error:?}");
    }
    assert!(read(b"a: \xff", false).unwrap_err().reason.contains("UTF-8"));
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    assert!(read(deep.as_bytes(), true).unwrap_err().reason.contains("64"), "the limit is named");
    assert!(read(deep.as_bytes(), false).unwrap_err().reason.to_lowercase().contains("depth"), "the limit is named");
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g"].iter().zip(["a", "b", "c", "d", "e", "f"]) {
        bomb.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 10].join(",")));
    }
    let reason = read(bomb.as_bytes(), false).unwrap_err().reason;
    assert!(reason.contains("alias") || reason.contains("anchor"), "{reason}");
}
