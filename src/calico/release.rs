//! Lines of Calico's releases: all patches of one minor version, which send and understand the same.

use std::fmt;
use std::str::FromStr;

/// A line of Calico's releases that can be served.
///
/// Source of the facts about them: their Typhas, side by side with us. docs/operations.md lists the differences in
/// section "Agents of several releases".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Release {
    /// 3.26.
    V3_26 = 26,
    /// 3.27.
    V3_27,
    /// 3.28.
    V3_28,
    /// 3.29: the first with tiers.
    V3_29,
    /// 3.30: the first with staged policies.
    V3_30,
    /// 3.31: the last with policy keys that carry a tier.
    V3_31,
    /// 3.32: the first with policy keys that carry the kind.
    V3_32,
    /// Calico's development branch, and all newer lines.
    Master,
}

impl Release {
    /// All of them, oldest first.
    pub const ALL: [Self; 8] =
        [Self::V3_26, Self::V3_27, Self::V3_28, Self::V3_29, Self::V3_30, Self::V3_31, Self::V3_32, Self::Master];

    /// Its name, for example `v3.31`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V3_26 => "v3.26",
            Self::V3_27 => "v3.27",
            Self::V3_28 => "v3.28",
            Self::V3_29 => "v3.29",
            Self::V3_30 => "v3.30",
            Self::V3_31 => "v3.31",
            Self::V3_32 => "v3.32",
            Self::Master => "master",
        }
    }

    /// Whether its agents understand policy keys that carry the kind.
    #[must_use]
    pub fn has_modern_policy_keys(self) -> bool {
        self >= Self::V3_32
    }

    /// The minor version; for the development branch the next one to be released.
    #[must_use]
    pub fn minor(self) -> u8 {
        self as u8
    }

    /// A version for a build of this line, with a part that identifies the build.
    #[must_use]
    pub fn build(self, part: &str) -> String {
        format!("v3.{}.0-{part}", self.minor())
    }

    fn of_minor(minor: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|line| u64::from(line.minor()) == minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text names no line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no line of Calico that Bulrush knows: v3.26 to v3.32 (with or without v and patch), or master")]
pub struct UnknownRelease(pub String);

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(text: &str) -> Result<Self, UnknownRelease> {
        let unknown = || UnknownRelease(text.to_owned());
        if text == Self::Master.as_str() {
            return Ok(Self::Master);
        }
        match Version::of(text) {
            Version::Release(line) => Ok(line),
            Version::TooOld | Version::Unknown => Err(unknown()),
        }
    }
}

/// The line of a build, from its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// This line.
    Release(Release),
    /// Older than all lines.
    TooOld,
    /// Not told by the version: Calico's private builds have a bare commit as version, or nothing.
    Unknown,
}

impl Version {
    /// Reads a version as `git describe --tags` prints it: `v3.31.7`, `v3.31.0-0.dev-12-g0123abc`. The leading `v` and
    /// the patch may be missing; the text after the minor version is ignored.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = parts.next().and_then(|major| major.parse::<u32>().ok());
        // `31` of `31-dirty`.
        let minor =
            parts.next().map(|minor| &minor[..minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len())]);
        let minor = minor.and_then(|minor| minor.parse::<u64>().ok());
        match (major, minor) {
            // Versions of Calico begin with 1 at least.
            (Some(0) | None, _) | (_, None) => Self::Unknown,
            (Some(1 | 2), _) => Self::TooOld,
            (Some(3), Some(minor)) if minor < u64::from(Release::V3_26.minor()) => Self::TooOld,
            (Some(3), Some(minor)) => Self::Release(Release::of_minor(minor).unwrap_or(Release::Master)),
            (Some(_), _) => Self::Release(Release::Master),
        }
    }
}

/// A range of lines, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Releases {
    /// The oldest.
    pub first: Release,
    /// The newest.
    pub last: Release,
}

impl Releases {
    /// Whether the line is one of them.
    #[must_use]
    pub fn contain(self, line: Release) -> bool {
        (self.first..=self.last).contains(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_says_its_line() {
        for (text, expected) in [
            ("v3.31.7", Version::Release(Release::V3_31)),
            ("3.26", Version::Release(Release::V3_26)),
            ("v3.31.0-0.dev-12-g0123abc", Version::Release(Release::V3_31)),
            ("v3.32.0-0.dev-851-gdeadbeef-dirty", Version::Release(Release::V3_32)),
            ("v3.33.0-0.dev", Version::Release(Release::Master)),
            ("v3.40.1", Version::Release(Release::Master)),
            ("v4.0.0", Version::Release(Release::Master)),
            (" v3.32.1\n", Version::Release(Release::V3_32)),
            ("v3.25.2", Version::TooOld),
            ("v2.6.12", Version::TooOld),
            ("", Version::Unknown),
            ("test", Version::Unknown),
            ("5098a5d", Version::Unknown),
            ("5098a5dc334e118a4e43d42c7c253b2c91d2e1ab", Version::Unknown),
            ("v3", Version::Unknown),
            ("v3.x.1", Version::Unknown),
            ("0.1.0", Version::Unknown),
            ("v3.99999999999999999999999.1", Version::Unknown),
        ] {
            assert_eq!(Version::of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_is_named_as_people_write_it() {
        for line in Release::ALL {
            assert_eq!(line.as_str().parse(), Ok(line));
            assert_eq!(Version::of(&line.build("0.1.0")), Version::Release(line));
        }
        assert_eq!("3.31.7".parse(), Ok(Release::V3_31));
        let error = "v3.25".parse::<Release>().unwrap_err().to_string();
        assert!(error.contains("v3.26 to v3.32"), "{error}");
    }
}
