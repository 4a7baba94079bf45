//! Reading the tree: which files there are, and what is in those that changed.
//!
//! Blocking I/O, run on the blocking pool. Fed by [`driver`](super::driver), feeds [`folder`](super::folder). A file that cannot
//! be read is reported as such and never as missing, because missing means deleted. A file that changes while it is read is not
//! taken at all. A file that looks exactly as when it was read is not read again ([`Seal`]).

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::parse::{Digest, ParseError, Resource, is_resource_file, parse};
use crate::datastore::catalog::Catalog;

/// Largest file that is read, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// Most files of one tree.
const MAX_FILES: usize = 50_000;
/// Deepest folder below the root.
const MAX_FOLDER_DEPTH: usize = 32;

/// In the folder itself: says that a held deletion is meant. Hidden, so that it is no file with resources.
pub(super) const CONFIRM_FILE: &str = ".bulrush-confirm-deletion";
/// Most of that file that is read, in bytes: a code and white space around it.
const MAX_CONFIRM_BYTES: u64 = 256;
/// Coarsest clock of a file system: FAT's.
const TICK: Duration = Duration::from_secs(2);
/// A folder that file systems make at their root, for root only.
const LOST_AND_FOUND: &str = "lost+found";

/// Which folder a path leads to: device and inode. Another one after a remount or a swapped symlink.
pub(super) type RootId = (u64, u64);

/// A file's nature.
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
        /// Their meaning.
        parsed: Result<Arc<[Resource]>, ParseError>,
    },
    /// It changed while it was read.
    Changing,
    /// It is there but cannot be read.
    Unreadable(String),
}

/// A file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// How it looked, before and after it was read, and how old its last change is by the clock of this machine; 0 if that is
    /// in the future. `None` if it could not be read, or changed meanwhile.
    pub(super) stamp: Option<(Stamp, Duration)>,
    /// `None`: the next look has to read it again.
    pub(super) seal: Option<Seal>,
    pub(super) read: FileRead,
}

/// A file as it was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Of its bytes.
    pub(super) digest: Digest,
    /// Its look at that time, if that tells its bytes.
    pub(super) seal: Option<Seal>,
}

/// The look of a file that tells that its bytes are those that were read. It has the time of the last change of anything about the file, which
/// no program can set. A file has none while that change is fresh: a further one in the same tick of the clock would not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    stamp: Stamp,
    changed: (i64, i64),
}

impl Seal {
    /// The look, however fresh the last change is.
    fn of(data: &Metadata) -> Self {
        Self { stamp: Stamp::of(data), changed: (data.ctime(), data.ctime_nsec()) }
    }

    /// The look of a file that is read at `now`.
    fn set(data: &Metadata, now: SystemTime) -> Option<Self> {
        let changed = u64::try_from(data.ctime()).ok().map(|at| SystemTime::UNIX_EPOCH + Duration::from_secs(at));
        // The second in which it changed began then.
        let age = now.duration_since(changed?).ok()?;
        (age >= TICK + Duration::from_secs(1)).then(|| Self::of(data))
    }
}

impl Found {
    fn unreadable(reason: String) -> Self {
        Self { stamp: None, seal: None, read: FileRead::Unreadable(reason) }
    }
}

/// A view of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    /// The folder, or why there is none.
    pub(super) root: Result<RootId, String>,
    /// The files by their path below the root.
    pub(super) files: BTreeMap<Arc<Path>, Found>,
    /// Folders (below the root; empty for the root itself) that could not be read whole, with the reason.
    pub(super) partial: Vec<(PathBuf, String)>,
    /// The text of [`CONFIRM_FILE`], if it is there.
    pub(super) confirmation: Option<String>,
    /// Changes with every touch of any file or folder.
    pub(super) fingerprint: u64,
}

/// Looks at the tree without reading files.
pub(super) fn fingerprint(root: &Path) -> u64 {
    Walk::run(root).map_or(0, |walk| walk.fingerprint())
}

/// Reads the tree, with the knowledge of the catalog. `known`: the files that were read before, which need not be parsed again.
pub(super) fn scan(root: &Path, catalog: &Catalog, known: &HashMap<Arc<Path>, Seen>) -> Scan {
    let (files, partial) = (BTreeMap::new(), Vec::new());
    let walk = match Walk::run(root) {
        Ok(walk) => walk,
        Err(reason) => return Scan { root: Err(reason), files, partial, confirmation: None, fingerprint: 0 },
    };
    let fingerprint = walk.fingerprint();
    let mut files = files;
    for (path, looked) in walk.files {
        let known = known.get(&*path);
        let found = match looked {
            Ok(data) if known.is_some_and(|known| known.seal == Some(Seal::of(&data))) => Found {
                stamp: Some((Stamp::of(&data), age(&data))),
                seal: Some(Seal::of(&data)),
                read: FileRead::Unchanged,
            },
            Ok(_) => match take(&root.join(&path), &path, catalog, known) {
                Some(found) => found,
                None => continue,
            },
            Err(reason) => Found::unreadable(reason),
        };
        files.insert(Arc::from(path), found);
    }
    let confirmation = read_confirmation(&root.join(CONFIRM_FILE));
    Scan { root: Ok(walk.root), files, partial: walk.partial, confirmation, fingerprint }
}

