//! The files of the vectors: their folders and their content.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

/// The variable that names a folder of further vectors, which run after those of the repository.
const FURTHER: &str = "BULRUSH_VECTORS";

/// The parts of a folder of vectors, each a folder of its own.
const PARTS: [&str; 2] = ["data-model", "wire"];

/// Endings of the names of vectors' files: plain JSON, and compressed JSON for the repository's large files.
const ENDINGS: [&str; 2] = [".json", COMPRESSED];

/// Ending of the names of compressed files.
const COMPRESSED: &str = ".json.zst";

/// A file of vectors.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) content: Json,
    /// Whether it belongs to the repository, whose vectors are complete. A folder of further vectors may be incomplete.
    pub(crate) is_ours: bool,
}

/// All files of a part: the repository's, then the further ones.
///
/// # Panics
/// A folder or a file cannot be read, or a folder has no vectors; the message says what to do.
pub(crate) fn read(part: &str) -> Vec<File> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let further = std::env::var_os(FURTHER).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    read_from(&ours, further.as_deref(), part)
}

fn read_from(ours: &Path, further: Option<&Path>, part: &str) -> Vec<File> {
    let paths = vectors_in(&ours.join(part));
    assert!(
        !paths.is_empty(),
        "no vectors in {}: they are part of the repository, `git checkout -- tests/vectors` brings them back",
        ours.join(part).display()
    );
    let mut files: Vec<File> = paths.into_iter().map(|path| load(path, true)).collect();
    if let Some(further) = further {
        assert!(
            PARTS.iter().any(|part| !vectors_in(&further.join(part)).is_empty()),
            "{FURTHER} names {}, which holds no vectors: it needs {} files in a folder {}",
            further.display(),
            ENDINGS.join(" or "),
            PARTS.join(" or ")
        );
        files.extend(vectors_in(&further.join(part)).into_iter().map(|path| load(path, false)));
    }
    files
}

/// The paths of a folder's vectors, in a fixed order. None, if the folder is not there.
fn vectors_in(folder: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("cannot list the vectors in {}: {error}", folder.display()),
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display())).path())
        .filter(|path| ENDINGS.iter().any(|ending| has_ending(path, ending)))
        .collect();
    paths.sort();
    paths
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending))
}

fn load(path: PathBuf, is_ours: bool) -> File {
    let compressed = has_ending(&path, COMPRESSED);
    let read = std::fs::read(&path).and_then(|bytes| if compressed { zstd::decode_all(&*bytes) } else { Ok(bytes) });
    let text = read.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let content =
        serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{} is not JSON: {error}", path.display()));
    File { path, content, is_ours }
}

/// A field that has to be text.
pub(crate) fn text<'a>(json: &'a Json, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_else(|| panic!("no text {field:?} in {json}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with an empty file of vectors in each of these parts.
    fn folder(parts: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for part in parts {
            std::fs::create_dir(folder.path().join(part)).unwrap();
            std::fs::write(folder.path().join(part).join("a.json"), "[]").unwrap();
        }
        folder
    }

    #[test]
    fn further_vectors_are_added_and_may_lack_a_part() {
        let (ours, further) = (folder(&PARTS), folder(&["wire"]));
        let origins = |part: &str| -> Vec<bool> {
            read_from(ours.path(), Some(further.path()), part).iter().map(|file| file.is_ours).collect()
        };
        assert_eq!(origins("wire"), [true, false]);
        assert_eq!(origins("data-model"), [true]);
    }

    #[test]
    fn compressed_files_are_read_like_others_and_nothing_else_is() {
        let ours = folder(&["wire"]);
        let write = |name: &str, bytes: &[u8]| std::fs::write(ours.path().join("wire").join(name), bytes).unwrap();
        write("b.json.zst", &zstd::encode_all(&b"[1]"[..], 0).unwrap());
        write("README.md", b"no vector");
        write("c.zst", b"no vector either");
        let contents: Vec<Json> = read_from(ours.path(), None, "wire").into_iter().map(|file| file.content).collect();
        assert_eq!(contents, [serde_json::json!([]), serde_json::json!([1])]);
    }

    #[test]
    #[should_panic(expected = "b.json.zst")]
    fn a_compressed_file_that_is_damaged_is_named() {
        let ours = folder(&["wire"]);
        std::fs::write(ours.path().join("wire/b.json.zst"), "not compressed").unwrap();
        read_from(ours.path(), None, "wire");
    }

    #[test]
    #[should_panic(
        expected = "wire: they are part of the repository, `git checkout -- tests/vectors` brings them back"
    )]
    fn vectors_of_the_repository_that_are_missing_are_an_error() {
        read_from(folder(&["data-model"]).path(), None, "wire");
    }

    #[test]
    #[should_panic(
        expected = "which holds no vectors: it needs .json or .json.zst files in a folder data-model or wire"
    )]
    fn a_further_folder_without_vectors_is_an_error() {
        read_from(folder(&PARTS).path(), Some(folder(&[]).path()), "wire");
    }
}
