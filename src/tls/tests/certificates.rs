//! Certificates that rustls does not read, and other content of a CA file than authorities that are in force.

use rcgen::SigningKey;
use tokio_rustls::rustls;
use x509_parser::asn1_rs::{Any, BitString, Class, FromDer, Sequence, ToDer};

use super::*;

/// The same certificate as X.509 v1, as `openssl x509 -req` makes it without extensions before 3.2: no version, no extensions.
pub(super) fn as_v1(certificate: &[u8], ca: &KeyPair) -> Vec<u8> {
    let (_, outer) = Any::from_der(certificate).unwrap();
    let (rest, to_be_signed) = Any::from_der(outer.data).unwrap();
    let (_, algorithm) = Any::from_der(rest).unwrap();
    let (mut rest, mut kept) = (to_be_signed.data, Vec::new());
    while !rest.is_empty() {
        let (next, field) = Any::from_der(rest).unwrap();
        if field.class() == Class::Universal {
            kept.extend_from_slice(&rest[..rest.len() - next.len()]);
        }
        rest = next;
    }
    let to_be_signed = Sequence::new(kept.into()).to_der_vec().unwrap();
    let signature = BitString::new(0, &ca.sign(&to_be_signed).unwrap()).to_der_vec().unwrap();
    let algorithm = Sequence::new(algorithm.data.into()).to_der_vec().unwrap();
    Sequence::new([to_be_signed, algorithm, signature].concat().into()).to_der_vec().unwrap()
}

fn pem_of(der: &[u8]) -> String {
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// The certificates of Calico's own guide, and a single self-signed certificate for everything.
#[tokio::test]
async fn certificates_that_only_go_reads_are_verified_as_well() {
    struct Case {
        what: &'static str,
        expected: Result<(), &'static str>,
        /// Which authority signs.
        foreign: bool,
        v1: bool,
        is_ca: bool,
        /// The certificate is in the CA file itself.
        listed: bool,
        usage: Vec<ExtendedKeyUsagePurpose>,
        valid_until: i32,
        critical: bool,
    }
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    let base = || Case {
        what: "v1",
        expected: Ok(()),
        foreign: false,
        v1: true,
        is_ca: false,
        listed: false,
        usage: vec![],
        valid_until: 2100,
        critical: false,
    };
    let cases = [
        base(),
        Case { what: "v1 of another authority", foreign: true, expected: Err("does not lead to"), ..base() },
        Case { what: "v1, expired", valid_until: 2001, expected: Err("expired"), ..base() },
        Case { what: "a CA's, signed", v1: false, is_ca: true, ..base() },
        Case {
            what: "a CA's, of another authority",
            v1: false,
            is_ca: true,
            foreign: true,
            expected: Err("does not lead to"),
            ..base()
        },
        Case { what: "a CA's, listed", v1: false, is_ca: true, foreign: true, listed: true, ..base() },
        Case {
            what: "a CA's, listed, expired",
            v1: false,
            is_ca: true,
            listed: true,
            valid_until: 2001,
            expected: Err("expired"),
            ..base()
        },
        Case { what: "a CA's for this", v1: false, is_ca: true, usage: vec![ClientAuth, ServerAuth], ..base() },
        Case {
            what: "a CA's for something else",
            v1: false,
            is_ca: true,
            usage: vec![ExtendedKeyUsagePurpose::CodeSigning],
            expected: Err("extended key usage"),
            ..base()
        },
        Case {
            what: "a CA's with a condition",
            v1: false,
            is_ca: true,
            critical: true,
            expected: Err("critical extension"),
            ..base()
        },
    ];
    // The same name, so that only the signature tells them apart.
    let (good, bad) = (Ca::new("one"), Ca::new("one"));
    for case in cases {
        let folder = TempDir::new().unwrap();
        let ca = if case.foreign { &bad } else { &good };
        let issue = |name: &str, cn: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, cn);
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(case.valid_until, 1, 1);
            params.extended_key_usages.clone_from(&case.usage);
            if case.is_ca {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }
            if case.critical {
                let mut condition = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
                condition.set_criticality(true);
                params.custom_extensions.push(condition);
            }
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &ca.0).unwrap();
            let text = if case.v1 { pem_of(&as_v1(certificate.der(), ca.0.key())) } else { certificate.pem() };
            let files = Files::new(folder.path(), name);
            fs::write(&files.key, key.serialize_pem()).unwrap();
            fs::write(&files.cert, &text).unwrap();
            fs::write(&files.ca, if case.listed { good.0.pem() + &text } else { good.0.pem() }).unwrap();
            files
        };
        let good_server = good.server(folder.path());
        let good_client = good.client(folder.path(), CLIENT_CN, None);
        let (odd_server, odd_client) = (issue("odd-server", SERVER_CN), issue("odd-client", CLIENT_CN));

        let mut config = server_config(&good_server, identity(Some(CLIENT_CN), None));
        config.ca_file = Some(odd_client.ca.clone());
        let server = ServerTls::load(config).unwrap();
        let config = client_config(&odd_client, &good_server.ca, identity(Some(SERVER_CN), None));
        let mut outcomes = Vec::new();
        let (on_server, _) = connect(&server, ClientTls::load(config).unwrap().connector()).await;
        outcomes.push(("server", on_server));
        let (on_server, _) = connect(&server, old_connector(&odd_client, &good)).await;
        outcomes.push(("server with TLS 1.2", on_server));

        let mut config = server_config(&odd_server, identity(Some(CLIENT_CN), None));
        config.ca_file = Some(good_client.ca.clone());
        let server = ServerTls::load(config).unwrap();
        let config = client_config(&good_client, &odd_server.ca, identity(Some(SERVER_CN), None));
        let (_, on_client) = connect(&server, ClientTls::load(config).unwrap().connector()).await;
        outcomes.push(("client", on_client.map(|_| ())));

        for (side, outcome) in outcomes {
            match (&case.expected, &outcome) {
                (Ok(()), Ok(())) => {}
                (Err(wanted), Err(said)) if said.contains(wanted) => {}
                _ => panic!("{}, the {side} says {outcome:?}, expected {:?}", case.what, case.expected),
            }
        }
        // And its name counts as for all others.
        let mut config = server_config(&good_server, identity(Some("somebody"), None));
        config.ca_file = Some(odd_client.ca.clone());
        let server = ServerTls::load(config).unwrap();
        let config = client_config(&odd_client, &good_server.ca, identity(Some(SERVER_CN), None));
        assert!(connect(&server, ClientTls::load(config).unwrap().connector()).await.0.is_err(), "{}", case.what);
    }
}

