//! Chains one by one: the certificates between a peer's and those of the CA file, and the words of refusals.

use std::io;

use rcgen::{CustomExtension, DnValue};
use rustls_pki_types::UnixTime;
use tokio_rustls::rustls;

use super::certificates::as_v1;
use super::*;

type Made = CertifiedIssuer<'static, KeyPair>;

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn own(params: CertificateParams) -> Made {
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn under(issuer: &Made, params: CertificateParams) -> Made {
    CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), issuer).unwrap()
}

fn der(made: &Made) -> CertificateDer<'static> {
    made.der().clone()
}

/// The verdict on a chain, the peer's own certificate first, as the log has it.
fn verdict(
    listed: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
    purpose: Purpose,
) -> Result<(), String> {
    let (authorities, unreadable) = Authorities::new(listed, &Policy::default());
    assert_eq!(unreadable, None);
    let verdict = authorities.verify(&chain[0], &chain[1..], purpose, UnixTime::now());
    verdict.map_err(|error| handshake_error(&io::Error::other(error), purpose, &[]))
}

fn refused(listed: &[CertificateDer<'static>], chain: &[CertificateDer<'static>], purpose: Purpose, why: &str) {
    let said = verdict(listed, chain, purpose).unwrap_err();
    assert!(said.contains(why), "{said:?} does not say {why:?}");
}

#[test]
fn an_authority_in_between_is_sent_or_listed() {
    let root = own(authority("root"));
    let middle = under(&root, authority("middle"));
    let leaf = under(&middle, named("peer"));
    let stranger = own(authority("stranger"));
    for purpose in [Purpose::Client, Purpose::Server] {
        let good = |listed: &[CertificateDer<'static>], chain: &[CertificateDer<'static>]| {
            verdict(listed, chain, purpose).unwrap();
        };
        good(&[der(&root)], &[der(&leaf), der(&middle)]);
        good(&[der(&root), der(&middle)], &[der(&leaf)]);
        good(&[der(&middle), der(&root)], &[der(&leaf)]);
        good(&[der(&middle)], &[der(&leaf)]);
        good(&[der(&middle)], &[der(&leaf), der(&middle)]);
        refused(&[der(&root)], &[der(&leaf)], purpose, "lack the authorities in between");
        refused(&[der(&stranger)], &[der(&leaf), der(&middle)], purpose, "does not lead to");
        // A peer that sends an authority is not trusted for that, not even with its root.
        refused(&[der(&stranger)], &[der(&leaf), der(&middle), der(&root)], purpose, "does not lead to");
        refused(&[], &[der(&leaf), der(&middle), der(&root)], purpose, "does not lead to");
    }
}

#[test]
fn an_authority_that_is_no_authority_vouches_for_nobody() {
    let root = own(authority("root"));
    let peer = under(&root, named("another peer"));
    let forged = under(&peer, named("peer"));
    refused(&[der(&root)], &[der(&forged), der(&peer)], Purpose::Client, "basic constraints do not say");
    refused(&[der(&root), der(&peer)], &[der(&forged)], Purpose::Client, "basic constraints do not say");
    let mut params = authority("signs nothing");
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    let idle = under(&root, params);
    refused(&[der(&root)], &[der(&under(&idle, named("peer"))), der(&idle)], Purpose::Client, "key usage");
}

#[test]
fn the_usage_of_authorities_counts() {
    for (usage, client, server) in [
        (ExtendedKeyUsagePurpose::ClientAuth, true, false),
        (ExtendedKeyUsagePurpose::ServerAuth, false, true),
        (ExtendedKeyUsagePurpose::Any, true, true),
        (ExtendedKeyUsagePurpose::CodeSigning, false, false),
    ] {
        let mut params = authority("root");
        params.extended_key_usages = vec![usage.clone()];
        let limited = own(params.clone());
        let root = own(authority("upper"));
        let middle = under(&root, params);
        let (below_limited, below_middle) = (under(&limited, named("peer")), under(&middle, named("peer")));
        for (purpose, expected) in [(Purpose::Client, client), (Purpose::Server, server)] {
            for (listed, chain) in [
                (vec![der(&limited)], vec![der(&below_limited)]),
                (vec![der(&root)], vec![der(&below_middle), der(&middle)]),
            ] {
                if expected {
                    verdict(&listed, &chain, purpose).unwrap();
                } else {
                    refused(&listed, &chain, purpose, "(extended key usage)");
                }
            }
        }
    }
}

