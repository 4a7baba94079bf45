//! The fuzz target's work on an input, for tests that replay its corpus.

use super::duration::GoDuration;
use super::numorstring::{Port, Uint8OrString, is_port_name};
use super::selector::Selector;
use super::{keys, net};
use crate::model::timestamp::Timestamp;

/// Reads the input in each small language of Calico's texts, and panics when a printed value does not read as the same.
pub fn text(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(selector) = Selector::parse(&text) {
        let printed = selector.to_string();
        let again = Selector::parse(&printed).map(|again| again.to_string());
        assert_eq!(again.as_deref(), Ok(&*printed), "a printed selector is a selector");
        let _ = selector.with_prefix("pcns.").to_string();
    }
    if let Some(network) = net::parse_net(&text) {
        assert_eq!(net::parse_net(&network.to_string()), Some(network), "a printed network is a network");
        assert!(!keys::net_element(&network).contains('/'), "a network is one element of a path");
    }
    assert!(!keys::escape(&text).contains('/'), "escaped text is one element of a path");
    let _ = (net::parse_ip(&text), net::parse_cidr(&text), is_port_name(&text));
    let _ = (GoDuration::parse(&text), Timestamp::parse(&text), serde_json::from_slice::<Port>(input).is_ok());
    let _ = (Uint8OrString::protocol_from_text(&text), Uint8OrString::from_text(text.into_owned()).to_v1());
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_texts_does_no_harm() {
        crate::fuzzing::replay("texts", super::text);
    }
}