#[tokio::test]
async fn a_peer_without_the_key_of_an_old_certificate_is_refused() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let server_files = ca.server(folder.path());
    let files = ca.client(folder.path(), CLIENT_CN, None);
    let certificate = files::Source::new("certificate", &files.cert);
    let certificate = certificate.certificates(&fs::read(&files.cert).unwrap()).unwrap().remove(0);
    fs::write(&files.cert, pem_of(&as_v1(&certificate, ca.0.key()))).unwrap();
    let config = || client_config(&files, &server_files.ca, identity(Some(SERVER_CN), None));
    ClientTls::load(config()).unwrap();
    // Not with ours, which looks at that.
    let stolen = KeyPair::generate().unwrap();
    fs::write(&files.key, stolen.serialize_pem()).unwrap();
    let error = ClientTls::load(config()).unwrap_err().to_string();
    assert!(error.contains("client.crt") && error.contains("client.key"), "{error}");

    let provider = Arc::new(ring::default_provider());
    let key = files::Source::new("key", &files.key).key(&fs::read(&files.key).unwrap()).unwrap();
    let shown = files::Source::new("certificate", &files.cert).certificates(&fs::read(&files.cert).unwrap()).unwrap();
    let pair = rustls::sign::CertifiedKey::new(shown, provider.key_provider.load_private_key(key).unwrap());
    let mut roots = RootCertStore::empty();
    roots.add(ca.0.der().clone()).unwrap();
    let thief = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)));
    let server = ServerTls::load(server_config(&server_files, identity(Some(CLIENT_CN), None))).unwrap();
    let (on_server, _) = connect(&server, TlsConnector::from(Arc::new(thief))).await;
    assert!(on_server.unwrap_err().contains("has not proved that it has the key"));
}

