//! Keys that only agents of some lines are told of: a pipeline carries them beside all others, under names that no key on the wire has.
//!
//! The ordinary content of a cache is that which Calico's development branch sends. Where a released line's agents need another key, or
//! another value under the same key, and it cannot be made of the ordinary content, the processor emits it *aside*: under the name
//! of the lines and the key that it stands for, such as `~3.26-3.32/calico/v1/host/n/bird_ip`. The snapshot cache keeps these
//! apart; [`crate::dialect`] puts them in their place.

use super::Key;
use super::release::{Release, Releases};

/// Node addresses, and the form of profiles: all releases.
pub const RELEASED: Releases = Releases { first: Release::V3_26, last: Release::V3_32 };

/// Fields and keys that 3.32 has given up.
pub const OLD: Releases = Releases { first: Release::V3_26, last: Release::V3_31 };

/// AdminNetworkPolicy.
pub const ADMIN_POLICIES: Releases = Releases { first: Release::V3_29, last: Release::V3_31 };

/// BaselineAdminNetworkPolicy.
pub const BASELINE_ADMIN_POLICIES: Releases = Releases { first: Release::V3_30, last: Release::V3_31 };

/// All stretches of lines for which there is something aside. For one line and key at most one of them has something.
pub const ALL: [Releases; 4] = [RELEASED, OLD, ADMIN_POLICIES, BASELINE_ADMIN_POLICIES];

/// No key on the wire begins with this.
const MARK: char = '~';

/// The name under which a key of these lines is carried.
#[must_use]
pub fn key(lines: Releases, wire_key: &str) -> Key {
    format!("{MARK}3.{}-3.{}{wire_key}", lines.first.minor(), lines.last.minor()).into()
}

/// Whether a key is one that is carried aside.
#[must_use]
pub fn is_aside(key: &str) -> bool {
    key.starts_with(MARK)
}

/// Whether the same key may be in a cache and aside, so that the line decides which of the two counts: pools do.
#[must_use]
pub fn may_shadow(wire_key: &str) -> bool {
    wire_key.starts_with("/calico/v1/ipam/")
}

/// The lines that a key is for and the key that it stands for, if it is carried aside.
#[must_use]
pub fn split(key: &str) -> Option<(Releases, &str)> {
    let (lines, _) = key.strip_prefix(MARK)?.split_once('/')?;
    let wire_key = &key[MARK.len_utf8() + lines.len()..];
    let (first, last) = lines.split_once('-')?;
    Some((Releases { first: first.parse().ok()?, last: last.parse().ok()? }, wire_key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_for_whom_it_is() {
        let wire_key = "/calico/v1/host/n-1/bird_ip";
        for lines in ALL {
            let key = key(lines, wire_key);
            assert!(is_aside(&key));
            assert_eq!(split(&key), Some((lines, wire_key)));
        }
        assert_eq!(key(RELEASED, wire_key).as_str(), "~3.26-3.32/calico/v1/host/n-1/bird_ip");
        assert_eq!((is_aside(wire_key), split(wire_key)), (false, None));
    }
}
