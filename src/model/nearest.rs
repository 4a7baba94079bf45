//! The nearest spelling of a word that nobody knows, for "did you mean ...?".

/// Most typing errors in a word for which another one is suggested.
const MAX_DISTANCE: usize = 2;
/// Longest word that is compared, in bytes: the time grows with the square of it, and words come from outside.
const MAX_WORD: usize = 256;

/// The known word that is nearest to `word`, whatever the case: at most two letters are added, left out or changed, and less than
/// half of them. Of equally near words the first in the alphabet.
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

/// Levenshtein's distance of two short texts, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
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
            ("tl", Some("tls")),
            ("tx", None),
            ("mtahc", None),
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
