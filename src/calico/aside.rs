//! Keys for agents of some lines of releases only: a pipeline carries them beside all others, under names that no key
//! on the wire has.
//!
//! The ordinary content of a cache is the content for Calico's development branch. Where agents of a released line need
//! another key, or another value under the same key, and it cannot be derived from the ordinary content, the processor
//! emits it *aside*: under the name of the lines and its key on the wire, such as
//! `~3.26-3.32/calico/v1/host/n/bird_ip`. The snapshot cache keeps these apart; [`crate::calico::dialect`] puts them in
//! their place.

use super::release::{Release, Releases};
use crate::model::{ASIDE_MARK, Key};

/// Node addresses, and the form of profiles: all releases.
pub const RELEASED: Releases = Releases { first: Release::V3_26, last: Release::V3_32 };

/// Fields and keys that 3.32 dropped.
pub const OLD: Releases = Releases { first: Release::V3_26, last: Release::V3_31 };

/// AdminNetworkPolicy.
pub const ADMIN_POLICIES: Releases = Releases { first: Release::V3_29, last: Release::V3_31 };

/// BaselineAdminNetworkPolicy.
pub const BASELINE_ADMIN_POLICIES: Releases = Releases { first: Release::V3_30, last: Release::V3_31 };

/// All ranges of lines with keys aside. For one line, a key is aside in at most one of them.
pub const ALL: [Releases; 4] = [RELEASED, OLD, ADMIN_POLICIES, BASELINE_ADMIN_POLICIES];

/// The name under which a key of these lines is carried.
#[must_use]
pub fn key(lines: Releases, wire_key: &str) -> Key {
    format!("{ASIDE_MARK}3.{}-3.{}{wire_key}", lines.first.minor(), lines.last.minor()).into()
}

/// Whether the same key may be in a cache and aside, and the line decides which of the two counts: true for pools.
#[must_use]
pub fn may_shadow(wire_key: &str) -> bool {
    wire_key.starts_with("/calico/v1/ipam/")
}

/// The lines and the wire key of a key that is carried aside.
#[must_use]
pub fn split(key: &str) -> Option<(Releases, &str)> {
    let (lines, _) = key.strip_prefix(ASIDE_MARK)?.split_once('/')?;
    let wire_key = &key[ASIDE_MARK.len_utf8() + lines.len()..];
    let (first, last) = lines.split_once('-')?;
    Some((Releases { first: first.parse().ok()?, last: last.parse().ok()? }, wire_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_aside_names_its_lines() {
        let wire_key = "/calico/v1/host/n-1/bird_ip";
        for lines in ALL {
            let key = key(lines, wire_key);
            assert!(key.is_aside());
            assert_eq!(split(&key), Some((lines, wire_key)));
        }
        assert_eq!(key(RELEASED, wire_key).as_str(), "~3.26-3.32/calico/v1/host/n-1/bird_ip");
        assert_eq!(split(wire_key), None);
    }
}
