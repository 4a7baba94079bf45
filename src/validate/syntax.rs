//! The shapes of names that Kubernetes and Calico accept. Pure functions of text.

/// Longest DNS subdomain.
const MAX_SUBDOMAIN: usize = 253;
/// Longest DNS label.
const MAX_DNS_LABEL: usize = 63;
/// Longest name part of a qualified name, and longest label value.
const MAX_LABEL_PART: usize = 63;

fn is_lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// One part of a DNS name: lower-case letters, digits and inner dashes.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_DNS_LABEL && is_dns_part(text)
}

fn is_dns_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| is_lower_or_digit(*byte))
        && bytes.last().is_some_and(|byte| is_lower_or_digit(*byte))
        && bytes.iter().all(|byte| is_lower_or_digit(*byte) || *byte == b'-')
}

/// A lower-case DNS subdomain of at most 253 characters, as object names are.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_dns_part)
}

/// Letters, digits and inner `-`, `_`, `.`; at most 63 characters.
fn is_label_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_PART
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A label key: a name, or a DNS subdomain, a slash and a name.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_part(name),
        None => is_label_part(text),
    }
}

/// A label value: empty, or like the name part of a key.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_part(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, subdomain, qualified, value) in [
            ("a", true, true, true),
            ("", false, false, true),
            ("a.b-c.0", true, true, true),
            ("A_b", false, true, true),
            ("a..b", false, true, true),
            ("-a", false, false, false),
            ("a.", false, false, false),
            ("x.io/A", false, true, false),
            ("X.io/a", false, false, false),
            ("x.io/", false, false, false),
            ("/a", false, false, false),
            ("a/b/c", false, false, false),
            ("ä", false, false, false),
            ("a b", false, false, false),
        ] {
            assert_eq!(
                (is_dns_subdomain(text), is_qualified_name(text), is_label_value(text)),
                (subdomain, qualified, value),
                "{text:?}"
            );
        }
        assert!(is_label_value(&"a".repeat(63)) && !is_label_value(&"a".repeat(64)));
        assert!(is_dns_subdomain(&"a".repeat(253)) && !is_dns_subdomain(&"a".repeat(254)));
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)) && !is_dns_label("a.b"));
    }
}
