//! Reading the tree: which files there are, and what is in those that changed.
//!
//! Blocking I/O, run on the blocking pool. Fed by [`driver`](super::driver), feeds [`folder`](super::folder). What cannot
//! be read is reported as such and never as missing, because missing means deleted.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::parse::{Digest, ParseError, Resource, is_resource_file, parse};

/// Largest file that is read, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Most files of one tree.
const MAX_FILES: usize = 50_000;
/// Deepest folder below the root.
const MAX_FOLDER_DEPTH: usize = 32;

/// Which folder a path leads to: device and inode. Another one after a remount or a swapped symlink.
pub(super) type RootId = (u64, u64);

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileRead {
    /// The same bytes as last time.
    Unchanged,
    /// New bytes.
    Read {
        /// Of the bytes.
        digest: Digest,
        /// No bytes at all.
        empty: bool,
        /// What they mean.
        parsed: Result<Arc<[Resource]>, ParseError>,
    },
    /// It is there but cannot be read.
    Unreadable(String),
}

/// A view of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The folder, or why there is none.
    pub(super) root: Result<RootId, String>,
    /// The files by their path below the root.
    pub(super) files: BTreeMap<Arc<Path>, FileRead>,
    /// Folders (below the root; empty for the root itself) that could not be read whole, with the reason.
    pub(super) partial: Vec<(PathBuf, String)>,
    /// Changes with every touch of any file or folder.
    pub(super) fingerprint: u64,
}

/// Looks at the tree without reading files.
pub(super) fn fingerprint(root: &Path) -> u64 {
    Walk::run(root).map_or(0, |walk| walk.fingerprint())
}

/// Reads the tree. `known`: digests of what was read before, which need not be parsed again.
pub(super) fn scan(root: &Path, known: &HashMap<Arc<Path>, Digest>) -> Scan {
    let walk = match Walk::run(root) {
        Ok(walk) => walk,
        Err(reason) => {
            return Scan { root: Err(reason), files: BTreeMap::new(), partial: Vec::new(), fingerprint: 0 };
        }
    };
    let fingerprint = walk.fingerprint();
    let mut files = BTreeMap::new();
    for (path, found) in walk.files {
        let read = match found {
            Err(reason) => FileRead::Unreadable(reason),
            Ok(()) => match read_file(&root.join(&path)) {
                Ok(bytes) => {
                    let digest: Digest = Sha256::digest(&bytes).into();
                    if known.get(&*path) == Some(&digest) {
                        FileRead::Unchanged
                    } else {
                        let parsed = parse(&path, &bytes).map(Arc::from);
                        FileRead::Read { digest, empty: bytes.is_empty(), parsed }
                    }
                }
                // Gone between looking and reading: as if it had not been there.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_gone(&root.join(&path)) => continue,
                Err(error) => FileRead::Unreadable(error.to_string()),
            },
        };
        files.insert(Arc::from(path), read);
    }
    Scan { root: Ok(walk.root), files, partial: walk.partial, fingerprint }
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(usize::try_from(file.metadata()?.len().min(MAX_FILE_BYTES)).unwrap_or(0));
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES / 1024 / 1024;
        return Err(io::Error::other(format!("the file is larger than {limit} MiB: split it")));
    }
    Ok(bytes)
}

struct Walk {
    root: RootId,
    files: BTreeMap<PathBuf, Result<(), String>>,
    partial: Vec<(PathBuf, String)>,
    visited: HashSet<RootId>,
    marks: Vec<(PathBuf, Mark)>,
}

#[derive(Hash)]
struct Mark {
    id: RootId,
    size: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(data: &Metadata) -> Self {
        Self { id: (data.dev(), data.ino()), size: data.size(), modified: (data.mtime(), data.mtime_nsec()) }
    }
}

impl Walk {
    fn run(root: &Path) -> Result<Self, String> {
        let data = fs::metadata(root).map_err(|error| error.to_string())?;
        if !data.is_dir() {
            return Err("this is no folder".to_owned());
        }
        let id = (data.dev(), data.ino());
        let mut walk = Self {
            root: id,
            files: BTreeMap::new(),
            partial: Vec::new(),
            visited: HashSet::from([id]),
            marks: vec![(PathBuf::new(), Mark::of(&data))],
        };
        fs::read_dir(root).map_err(|error| error.to_string())?;
        walk.folder(root, Path::new(""), 0);
        Ok(walk)
    }

