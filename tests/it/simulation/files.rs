//! The datastore's content as files, for runs whose servers read a folder.
//!
//! The folder driver reads on the blocking pool while simulated time stands still, so a scan takes no time. The script tells servers
//! when to read; real file events come in addition, and only these are not repeated by a seed.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulrush::calico::catalog::catalog;
use bulrush::datastore::file::FileConfig;
use bulrush::datastore::{Event, Kind};
use tempfile::TempDir;

/// Number of objects of an unused kind, which always stay: a reload that deletes most of a folder would be held until it is
/// confirmed.
const BALLAST: usize = 200;

/// A folder, removed with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Files(Arc<TempDir>);

impl Files {
    pub(super) fn new() -> io::Result<Self> {
        let files = Self(Arc::new(tempfile::tempdir()?));
        fs::create_dir(files.path())?;
        let ballast = (0..BALLAST)
            .map(|i| format!("---\n{{kind: Ballast, apiVersion: projectcalico.org/v3, metadata: {{name: b-{i}}}}}\n"));
        fs::write(files.path().join("ballast.yaml"), ballast.collect::<String>())?;
        Ok(files)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("folder")
    }

    fn away(&self) -> PathBuf {
        self.0.path().join("away")
    }

    /// A server's settings for this folder.
    pub(super) fn config(&self) -> FileConfig {
        FileConfig { quiet: Duration::from_millis(50), ..FileConfig::new(self.path(), catalog(None)) }
    }

    /// Brings the files up to date, each whole at once, also while the folder is away.
    pub(super) fn apply(&self, kind: &Kind, events: &[Event]) {
        let folder = if self.away().exists() { self.away() } else { self.path() };
        let file = |name: &str| folder.join(format!("{}-{name}.json", kind.name));
        for event in events {
            match event {
                Event::Put(object) => {
                    let draft = folder.join(".draft");
                    fs::write(&draft, &object.body).expect("a temporary folder can be written to");
                    fs::rename(draft, file(&object.id.name)).expect("a temporary folder can be written to");
                }
                // There may be no file: a deleted object need not have existed.
                Event::Delete { id, .. } => drop(fs::remove_file(file(&id.name))),
                Event::Malformed(malformed) => panic!("the script never makes {malformed:?}"),
            }
        }
    }

    /// Moves the folder away, or back.
    pub(super) fn set_away(&self, away: bool) {
        let (here, there) = (self.path(), self.away());
        // It may be in its place already.
        let _ = if away { fs::rename(here, there) } else { fs::rename(there, here) };
    }
}
