//! The name that was probably meant.

/// Longest word that is compared, in bytes. Names of fields, kinds and options are shorter.
const MAX_WORD: usize = 128;

/// The candidate that is nearest to a word, if one is near: a third of its letters may differ, letters of another case do not count.
/// Of several equally near ones the first.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > MAX_WORD {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let near = |candidate: &&str| candidate.len() <= MAX_WORD && candidate.len().abs_diff(word.len()) <= word.len();
    let rated = candidates.into_iter().filter(near).map(|candidate| {
        let distance = distance(lower.as_bytes(), candidate.to_ascii_lowercase().as_bytes());
        (distance, candidate)
    });
    let (distance, candidate) = rated.min_by_key(|(distance, _)| *distance)?;
    let length = word.len().max(candidate.len());
    (distance <= (length / 3).max(1) && distance < length).then_some(candidate)
}

/// The number of letters to insert, remove, exchange, or swap with their neighbour until the words are the same.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let exchanged = row[j] + usize::from(a[i] != b[j]);
            let mut least = exchanged.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_if_one_is_near() {
        let fields = ["match", "route", "redirect", "timeout", "name"];
        for (word, expected) in [
            ("mach", Some("match")),
            ("Match", Some("match")),
            ("macth", Some("match")),
            ("routes", Some("route")),
            ("timeOut", Some("timeout")),
            ("x", None),
            ("completelyElse", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, fields), expected, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), fields), None);
        assert_eq!(nearest("a", []), None);
        assert_eq!(nearest("Servcie", ["Secret", "Service"]), Some("Service"));
    }
}