#[test]
fn what_is_no_certificate_in_a_ca_file_is_passed_over() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let files = ca.server(folder.path());
    fs::write(&files.ca, pem_of(b"no certificate") + &ca.0.pem()).unwrap();
    ServerTls::load(server_config(&files, identity(Some(CLIENT_CN), None))).unwrap();
    fs::write(&files.ca, pem_of(b"no certificate")).unwrap();
    let error = ServerTls::load(server_config(&files, identity(Some(CLIENT_CN), None))).unwrap_err().to_string();
    assert!(error.contains("parse CA file"), "{error}");
}

/// A certificate in the CA file that is no authority's is trusted as it is; certificates that its owner signs are not.
#[tokio::test]
async fn who_is_listed_and_no_authority_vouches_for_nobody() {
    let ca = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let server_files = ca.server(folder.path());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, CLIENT_CN);
    let listed = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let (pem, key) = (listed.pem(), listed.key().serialize_pem());
    let listed = Ca(listed);
    for ca_file in [ca.0.pem() + &pem, pem.clone()] {
        let made = listed.client(folder.path(), CLIENT_CN, None);
        fs::write(&server_files.ca, &ca_file).unwrap();
        let server = ServerTls::load(server_config(&server_files, identity(Some(CLIENT_CN), None))).unwrap();
        let trusted = folder.path().join("good.ca");
        fs::write(&trusted, ca.0.pem()).unwrap();
        let connector = |files: &Files| {
            let config = client_config(files, &trusted, identity(Some(SERVER_CN), None));
            ClientTls::load(config).unwrap().connector()
        };
        assert!(connect(&server, connector(&made)).await.0.is_err(), "signed by somebody who is no authority");
        fs::write(&made.cert, &pem).unwrap();
        fs::write(&made.key, &key).unwrap();
        let (on_server, _) = connect(&server, connector(&made)).await;
        assert!(on_server.is_ok(), "the one that is listed: {on_server:?}");
    }
}

#[tokio::test]
async fn an_authority_whose_time_is_over_counts_for_nothing() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, "over");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let over = Ca(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap());
    let good = Ca::new("good");
    let folder = TempDir::new().unwrap();
    let server_files = good.server(folder.path());
    let both = folder.path().join("both.ca");
    fs::write(&both, over.0.pem() + &good.0.pem()).unwrap();
    for v1 in [false, true] {
        // One file of authorities, the others' words for it.
        for (ca_file, ca, expected) in [
            (&both, &good, Ok(())),
            (&both, &over, Err("does not lead to")),
            (&folder.path().join("client.ca"), &over, Err("of the CA file expired at")),
        ] {
            let files = ca.client(folder.path(), CLIENT_CN, None);
            if v1 {
                let certificate = files::Source::new("certificate", &files.cert);
                let certificate = certificate.certificates(&fs::read(&files.cert).unwrap()).unwrap().remove(0);
                fs::write(&files.cert, pem_of(&as_v1(&certificate, ca.0.key()))).unwrap();
            }
            let mut config = server_config(&server_files, identity(Some(CLIENT_CN), None));
            config.ca_file = Some(ca_file.clone());
            let server = ServerTls::load(config).unwrap();
            let config = client_config(&files, &both, identity(Some(SERVER_CN), None));
            let (on_server, on_client) = connect(&server, ClientTls::load(config).unwrap().connector()).await;
            match expected {
                Ok(()) => assert!(on_server.is_ok() && on_client.is_ok(), "{on_server:?} {on_client:?}"),
                Err(words) => assert!(on_server.clone().unwrap_err().contains(words), "v1 {v1}: {on_server:?}"),
            }
        }
    }
    // The same for a client that trusts no other certificate.
    let over_server = over.server(folder.path());
    let files = good.client(folder.path(), CLIENT_CN, None);
    let mut config = server_config(&over_server, identity(Some(CLIENT_CN), None));
    config.ca_file = Some(both.clone());
    let server = ServerTls::load(config).unwrap();
    let config = client_config(&files, &over_server.ca, identity(Some(SERVER_CN), None));
    let (_, on_client) = connect(&server, ClientTls::load(config).unwrap().connector()).await;
    assert!(on_client.unwrap_err().contains("of the CA file expired at"));
}