    fn folder(&mut self, root: &Path, below: &Path, depth: usize) {
        let entries = match fs::read_dir(root.join(below)) {
            Ok(entries) => entries,
            Err(error) => return self.partial.push((below.to_owned(), error.to_string())),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.partial.push((below.to_owned(), error.to_string())),
            };
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = below.join(&name);
            // Follows symlinks: a mounted ConfigMap consists of them.
            match fs::metadata(entry.path()) {
                Ok(data) if data.is_dir() => {
                    if depth >= MAX_FOLDER_DEPTH {
                        let reason = format!("folders are nested more than {MAX_FOLDER_DEPTH} deep");
                        self.partial.push((path, reason));
                    } else if self.visited.insert((data.dev(), data.ino())) {
                        self.marks.push((path.clone(), Mark::of(&data)));
                        self.folder(root, &path, depth + 1);
                    }
                }
                Ok(data) if data.is_file() && is_resource_file(&path) => {
                    if self.files.len() >= MAX_FILES {
                        return self.partial.push((PathBuf::new(), format!("more than {MAX_FILES} files")));
                    }
                    self.marks.push((path.clone(), Mark::of(&data)));
                    self.files.insert(path, Ok(()));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_gone(&entry.path()) => {}
                Err(error) if is_resource_file(&path) => {
                    self.files.insert(path, Err(error.to_string()));
                }
                Err(error) => self.partial.push((path, error.to_string())),
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut marks: Vec<_> = self.marks.iter().collect();
        marks.sort_unstable_by_key(|(path, _)| path);
        let mut hasher = DefaultHasher::new();
        for (path, mark) in marks {
            path.hash(&mut hasher);
            mark.hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const POOL: &str = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\n";

    fn paths(scan: &Scan) -> Vec<String> {
        scan.files.keys().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn finds_files_in_the_whole_tree_and_nothing_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        for file in ["a.yaml", "b/x.yml", "b/c/y.json", ".hidden.yaml", ".git/z.yaml", "notes.txt"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink(root, root.join("b/loop")).unwrap();
        let scan = scan(root, &HashMap::new());
        assert_eq!(paths(&scan), ["a.yaml", "b/c/y.json", "b/x.yml"]);
        assert_eq!(scan.partial, []);
    }

    #[test]
    fn follows_a_mounted_config_map() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("..2024_1")).unwrap();
        fs::write(root.join("..2024_1/a.yaml"), POOL).unwrap();
        symlink("..2024_1", root.join("..data")).unwrap();
        symlink("..data/a.yaml", root.join("a.yaml")).unwrap();
        let found = scan(root, &HashMap::new());
        assert_eq!(paths(&found), ["a.yaml"]);
        fs::remove_file(root.join("..data")).unwrap();
        let dangling = scan(root, &HashMap::new());
        assert!(matches!(dangling.files.values().next(), Some(FileRead::Unreadable(_))), "{dangling:?}");
    }

    #[test]
    fn known_bytes_are_not_parsed_again_and_touching_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, POOL).unwrap();
        let first = scan(dir.path(), &HashMap::new());
        let Some(FileRead::Read { digest, .. }) = first.files.values().next() else { panic!("{first:?}") };
        let known = HashMap::from([(Arc::from(Path::new("a.yaml")), *digest)]);
        File::options().append(true).open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let second = scan(dir.path(), &known);
        assert_eq!(second.files.values().next(), Some(&FileRead::Unchanged));
        assert_ne!(first.fingerprint, second.fingerprint);
        assert_eq!(second.fingerprint, fingerprint(dir.path()));
    }

    #[test]
    fn a_missing_folder_and_a_file_instead_are_no_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(scan(&dir.path().join("no"), &HashMap::new()).root.is_err());
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        assert!(scan(&file, &HashMap::new()).root.is_err());
    }

    #[test]
    fn a_huge_file_is_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("a.yaml")).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        let scan = scan(dir.path(), &HashMap::new());
        let Some(FileRead::Unreadable(reason)) = scan.files.values().next() else { panic!("{scan:?}") };
        assert!(reason.contains("32 MiB"), "{reason}");
    }
}
