//! The server on this host or in this pod, which `dump`, `watch` and `status` ask when no server is named.
//!
//! Inside the pod, the daemon's own options (`TYPHA_*` variables, typha.cfg) give its address, with ports that were changed.
//! Elsewhere there are no such options, and Typha's defaults count; `kubectl port-forward` uses the same ports.
//!
//! Invariant: wrong options never keep a command from running; an option that cannot be read counts as not set.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;

use crate::config::{self, Loaded, Value};

/// Host of a server that listens on all addresses, or on an unknown one.
const HERE: &str = "localhost";

/// Typha's port for health checks.
const DEFAULT_HEALTH_PORT: u16 = 9098;

/// The addresses of a server on this host or in this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// For agents, `host:port`.
    pub sync: String,
    /// For `status`: the health endpoint, or else the debug port.
    pub status: String,
    /// Whether agents must speak TLS.
    pub tls: bool,
}

impl Local {
    /// Reads the daemon's options from an environment and a file, which may be missing.
    #[must_use]
    pub fn read(file: &Path, environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let loaded = config::load(file, environment);
        let options = Options(&loaded);
        let health = options.flag("HealthEnabled") && options.flag("StatusEnabled");
        let debug = options.port("DebugPort").filter(|_| !health);
        let status = match debug {
            Some(port) => address(options.text("DebugHost"), port),
            None => address(options.text("HealthHost"), options.port("HealthPort").unwrap_or(DEFAULT_HEALTH_PORT)),
        };
        let sync = options.port("ServerPort").unwrap_or(crate::syncserver::DEFAULT_PORT);
        let tls = !options.text("ServerKeyFile").is_empty();
        Self { sync: address(options.text("ServerHost"), sync), status, tls }
    }
}

struct Options<'a>(&'a Loaded);

impl Options<'_> {
    fn value(&self, name: &str) -> Option<&Value> {
        self.0.options.iter().find(|option| option.spec.name == name).map(|option| &option.value)
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Bool(true)))
    }

    /// A port to connect to. 0 is none: the system chose the port, which only the log tells.
    fn port(&self, name: &str) -> Option<u16> {
        match self.value(name) {
            Some(Value::Int(number)) => u16::try_from(*number).ok().filter(|port| *port != 0),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }
}

/// `host:port` to connect to, for a host to listen on.
fn address(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => format!("{HERE}:{port}"),
        Ok(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
        _ if host.is_empty() => format!("{HERE}:{port}"),
        _ => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> (String, String, bool) {
        let environment =
            variables.iter().map(|(name, value)| (OsString::from(format!("TYPHA_{name}")), OsString::from(value)));
        let local = Local::read(Path::new("no-such-file.cfg"), environment);
        (local.sync, local.status, local.tls)
    }

    #[test]
    fn without_options_it_is_where_typha_is() {
        assert_eq!(read(&[]), ("localhost:5473".into(), "localhost:9098".into(), false));
    }

    #[test]
    fn the_daemons_options_say_where_it_is() {
        for (variables, sync, status) in [
            (&[("SERVERHOST", "10.0.0.1"), ("SERVERPORT", "6000")][..], "10.0.0.1:6000", "localhost:9098"),
            (&[("SERVERHOST", "fd00::1")], "[fd00::1]:5473", "localhost:9098"),
            (&[("SERVERHOST", "::")], "localhost:5473", "localhost:9098"),
            (&[("SERVERHOST", "0.0.0.0")], "localhost:5473", "localhost:9098"),
            (&[("HEALTHENABLED", "true"), ("HEALTHPORT", "9099")], "localhost:5473", "localhost:9099"),
            (&[("HEALTHENABLED", "true"), ("HEALTHHOST", "none")], "localhost:5473", "localhost:9098"),
            (&[("HEALTHENABLED", "true"), ("DEBUGPORT", "6060")], "localhost:5473", "localhost:9098"),
            (&[("DEBUGPORT", "6060")], "localhost:5473", "localhost:6060"),
            (
                &[("HEALTHENABLED", "true"), ("STATUSENABLED", "false"), ("DEBUGPORT", "6060"), ("DEBUGHOST", "::1")],
                "localhost:5473",
                "[::1]:6060",
            ),
            // The system chose the port, so it is not known here.
            (&[("HEALTHENABLED", "true"), ("HEALTHPORT", "0")], "localhost:5473", "localhost:9098"),
        ] {
            assert_eq!(read(variables), (sync.into(), status.into(), false), "{variables:?}");
        }
    }

    #[test]
    fn wrong_options_count_as_not_set() {
        let wrong = [("HEALTHENABLED", "perhaps"), ("SERVERPORT", "many"), ("DEBUGPORT", "-5")];
        assert_eq!(read(&wrong), ("localhost:5473".into(), "localhost:9098".into(), false));
    }

    #[test]
    fn tls_is_noticed() {
        assert!(read(&[("SERVERKEYFILE", "Cargo.toml")]).2);
    }
}
