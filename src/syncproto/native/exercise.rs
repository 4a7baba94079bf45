//! The fuzz target's check of one input; tests replay its corpus with it.

use bytes::BytesMut;

use super::{ClientFrame, Error, MAX_CLIENT_FRAME_BYTES, ServerFrame, decode_client, decode_server, encode_client};

/// Decodes `input` as both sides would, whole and in pieces. Panics when the results differ, when a decoder holds more
/// than it may, or when a client's frame changes by encoding and decoding it again.
///
/// The first byte of the input chooses the size of the pieces.
pub fn decode(input: &[u8]) {
    let Some((size, stream)) = input.split_first() else { return };
    let size = usize::from(*size).max(1);
    let whole: (Vec<ServerFrame>, _) = run(stream, stream.len().max(1), decode_server);
    assert_eq!(whole, run(stream, size, decode_server), "the size of the pieces must not matter");
    let whole: (Vec<ClientFrame>, _) = run(stream, stream.len().max(1), decode_client);
    assert_eq!(whole, run(stream, size, decode_client), "the size of the pieces must not matter");
    let mut again = BytesMut::new();
    for frame in &whole.0 {
        encode_client(frame, &mut again);
    }
    assert_eq!(run(&again, again.len().max(1), decode_client), (whole.0, None), "decoded frames encode again");
}

/// Decodes in pieces. Returns the frames and the error.
fn run<T>(
    stream: &[u8],
    size: usize,
    decode: impl Fn(&mut BytesMut) -> Result<Option<T>, Error>,
) -> (Vec<T>, Option<String>) {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for piece in stream.chunks(size) {
        input.extend_from_slice(piece);
        loop {
            match decode(&mut input) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
        // A buffer grows by doubling, and only as bytes arrive.
        let arrived = input.len() + piece.len();
        assert!(input.capacity() <= 4 * arrived + MAX_CLIENT_FRAME_BYTES, "{} bytes held", input.capacity());
    }
    (frames, None)
}
