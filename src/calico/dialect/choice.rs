//! The choice of a dialect for a client of Calico's protocol.
//!
//! Its hello says whether it understands policy keys that carry the kind, and the version of its build. Releases have a
//! number as version, private builds may have any text.
//!
//! | understands them | version | dialect |
//! | --- | --- | --- |
//! | yes | 3.33 or newer, also before its release | master |
//! | yes | any other | v3.32: the content for master, and node addresses, which master's agents ignore |
//! | no | 3.26 to 3.31 | that line |
//! | no | older than 3.26 | refused |
//! | no | any other | by the option `ServerUnknownVersionDialect`; `auto`: the line of the cluster's own Calico if it is one of these, else v3.31 |

use std::str::FromStr;

use crate::calico::release::{Release, UnknownRelease, Version};

/// The dialect of clients that do not understand today's policy keys and have a version without a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfUnknownVersions {
    /// The line of the cluster's own Calico if it is older than 3.32, else 3.31.
    #[default]
    Auto,
    /// Refusal, as by Typha.
    Refuse,
    /// This line.
    Release(Release),
}

impl OfUnknownVersions {
    /// The words that name no line.
    const AUTO: &str = "auto";
    const REFUSE: &str = "refuse";
}

impl FromStr for OfUnknownVersions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            Self::AUTO => Ok(Self::Auto),
            Self::REFUSE => Ok(Self::Refuse),
            line => match line.parse::<Release>() {
                Ok(line) if !line.has_modern_policy_keys() => Ok(Self::Release(line)),
                Ok(line) => Err(format!(
                    "{line}'s agents say in their hello that they understand its policy keys, so they need no choice"
                )),
                Err(UnknownRelease(_)) => Err(format!("{line:?} is neither auto nor refuse nor one of v3.26 to v3.31")),
            },
        }
    }
}

impl std::fmt::Display for OfUnknownVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str(Self::AUTO),
            Self::Refuse => f.write_str(Self::REFUSE),
            Self::Release(line) => line.fmt(f),
        }
    }
}

/// The line whose dialect a client gets.
///
/// # Errors
/// The reason for a refusal.
pub fn choose(
    modern_policy_keys: bool,
    version: &str,
    unknown: OfUnknownVersions,
    cluster: impl FnOnce() -> Option<Release>,
) -> Result<Release, String> {
    let of_version = Version::of(version);
    if modern_policy_keys {
        return Ok(if of_version == Version::Release(Release::Master) { Release::Master } else { Release::V3_32 });
    }
    match (of_version, unknown) {
        (Version::Release(line), _) if !line.has_modern_policy_keys() => Ok(line),
        (Version::TooOld, _) => {
            Err(format!("agents of Calico {version} are too old: those of 3.26 and newer are served"))
        }
        (_, OfUnknownVersions::Refuse) => Err(format!(
            "the agent does not understand policy keys that carry the kind, its version {version:?} is none of 3.26 to 3.31, and \
             ServerUnknownVersionDialect says refuse"
        )),
        (_, OfUnknownVersions::Release(line)) => Ok(line),
        (_, OfUnknownVersions::Auto) => {
            Ok(cluster().filter(|line| !line.has_modern_policy_keys()).unwrap_or(Release::V3_31))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hello_decides_or_else_the_option() {
        use OfUnknownVersions::{Auto, Refuse};
        let of = |modern, version, unknown, cluster| choose(modern, version, unknown, || cluster);
        for (modern, version, expected) in [
            (true, "v3.32.1", Release::V3_32),
            (true, "v3.33.0-0.dev-1-gabc", Release::Master),
            (true, "v4.1.0", Release::Master),
            (true, "", Release::V3_32),
            (true, "5098a5d", Release::V3_32),
            (true, "v3.31.7", Release::V3_32),
            (false, "v3.31.7", Release::V3_31),
            (false, "v3.26.5", Release::V3_26),
            (false, "v3.28.0-0.dev-3-gabc-dirty", Release::V3_28),
            (false, "v3.32.0-0.dev", Release::V3_31),
            (false, "", Release::V3_31),
        ] {
            assert_eq!(of(modern, version, Auto, None), Ok(expected), "{modern} {version}");
        }
        assert_eq!(of(false, "5098a5d", Auto, Some(Release::V3_29)), Ok(Release::V3_29));
        assert_eq!(of(false, "5098a5d", Auto, Some(Release::V3_32)), Ok(Release::V3_31));
        assert_eq!(
            of(false, "5098a5d", OfUnknownVersions::Release(Release::V3_27), Some(Release::V3_29)),
            Ok(Release::V3_27)
        );
        assert_eq!(of(false, "v3.30.1", Refuse, None), Ok(Release::V3_30), "a known version is served all the same");
        assert!(of(false, "", Refuse, None).unwrap_err().contains("ServerUnknownVersionDialect"));
        assert!(of(false, "v3.25.2", Auto, None).unwrap_err().contains("v3.25.2"));
    }

    #[test]
    fn the_option_is_a_word_or_a_line() {
        for (text, expected) in [
            ("auto", OfUnknownVersions::Auto),
            ("refuse", OfUnknownVersions::Refuse),
            ("v3.28", OfUnknownVersions::Release(Release::V3_28)),
        ] {
            assert_eq!(text.parse(), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
        for bad in ["v3.32", "master", "v3.25", "", "Auto"] {
            assert!(bad.parse::<OfUnknownVersions>().is_err(), "{bad}");
        }
    }
}
