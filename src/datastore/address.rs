//! Addresses of datastores and proxies in logs, errors, status and configuration: without what may be a password.

use std::fmt;

/// A text for people, with the user and password taken out of every address in it.
#[must_use]
pub fn without_user(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('@') {
        // Of several addresses, the one that the user belongs to. A password may contain anything, also what comes before this.
        let address = before.rfind(",http").map(|comma| comma + 1).or(shown.is_empty().then_some(0));
        let user = address.map_or(0, |address| before[address..].find("://").map_or(address, |at| address + at + 3));
        shown += &before[..user];
        shown += "***@";
        rest = after;
    }
    shown + rest
}

/// An address that no log shows with a user and password in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(pub String);

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_user(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", without_user(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_password_is_not_shown() {
        for (text, shown) in [
            ("https://host:6443/path", "https://host:6443/path"),
            ("https://user:hush@host:6443", "https://***@host:6443"),
            ("http://a:1,https://u:hu,sh@b:2,http://c", "http://a:1,https://***@b:2,http://c"),
            ("https://u:hush@a,https://v:hush@b", "https://***@a,https://***@b"),
            ("https://u:hu@sh://@host", "https://***@***@host"),
            ("u:hush@host:6443", "***@host:6443"),
            ("cannot ask https://u:hush@host: gone", "cannot ask https://***@host: gone"),
            ("", ""),
        ] {
            assert_eq!(without_user(text), shown);
            assert!(!format!("{0} {0:?}", Address(text.to_owned())).contains("hush"));
        }
    }
}
