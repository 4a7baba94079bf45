//! Options of the server's TLS. Its versions and cipher suites are those of the metrics endpoint too.

use crate::config::options::Options;
use crate::config::spec::Group;
use crate::config::{TlsConfig, TlsVersion};

/// TLS of the server, and the oldest accepted version and the cipher suites, which are read without TLS as well.
pub(super) fn read(options: &mut Options<'_>) -> (Option<TlsConfig>, TlsVersion, String) {
    options.begin(Group::Tls);
    let key_file = options
        .existing_file(
            "ServerKeyFile",
            "Private key of the server, PEM. TLS needs key, certificate, CA and at least one of ClientCN and ClientURISAN.",
        )
        .read();
    let cert_file = options.existing_file("ServerCertFile", "Certificate of the server, PEM.").read();
    let ca_file =
        options.existing_file("CAFile", "Authorities that must have signed the agents' certificates, PEM.").read();
    let client_cn = options
        .optional_text(
            "ClientCN",
            "Common name that an agent's certificate must have. With ClientURISAN set too, either will do.",
        )
        .read();
    let client_uri_san = options
        .optional_text(
            "ClientURISAN",
            "URI alternative name that an agent's certificate must have. With ClientCN set too, either will do.",
        )
        .read();
    let min_version = options
        .word("TLS_MIN_VERSION", &["1.2", "1.3"], "1.2", "Oldest accepted version of TLS.")
        .zero_means("1.2")
        .plain_variable()
        .read();
    let min_version = if min_version == "1.3" { TlsVersion::V1_3 } else { TlsVersion::V1_2 };
    let cipher_suites = options
        .text(
            "TLS_CIPHER_SUITES",
            "",
            "Cipher suites by their IANA names, separated by commas; empty means a safe choice.",
        )
        .plain_variable()
        .read();
    let files = key_file.zip(cert_file).zip(ca_file);
    let tls = files.map(|((key_file, cert_file), ca_file)| TlsConfig {
        key_file,
        cert_file,
        ca_file,
        client_cn,
        client_uri_san,
        min_version,
        cipher_suites: cipher_suites.clone(),
    });
    (tls, min_version, cipher_suites)
}
