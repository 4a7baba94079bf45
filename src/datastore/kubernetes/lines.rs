//! Cuts the body of a watch into its lines, one event each, without copying what is whole.

use std::io::BufRead as _;

use bytes::{Bytes, BytesMut};

/// The longest line that is accepted, in bytes. etcd takes values of 1.5 MiB unless told otherwise, and JSON of a protobuf
/// object is up to a few times as long: an object beyond this was made to do harm.
pub(super) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// A line is too long; it is skipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Collects chunks and gives lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Beginning of a line whose end has not arrived.
    rest: BytesMut,
    /// The line that is coming in was found too long.
    skipping: bool,
}

impl Lines {
    /// Appends the lines that `chunk` completes, without their ends. Empty lines are left out.
    ///
    /// # Errors
    /// When a line is longer than [`MAX_LINE_BYTES`]: it is skipped, and what comes after it is read again.
    /// Lines before it are appended all the same.
    pub(super) fn push(&mut self, mut chunk: Bytes, lines: &mut Vec<Bytes>) -> Result<(), TooLong> {
        let mut result = Ok(());
        while let Some(end) = line_end(&chunk) {
            let mut line = chunk.split_to(end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            line.truncate(end);
            if !self.rest.is_empty() {
                self.rest.extend_from_slice(&line);
                line = self.rest.split().freeze();
            }
            if line.len() > MAX_LINE_BYTES {
                result = Err(TooLong);
            } else if !line.trim_ascii().is_empty() {
                lines.push(line);
            }
        }
        if !self.skipping {
            self.rest.extend_from_slice(&chunk);
            if self.rest.len() > MAX_LINE_BYTES {
                self.skipping = true;
                self.rest = BytesMut::new();
                result = Err(TooLong);
            }
        }
        result
    }
}

/// Where the first line ends.
fn line_end(chunk: &[u8]) -> Option<usize> {
    // The library's own search reads many bytes at once; an iterator would read one after the other.
    let read = (&mut &*chunk).skip_until(b'\n').expect("bytes in memory are always readable");
    read.checked_sub(1).filter(|end| chunk[*end] == b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_only_that() {
        let mut lines = Lines::default();
        let chunk = Bytes::from(vec![b'x'; 1024 * 1024]);
        let mut out = Vec::new();
        let refused = (0..40).position(|_| lines.push(chunk.clone(), &mut out).is_err());
        assert_eq!((refused, out.len()), (Some(32), 0));
        assert_eq!(lines.push(Bytes::from_static(b"end\nnext\nla"), &mut out), Ok(()));
        assert_eq!(lines.push(Bytes::from_static(b"st\n"), &mut out), Ok(()));
        assert_eq!(out, ["next", "last"]);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_are_cut(text in "[a-c\n]{0,60}", cuts in proptest::collection::vec(1_usize..9, 0..40)) {
            let mut lines = Lines::default();
            let mut out = Vec::new();
            let mut rest = Bytes::from(text.clone());
            for cut in cuts.into_iter().chain([60]) {
                let piece = rest.split_to(cut.min(rest.len()));
                lines.push(piece, &mut out).unwrap();
            }
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            let expected: Vec<&str> = whole.split('\n').filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(out, expected);
        }
    }
}
