//! The name that was probably meant by a misspelt one. No I/O.

/// Longest text that is compared, in bytes: names of kinds and options are shorter, and the cost grows with the square.
const MAX_BYTES: usize = 128;

/// The candidates nearest to a text, whatever their case: those with the fewest differences, if these are at most a third of the
/// text. In the order of the candidates.
#[must_use]
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let text = text.to_lowercase();
    let (mut best, mut found) = (text.len().div_ceil(3), Vec::new());
    if text.len() > MAX_BYTES {
        return found;
    }
    for candidate in candidates.into_iter().filter(|candidate| candidate.len() <= MAX_BYTES) {
        let differences = distance(&text, &candidate.to_lowercase());
        if differences < best {
            found.clear();
        }
        if differences <= best {
            best = differences;
            found.push(candidate);
        }
    }
    found
}

/// Levenshtein's distance of two short texts, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_found_and_far_ones_are_not() {
        let names = ["reviews", "ratings", "details", "Ledger"];
        assert_eq!(nearest("reviwes", names), ["reviews"]);
        assert_eq!(nearest("LEDGE", names), ["Ledger"]);
        assert_eq!(nearest("retings", names), ["ratings"]);
        assert_eq!(nearest("productpage", names), [""; 0]);
        assert_eq!(nearest("ax", ["ab", "ac", "bc"]), ["ab", "ac"]);
        assert_eq!(nearest("", names), [""; 0]);
        assert_eq!(nearest(&"x".repeat(MAX_BYTES + 1), names), [""; 0]);
    }
}
