//! The nearest spelling of a word that nobody knows, for "did you mean ...?".

/// Most typing errors in a word for which another one is suggested.
const MAX_DISTANCE: usize = 2;
/// Longest word that is compared, in bytes: the time grows with the square of it, and words come from outside.
const MAX_WORD: usize = 256;

/// The known word that is nearest to `word`, whatever the case: at most two letters are added, left out, changed or exchanged with
/// their neighbour, and less than half of them. Of equally near words the first in the alphabet.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_WORD {
        return None;
    }
    let wanted = word.to_lowercase();
    let close = |known: &&str| wanted.len().abs_diff(known.len()) <= MAX_DISTANCE;
    let distances = known.into_iter().filter(close).map(|known| (distance(&wanted, &known.to_lowercase()), known));
    let (distance, known) = distances.min()?;
    (distance <= MAX_DISTANCE && 2 * distance < known.len()).then_some(known)
}

/// The end of a message that suggests a word: `did you mean "x"?`; empty without a word.
#[must_use]
pub fn did_you_mean(word: Option<&str>) -> String {
    word.map(|word| format!("did you mean {word:?}?")).unwrap_or_default()
}

/// The number of bytes that are added, left out, changed or exchanged with their neighbour to make one short text of another.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let change = row[j] + usize::from(x != y);
            let mut best = change.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn typing_errors_are_recognised_and_other_words_are_not() {
        let known = ["match", "route", "mirror", "tls", "Kinds"];
        for (word, expected) in [
            ("mach", Some("match")),
            ("MATCH", Some("match")),
            ("matsch", Some("match")),
            ("kinds", Some("Kinds")),
            ("tsl", Some("tls")),
            ("tl", Some("tls")),
            ("tx", None),
            ("mtahc", Some("match")),
            ("amhct", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest("ab", ["aab", "aaa", "abb"]), Some("aab"));
        assert_eq!(did_you_mean(Some("x")), "did you mean \"x\"?");
    }

    proptest! {
        #[test]
        fn any_text_is_compared_with_any_other(word in ".{0,40}", known in proptest::collection::vec(".{0,40}", 0..5)) {
            let found = nearest(&word, known.iter().map(String::as_str));
            prop_assert!(found.is_none_or(|found| known.iter().any(|known| known == found)));
        }
    }
}