/// Reads a file, which is at `path` below the root. `None`: it is gone.
fn take(whole: &Path, path: &Path, catalog: &Catalog, known: Option<&Seen>) -> Option<Found> {
    Some(match read_file(whole) {
        Ok(Some((bytes, data))) => {
            let digest: Digest = Sha256::digest(&bytes).into();
            let read = if known.is_some_and(|known| known.digest == digest) {
                FileRead::Unchanged
            } else {
                let parsed = parse(path, &bytes, catalog).map(Arc::from);
                FileRead::Read { digest, empty: bytes.is_empty(), parsed }
            };
            Found { stamp: Some((Stamp::of(&data), age(&data))), seal: Seal::set(&data, SystemTime::now()), read }
        }
        Ok(None) => Found { stamp: None, seal: None, read: FileRead::Changing },
        // Gone between looking and reading: as if it had not been there.
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_gone(whole) => return None,
        Err(error) => Found::unreadable(error.to_string()),
    })
}

/// A confirmation that cannot be read confirms nothing.
fn read_confirmation(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_CONFIRM_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

fn is_gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The bytes of a file, and how it looked before it was read; `None` if it changed meanwhile.
fn read_file(path: &Path) -> io::Result<Option<(Vec<u8>, Metadata)>> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    // By its path: another file may be there now.
    let read = read_still(Stamp::of(&data), file, || fs::metadata(path).map(|data| Stamp::of(&data)))?;
    Ok(read.map(|bytes| (bytes, data)))
}

/// How old the last change of a file's bytes is by the clock of this machine; 0 if that is in the future.
fn age(data: &Metadata) -> Duration {
    data.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default()
}

/// The bytes, if what they are read from looks the same afterwards and has as many as it said.
fn read_still(
    before: Stamp,
    source: impl Read,
    after: impl FnOnce() -> io::Result<Stamp>,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(usize::try_from(before.size.min(MAX_FILE_BYTES)).unwrap_or(0));
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = MAX_FILE_BYTES / 1024 / 1024;
        return Err(io::Error::other(format!("the file is larger than {limit} MiB: split it")));
    }
    let still = after()? == before && bytes.len() as u64 == before.size;
    Ok(still.then_some(bytes))
}

struct Walk {
    root: RootId,
    files: BTreeMap<PathBuf, Result<Metadata, String>>,
    partial: Vec<(PathBuf, String)>,
    visited: HashSet<RootId>,
    marks: Vec<(PathBuf, Stamp)>,
}

