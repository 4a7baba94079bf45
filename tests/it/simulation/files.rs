//! The content of the datastore as files, for runs whose servers read a folder.
//!
//! The folder driver reads on the blocking pool; simulated time stands still meanwhile, so a scan takes none. Servers are told by
//! the script when to read, and hear of changes by real file events besides: in this, and only this, a seed is not repeated.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bulrush::datastore::file::FileConfig;
use bulrush::datastore::{Event, Kind};
use tempfile::TempDir;

/// Objects of a kind that nobody wants. A reload that deletes most of a folder is held until somebody confirms it, and these
/// always stay.
const BALLAST: usize = 200;

/// A folder, gone when the last clone is.
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

    /// How a server reads it.
    pub(super) fn config(&self) -> FileConfig {
        FileConfig { quiet: Duration::from_millis(50), ..FileConfig::new(self.path()) }
    }

    /// Brings the files up to date, each at once and whole, wherever the folder is now.
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
                // There may be none: not everything that is deleted was there.
                Event::Delete { id, .. } => drop(fs::remove_file(file(&id.name))),
                Event::Malformed(malformed) => panic!("the script has no such thing as {malformed:?}"),
            }
        }
    }

    /// The folder is not there for a time, or it is back.
    pub(super) fn set_away(&self, away: bool) {
        let (here, there) = (self.path(), self.away());
        // It may be where it should be already.
        let _ = if away { fs::rename(here, there) } else { fs::rename(there, here) };
    }
}