#[test]
fn the_path_length_of_authorities_counts() {
    let mut params = authority("root");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let root = own(params);
    verdict(&[der(&root)], &[der(&under(&root, named("peer")))], Purpose::Client).unwrap();
    let middle = under(&root, authority("middle"));
    let leaf = under(&middle, named("peer"));
    refused(&[der(&root)], &[der(&leaf), der(&middle)], Purpose::Client, "path length");
}

#[test]
fn a_critical_extension_that_nobody_knows_is_refused_everywhere() {
    let odd = |mut params: CertificateParams| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
        params
    };
    let root = own(authority("root"));
    let odd_leaf = under(&root, odd(named("peer")));
    let odd_root = own(odd(authority("odd root")));
    let odd_middle = under(&root, odd(authority("odd middle")));
    refused(&[der(&root)], &[der(&odd_leaf)], Purpose::Client, "a critical extension");
    refused(&[der(&odd_leaf)], &[der(&odd_leaf)], Purpose::Client, "a critical extension");
    refused(
        &[der(&odd_root)],
        &[der(&under(&odd_root, named("peer")))],
        Purpose::Client,
        "the critical extension 1.2.3.4",
    );
    let chain = [der(&under(&odd_middle, named("peer"))), der(&odd_middle)];
    refused(&[der(&root)], &chain, Purpose::Client, "the critical extension 1.2.3.4");
}

#[test]
fn a_listed_v1_certificate_vouches_for_others_only_if_self_issued() {
    let root = own(authority("root"));
    let old = |made: &Made, signer: &Made| CertificateDer::from(as_v1(made.der(), signer.key()));
    let peer = under(&root, named("old peer"));
    let (listed, forged) = ([old(&peer, &root)], under(&peer, named("peer")));
    verdict(&listed, &listed, Purpose::Client).unwrap();
    verdict(&[der(&root)], &listed, Purpose::Client).unwrap();
    refused(&listed, &[der(&forged)], Purpose::Client, "basic constraints do not say");
    let [sent] = listed;
    refused(&[der(&root)], &[der(&forged), sent], Purpose::Client, "basic constraints do not say");
    let first = own(named("old root"));
    let below = under(&first, named("peer"));
    let listed = [old(&first, &first)];
    verdict(&listed, &[der(&below)], Purpose::Client).unwrap();
    // When the peer sends it, it does not count.
    let [sent] = listed;
    refused(&[der(&root)], &[der(&below), sent], Purpose::Client, "basic constraints do not say");
}

#[test]
fn authorities_that_look_alike_cost_a_limited_number_of_checks() {
    let root = own(authority("root"));
    let middle = under(&root, authority("middle"));
    let leaf = under(&middle, named("peer"));
    let alike = |number: usize| -> Vec<_> {
        let mut chain = vec![der(&leaf)];
        for _ in 0..number {
            chain.push(der(&own(authority("middle"))));
        }
        chain.push(der(&middle));
        chain
    };
    // The last of them and the root are the two checks that are left.
    verdict(&[der(&root)], &alike(98), Purpose::Client).unwrap();
    refused(&[der(&root)], &alike(100), Purpose::Client, "more than 100 signatures");
}

#[test]
fn refusals_are_sentences() {
    let root = own(authority("root"));
    let mut params = named("ignored");
    params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String("stranger".to_owned()));
    let leaf = under(&root, params);
    let rule = identity(Some(CLIENT_CN), Some(CLIENT_URI));
    let error = rule.verify(leaf.der(), Purpose::Client).unwrap_err();
    assert_eq!(
        handshake_error(&io::Error::other(error), Purpose::Client, &[]),
        "the client's certificate is for CN \"stranger\" and no URI, but TYPHA_CLIENTCN asks for \"typha-client\", or \
         TYPHA_CLIENTURISAN asks for \"spiffe://cluster/typha-client\": check that option, and which certificate the client uses"
    );
    let not_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    assert_eq!(
        handshake_error(&io::Error::other(not_tls), Purpose::Client, b"GET / HTTP/1.1\r\n"),
        "the client does not speak TLS (its first bytes are \"GET / HTTP/1.1\\r\\n\"): is its TLS switched on?"
    );
}