/// How a file or folder looks from outside. Another one after every change that takes longer than a tick of the file system's
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    id: RootId,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// One for tests: another one for another content or touch.
    #[cfg(test)]
    pub(super) fn made_of(digest: &Digest, touched: i64) -> Self {
        Self {
            id: (1, 1),
            size: digest.iter().fold(0, |all, byte| (all << 8) ^ (all >> 56) ^ u64::from(*byte)),
            modified: (touched, 0),
        }
    }

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
            marks: vec![(PathBuf::new(), Stamp::of(&data))],
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
            if name.as_encoded_bytes().starts_with(b".") || (depth == 0 && name == LOST_AND_FOUND) {
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
                        self.marks.push((path.clone(), Stamp::of(&data)));
                        self.folder(root, &path, depth + 1);
                    }
                }
                Ok(data) if data.is_file() && is_resource_file(&path) => {
                    if self.files.len() >= MAX_FILES {
                        return self.partial.push((PathBuf::new(), format!("more than {MAX_FILES} files")));
                    }
                    self.marks.push((path.clone(), Stamp::of(&data)));
                    self.files.insert(path, Ok(data));
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

    fn look_at(root: &Path, known: &HashMap<Arc<Path>, Seen>) -> Scan {
        scan(root, &Catalog::default(), known)
    }

    fn read(found: Option<&Found>) -> &FileRead {
        &found.unwrap().read
    }

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
        let scan = look_at(root, &HashMap::new());
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
        let found = look_at(root, &HashMap::new());
        assert_eq!(paths(&found), ["a.yaml"]);
        fs::remove_file(root.join("..data")).unwrap();
        let dangling = look_at(root, &HashMap::new());
        assert!(matches!(read(dangling.files.values().next()), FileRead::Unreadable(_)), "{dangling:?}");
    }

    #[test]
    fn known_bytes_are_not_parsed_again_and_touching_shows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, POOL).unwrap();
        let first = look_at(dir.path(), &HashMap::new());
        let FileRead::Read { digest, .. } = read(first.files.values().next()) else { panic!("{first:?}") };
        let known = HashMap::from([(Arc::from(Path::new("a.yaml")), Seen { digest: *digest, seal: None })]);
        File::options().append(true).open(&path).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let second = look_at(dir.path(), &known);
        assert_eq!(read(second.files.values().next()), &FileRead::Unchanged);
        assert_ne!(first.fingerprint, second.fingerprint);
        assert_eq!(second.fingerprint, fingerprint(dir.path()));
    }

    #[test]
    fn a_file_that_looks_as_when_it_was_read_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, POOL).unwrap();
        let data = fs::metadata(&path).unwrap();
        assert_eq!(Seal::set(&data, SystemTime::now()), None, "its last change is fresh");
        let later = SystemTime::now() + TICK + Duration::from_secs(2);
        let seal = Seal::set(&data, later);
        assert_eq!(seal, Some(Seal::of(&data)));
        // The digest is that of other bytes: only reading would tell.
        let known = HashMap::from([(Arc::from(Path::new("a.yaml")), Seen { digest: [0; 32], seal })]);
        let look = || look_at(dir.path(), &known).files.into_values().next().unwrap();
        assert_eq!((look().read, look().seal), (FileRead::Unchanged, seal));
        // Other bytes of the same number, with the time of the last change set back: the clock of the file has gone on.
        let before = data.modified().unwrap();
        while Seal::of(&fs::metadata(&path).unwrap()).changed == Seal::of(&data).changed {
            fs::write(&path, POOL.replace("name: a", "name: b")).unwrap();
            File::options().append(true).open(&path).unwrap().set_modified(before).unwrap();
        }
        assert_eq!(Stamp::of(&fs::metadata(&path).unwrap()), Stamp::of(&data));
        assert!(matches!(look().read, FileRead::Read { .. }), "{:?}", look());
    }

    #[test]
    fn a_missing_folder_and_a_file_instead_are_no_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(look_at(&dir.path().join("no"), &HashMap::new()).root.is_err());
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        assert!(look_at(&file, &HashMap::new()).root.is_err());
    }

    #[test]
    fn a_huge_file_is_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("a.yaml")).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        let scan = look_at(dir.path(), &HashMap::new());
        let FileRead::Unreadable(reason) = read(scan.files.values().next()) else { panic!("{scan:?}") };
        assert!(reason.contains("32 MiB"), "{reason}");
    }

    #[test]
    fn what_changes_while_it_is_read_is_not_taken() {
        let before = Stamp { id: (1, 2), size: POOL.len() as u64, modified: (3, 4) };
        let read = |after: Stamp| read_still(before, POOL.as_bytes(), || Ok(after)).unwrap();
        assert_eq!(read(before).as_deref(), Some(POOL.as_bytes()));
        assert_eq!(read(Stamp { size: before.size + 1, ..before }), None, "it grew");
        assert_eq!(read(Stamp { modified: (3, 5), ..before }), None, "it was written");
        assert_eq!(read(Stamp { id: (1, 3), ..before }), None, "another file is there");
        let longer = Stamp { size: before.size + 1, ..before };
        assert_eq!(read_still(longer, POOL.as_bytes(), || Ok(longer)).unwrap(), None, "bytes are missing");
        let gone = read_still(before, POOL.as_bytes(), || Err(io::ErrorKind::NotFound.into()));
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_age_of_a_change_is_known_unless_it_is_in_the_future() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.yaml");
        fs::write(&path, POOL).unwrap();
        let age = |at: SystemTime| {
            File::options().append(true).open(&path).unwrap().set_modified(at).unwrap();
            look_at(dir.path(), &HashMap::new()).files.values().next().unwrap().stamp.unwrap().1
        };
        let hour = Duration::from_secs(3_600);
        assert!(age(SystemTime::now() - hour) >= hour);
        assert_eq!(age(SystemTime::now() + hour), Duration::ZERO);
    }

    #[test]
    fn a_confirmation_is_read_and_is_no_file_with_resources() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look_at(dir.path(), &HashMap::new()).confirmation, None);
        fs::write(dir.path().join(CONFIRM_FILE), " 0a1b\n").unwrap();
        let found = look_at(dir.path(), &HashMap::new());
        assert_eq!((found.confirmation.as_deref(), found.files.len()), (Some("0a1b"), 0));
    }

    #[test]
    fn what_a_file_system_makes_at_its_root_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["lost+found", "sub/lost+found"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
            fs::write(dir.path().join(folder).join("a.yaml"), POOL).unwrap();
        }
        assert_eq!(paths(&look_at(dir.path(), &HashMap::new())), ["sub/lost+found/a.yaml"]);
    }
}
