//! Why the content stays as it is, and how a deletion that may be an accident is confirmed: by the code of exactly its objects,
//! written into [`CONFIRM_FILE`].

use std::collections::BTreeSet;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::super::parse::Identity;
use super::super::scan::CONFIRM_FILE;
use super::super::status::FileError;
use super::files::SETTLE;

/// A reload may delete this many objects without being held, however few there are.
pub(super) const HOLD_ABOVE: usize = 20;
/// How long a held deletion must be the same before its confirmation counts: a folder that is copied, mounted or synchronised at the
/// moment has changed once more by then.
pub(super) const HOLD_TIME: Duration = Duration::from_secs(10);
/// Bytes of a digest that the code of a deletion shows, as twice as many hexadecimal digits. It guards against mistakes, not
/// against attackers: those could write the files as well.
const CODE_BYTES: usize = 6;

/// A held change, and the text that would confirm it.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Why the content stays as it is.
    pub(super) reason: Option<String>,
    suspect: Option<Suspect>,
    /// A confirmation that was there at a look at which it was not asked for.
    stale: Option<String>,
}

/// A deletion that has to be confirmed.
#[derive(Debug)]
struct Suspect {
    code: String,
    /// The time from which on the deletion would be exactly this one.
    since: Instant,
}

impl Hold {
    /// The folder is away: no deletion is asked for.
    pub(super) fn away(&mut self, reason: String) {
        self.suspect = None;
        self.reason = Some(reason);
    }

    /// Nothing is held any more.
    pub(super) fn over(&mut self) {
        self.reason = None;
        self.suspect = None;
    }

    /// A look begins that has found this confirmation.
    pub(super) fn looking(&mut self, given: Option<&str>) {
        if self.stale.as_deref() != given {
            self.stale = None;
        }
    }

    /// A look is over that has found this confirmation: what is wrong with it, if anything is.
    pub(super) fn looked(&mut self, given: Option<&str>) -> Option<FileError> {
        if let Some(given) = given
            && self.suspect.as_ref().is_none_or(|suspect| suspect.code != given)
        {
            self.stale = Some(given.to_owned());
        }
        self.stale.as_ref()?;
        let reason = "no deletion is held that this confirms, or it was here before: remove this file";
        Some(FileError { file: CONFIRM_FILE.to_owned(), line: None, reason: reason.to_owned() })
    }

    /// Whether the deletion of these objects may happen: `Err` if not, with the time of the next look that may change that. Once
    /// it has been asked for [`SETTLE`], it is held.
    pub(super) fn confirm(
        &mut self,
        gone: &BTreeSet<Identity>,
        what: &str,
        given: Option<&str>,
        now: Instant,
    ) -> Result<(), Option<Instant>> {
        let code = code_of(gone);
        let since = self.suspect.as_ref().filter(|suspect| suspect.code == code).map_or(now, |suspect| suspect.since);
        let counts = since + HOLD_TIME;
        let given = given == Some(code.as_str());
        if given && self.stale.is_none() && now >= counts {
            return Ok(());
        }
        let seconds = HOLD_TIME.as_secs();
        let stale =
            if given && self.stale.is_some() { " anew: it was there before, so remove the file first" } else { "" };
        // Before the objects have been missing for long enough it may be a file that is just being written.
        if now >= since + SETTLE {
            self.reason = Some(format!(
                "{what}, so nothing is changed until that is confirmed: if they are to go, write {code} into the file \
                 {CONFIRM_FILE} of the folder{stale}; it counts when the folder has been like this for {seconds} s"
            ));
        }
        self.suspect = Some(Suspect { code, since });
        let next = if now < since + SETTLE { Some(since + SETTLE) } else { given.then_some(counts) };
        Err(next.filter(|next| *next > now))
    }
}

/// The same for the same objects, in every replica.
fn code_of(objects: &BTreeSet<Identity>) -> String {
    let mut hash = Sha256::new();
    for Identity { group, kind, id } in objects {
        hash.update(format!("{group}\n{kind}\n{}\n{}\n", id.namespace, id.name));
    }
    hash.finalize().iter().take(CODE_BYTES).map(|byte| format!("{byte:02x}")).collect()
}
