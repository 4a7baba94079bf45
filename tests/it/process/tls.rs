//! TLS with client certificates, from the options to the log.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;

use super::{Finished, Served, Watcher, bulrush, finish, text_of};
use crate::daemon::{Daemon, eventually};

/// An authority that writes certificates into a folder.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = TempDir::new()?;
        fs::write(folder.path().join("ca.crt"), issuer.pem())?;
        Ok(Self { issuer, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `<name>.key` and `<name>.crt`, each complete at once.
    fn issue(&self, name: &str, cn: &str) -> anyhow::Result<()> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, cn);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let write = |path: &Path, text: String| -> anyhow::Result<()> {
            let fresh = self.path("fresh");
            fs::write(&fresh, text)?;
            Ok(fs::rename(fresh, path)?)
        };
        write(&self.path(&format!("{name}.key")), key.serialize_pem())?;
        write(&self.path(&format!("{name}.crt")), certificate.pem())
    }

    /// Arguments of a client with this certificate, for a server with this name.
    fn arguments(&self, client: &str, server_cn: &str) -> Vec<String> {
        let path = |name: String| text_of(&self.path(&name)).to_owned();
        [
            ("--ca-file", path("ca.crt".to_owned())),
            ("--cert-file", path(format!("{client}.crt"))),
            ("--key-file", path(format!("{client}.key"))),
            ("--server-cn", server_cn.to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    /// A daemon that accepts only clients with the name `typha-client`.
    fn daemon(&self, served: &Served) -> anyhow::Result<Daemon> {
        let (key, cert, ca) = (self.path("server.key"), self.path("server.crt"), self.path("ca.crt"));
        served.daemon(&[
            ("ServerKeyFile", text_of(&key)),
            ("ServerCertFile", text_of(&cert)),
            ("CAFile", text_of(&ca)),
            ("ClientCN", "typha-client"),
        ])
    }
}

fn dump(daemon: &Daemon, arguments: &[String], timeout: &str) -> anyhow::Result<Finished> {
    // By name, because the certificates are for the name.
    let server = format!("localhost:{}", daemon.sync.port());
    finish(bulrush().args(["dump", "--timeout", timeout, "--server", &server]).args(arguments))
}

#[test]
fn the_right_client_gets_in_and_others_are_refused_with_a_reason() -> anyhow::Result<()> {
    let (served, authority, other) = (Served::new()?, Authority::new()?, Authority::new()?);
    authority.issue("server", "typha-server")?;
    authority.issue("client", "typha-client")?;
    authority.issue("stranger", "stranger")?;
    other.issue("client", "typha-client")?;
    let daemon = authority.daemon(&served)?;
    for protocol in ["native", "calico", "calico-plain"] {
        let mut arguments = authority.arguments("client", "typha-server");
        arguments.extend(["--protocol".to_owned(), protocol.to_owned()]);
        let held = dump(&daemon, &arguments, "30")?.expect_code(0)?.out;
        ensure!(held.contains("/pool/10.1.0.0-16"), "{protocol}: {held}");
    }

    // A wrong name, a certificate of another authority (while the server is checked by ours), no TLS at all.
    let mut foreign = other.arguments("client", "typha-server");
    foreign[1] = text_of(&authority.path("ca.crt")).to_owned();
    for (what, arguments) in [
        ("wrong name", authority.arguments("stranger", "typha-server")),
        ("other authority", foreign),
        ("no TLS", vec![]),
    ] {
        let before = daemon.metric("bulrush_connections_closed_total{reason=\"tls-failed\"}").unwrap_or_default();
        let end = dump(&daemon, &arguments, "1")?.expect_code(1)?;
        ensure!(end.err.contains("no connection to localhost"), "{what}: {}", end.err);
        let counted = || {
            let after = daemon.metric("bulrush_connections_closed_total{reason=\"tls-failed\"}").ok()?;
            (after > before).then_some(())
        };
        eventually("the refusal is counted", counted).map_err(|error| error.context(what).context(daemon.log()))?;
    }
    let log = daemon.log();
    for reason in [
        "the client's certificate is for CN \"stranger\", but TYPHA_CLIENTCN asks for \"typha-client\"",
        "the client does not speak TLS (its first bytes are",
        "the authority \"CN=authority\" of the CA file has another key",
    ] {
        // Quotes are escaped in the log.
        let said = |line: &str| line.contains("tls handshake failed") && line.replace('\\', "").contains(reason);
        ensure!(log.lines().any(said), "the log does not say {reason}:\n{log}");
    }

    // A server with another name than expected is not trusted.
    let end = dump(&daemon, &authority.arguments("client", "somebody"), "1")?.expect_code(1)?;
    ensure!(end.err.contains("typha-server") || end.err.contains("somebody"), "{}", end.err);
    Ok(())
}

#[test]
fn replaced_certificates_are_used_for_new_connections() -> anyhow::Result<()> {
    let (served, authority) = (Served::new()?, Authority::new()?);
    authority.issue("server", "typha-server")?;
    authority.issue("client", "typha-client")?;
    let daemon = authority.daemon(&served)?;
    let address = format!("localhost:{}", daemon.sync.port());
    let arguments = authority.arguments("client", "typha-server");
    let mut old: Vec<&str> = arguments.iter().map(String::as_str).collect();
    old.extend(["--server", &address]);
    let watcher = Watcher::spawn_to(&old)?;
    watcher.wait_for("in-sync")?;

    authority.issue("server", "typha-server-renewed")?;
    daemon.signal("HUP")?;
    let renewed = authority.arguments("client", "typha-server-renewed");
    let used = || dump(&daemon, &renewed, "1").ok().filter(|end| end.code == Some(0));
    eventually("a new connection is shown the new certificate", used).map_err(|error| error.context(daemon.log()))?;
    ensure!(dump(&daemon, &arguments, "1")?.code == Some(1), "the old certificate is not shown any more");
    served.write("more.yaml", &super::pool("more", "10.7.0.0/16"))?;
    watcher.wait_for("+ /calico/v1/ipam/v4/pool/10.7.0.0-16")?;

    // Files without certificates do no harm: the last good certificate stays.
    fs::write(authority.path("server.crt"), "nonsense")?;
    daemon.signal("HUP")?;
    let logged = || daemon.log().lines().any(|line| line.contains("server.crt")).then_some(());
    eventually("the log names the file", logged).map_err(|error| error.context(daemon.log()))?;
    dump(&daemon, &renewed, "30")?.expect_code(0)?;
    Ok(())
}
