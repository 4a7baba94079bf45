//! The configuration as a whole: sources, precedence, mistakes, generated texts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::config::spec::{Group, Kind, Zero};
use crate::config::table::DEFAULT_FILE;

/// Loads a configuration from a file's text and variables.
fn load_from(file: &str, variables: &[(&str, &str)]) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("typha.cfg");
    fs::write(&path, file).unwrap();
    load(&path, variables.iter().map(|(name, text)| (name.into(), text.into())))
}

fn good(file: &str, variables: &[(&str, &str)]) -> Config {
    load_from(file, variables).config.unwrap()
}

/// The mistakes without the folder of the test's file.
fn mistakes(file: &str, variables: &[(&str, &str)]) -> String {
    let mistakes = load_from(file, variables).config.unwrap_err();
    let lines = mistakes.0.into_iter().map(|mut mistake| {
        if let Source::File { path, .. } = &mut mistake.source {
            *path = PathBuf::from("typha.cfg");
        }
        mistake.to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn warnings(file: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let notices = load_from(file, variables).notices;
    notices.into_iter().filter(|notice| notice.warning).map(|notice| notice.text).collect()
}

#[test]
fn the_table_is_sound() {
    for (at, spec) in OPTIONS.iter().enumerate() {
        let same = OPTIONS.iter().filter(|other| other.name.eq_ignore_ascii_case(spec.name)).count();
        assert_eq!(same, 1, "{} is there once", spec.name);
        assert!(at == 0 || OPTIONS[at - 1].group as u8 <= spec.group as u8, "{} stands in its group", spec.name);
        if !spec.default.is_empty() {
            assert_eq!(parse::value(spec, spec.default).unwrap().to_string(), spec.default, "{}", spec.name);
        }
        if let Zero::Becomes(replacement) = spec.zero {
            assert!(!parse::value(spec, replacement).unwrap().is_zero(), "{}", spec.name);
        }
        assert!(spec.doc.ends_with('.') && !spec.doc.contains('|'), "{}", spec.name);
        assert!(!matches!(spec.kind, Kind::File { must_exist: true }) || spec.default.is_empty(), "{}", spec.name);
    }
}

/// Settings with which no option is idle because of another.
const ALL_COUNT: &str = "ServerKeyFile = /dev/null\nServerCertFile = /dev/null\nCAFile = /dev/null\nClientCN = x\n\
    EtcdKeyFile = /dev/null\nEtcdCertFile = /dev/null\nConnectionRebalancingMode = kubernetes\n\
    PrometheusMetricsCertFile = x\nPrometheusMetricsKeyFile = x\nPrometheusMetricsCAFile = x\n\
    [datastore \"git\"]\nType = file\nPath = /\n[syncer \"mesh\"]\nSources = git\nKinds = v1/ConfigMap\n";

/// A value that the option does not have yet.
fn another(option: &Resolved) -> String {
    match (option.spec.kind, &option.value) {
        (Kind::Bool, Value::Bool(value)) => (!value).to_string(),
        (Kind::Int { .. }, Value::Int(number)) => (number + 1).to_string(),
        (Kind::Seconds, Value::Seconds(seconds)) => (seconds * 1.5).to_string(),
        (Kind::OneOf(words), Value::Text(word)) => words.iter().find(|other| *other != word).unwrap().to_string(),
        (Kind::HostAddress | Kind::Text, _) => "elsewhere".to_owned(),
        (Kind::Authority, _) => "elsewhere:1".to_owned(),
        (Kind::EndpointList, _) => "http://elsewhere".to_owned(),
        (Kind::File { .. }, _) => "/".to_owned(),
        (kind, value) => unreachable!("{kind:?} has no value {value:?}"),
    }
}

#[test]
fn every_option_reaches_the_configuration() {
    const WITHOUT_EFFECT: [&str; 2] = ["PrometheusGoMetricsEnabled", "TYPHA_EARLYLOGSEVERITYSCREEN"];
    let before = load_from(ALL_COUNT, &[]);
    let config = before.config.unwrap();
    for option in &before.options {
        let changed = good(ALL_COUNT, &[(&option.spec.variable(), &another(option))]);
        let name = option.spec.name;
        assert_eq!(changed == config, WITHOUT_EFFECT.contains(&name), "{name}");
        let of_the_server = (changed.server != config.server) || (changed.cache != config.cache);
        assert!(of_the_server || option.spec.group != Group::Server || name == "WorkerThreads", "{name}");
    }
}

#[test]
fn typhas_options_and_defaults() {
    let typhas: Vec<String> = OPTIONS
        .iter()
        .filter(|spec| !spec.ours && !spec.plain_variable)
        .map(|spec| format!("{} = {}", spec.name, spec.default).trim_end().to_owned())
        .collect();
    insta::assert_snapshot!(typhas.join("\n"), @r#"
    DatastoreType = etcdv3
    EtcdEndpoints =
    EtcdAddr = 127.0.0.1:2379
    EtcdScheme = http
    EtcdKeyFile =
    EtcdCertFile =
    EtcdCaFile =
    LogSeverityScreen = INFO
    LogSeverityFile = INFO
    LogSeveritySys = INFO
    LogFilePath = /var/log/calico/typha.log
    DebugDisableLogDropping = false
    HealthEnabled = false
    HealthHost = localhost
    HealthPort = 9098
    PrometheusMetricsEnabled = false
    PrometheusMetricsHost =
    PrometheusMetricsPort = 9093
    PrometheusGoMetricsEnabled = true
    PrometheusProcessMetricsEnabled = true
    PrometheusMetricsCertFile =
    PrometheusMetricsKeyFile =
    PrometheusMetricsCAFile =
    PrometheusMetricsClientAuth = NoClientCert
    ServerHost =
    ServerPort = 0
    SnapshotCacheMaxBatchSize = 100
    ServerMaxMessageSize = 100
    ServerMinBatchingAgeThresholdSecs = 0.01
    ServerMaxFallBehindSecs = 300
    ServerNewClientFallBehindGracePeriod = 300
    ServerPingIntervalSecs = 10
    ServerPongTimeoutSecs = 60
    ServerHandshakeTimeoutSecs = 10
    ServerWriteTimeoutSecs = 120
    ServerKeyFile =
    ServerCertFile =
    CAFile =
    ClientCN =
    ClientURISAN =
    MaxConnectionsUpperLimit = 10000
    MaxConnectionsLowerLimit = 400
    ConnectionRebalancingMode = none
    ConnectionDropIntervalSecs = 1
    ShutdownTimeoutSecs = 300
    ShutdownConnectionDropIntervalMaxSecs = 1
    K8sServicePollIntervalSecs = 30
    K8sNamespace = kube-system
    K8sServiceName = calico-typha
    K8sPortName = calico-typha
    DebugHost = localhost
    DebugPort = 0
    DebugMemoryProfilePath =
    "#);
}

#[test]
fn defaults_are_typhas() {
    let config = good("", &[]);
    assert_eq!(config, Config::default());
    assert_eq!(config.of_calico().datastore_type, DatastoreType::Etcdv3);
    assert_eq!(config.of_calico().etcd.endpoints, ["http://127.0.0.1:2379"]);
    assert_eq!(config.server.port, 5473);
    assert_eq!(config.server.min_batching_age, Duration::from_millis(10));
    assert_eq!(config.server.pong_timeout, Duration::from_secs(60));
    assert_eq!(config.logging.file_path.as_deref(), Some(Path::new("/var/log/calico/typha.log")));
    assert_eq!(config.logging.sys, Some(Severity::Info));
    assert_eq!(config.health.host, "localhost");
    assert_eq!((config.tls, config.debug.port, config.worker_threads), (None, None, None));
    assert_eq!(config.connections.rebalancing, None);
}

#[test]
fn variables_in_any_case_with_equals_signs_in_the_value() {
    let config = good("", &[("tYpHa_K8SNAMESPACE", "a=b"), ("TYPHA_HealthPort", "1"), ("FELIX_HEALTHHOST", "x")]);
    assert_eq!(config.health.port, 1);
    assert_eq!(config.health.host, "localhost");
    let loaded = load_from("", &[("tYpHa_K8SNAMESPACE", "a=b")]);
    let option = loaded.options.iter().find(|option| option.spec.name == "K8sNamespace").unwrap();
    assert_eq!(
        (option.value.to_string().as_str(), option.source.to_string().as_str()),
        ("a=b", "environment variable tYpHa_K8SNAMESPACE")
    );
}

#[test]
fn the_environment_counts_more_whatever_the_case_of_the_key() {
    for key in ["LogSeverityScreen", "logseverityscreen", "LOGSEVERITYSCREEN"] {
        let file = format!("{key} = DEBUG\n");
        assert_eq!(good(&file, &[]).logging.screen, Some(Severity::Debug), "{key}");
        assert_eq!(good(&file, &[("TYPHA_LOGSEVERITYSCREEN", "ERROR")]).logging.screen, Some(Severity::Error), "{key}");
    }
}

#[test]
fn sections_mean_nothing_and_the_last_setting_counts() {
    for [first, second] in
        [["[a]", "[b]"], ["[global]", "[datastore]"], ["[a]", "[b \"c\"]"], ["[b \"c\"]", "[b \"d\"]"]]
    {
        let file = format!("{first}\nHealthPort = 1\n{second}\nhealthport = 2\n");
        assert_eq!(good(&file, &[]).health.port, 2, "{file}");
        let said = warnings(&file, &[]);
        let expected = said[0].starts_with("HealthPort is given twice: ") && said[0].contains("typha.cfg:4 counts");
        assert!(expected, "{said:?}");
    }
}

#[test]
fn an_empty_value_is_no_value() {
    assert_eq!(good("HealthPort = 1\nHealthPort =\n", &[]).health.port, 1);
    assert_eq!(good("HealthPort = 1\n", &[("TYPHA_HEALTHPORT", "")]).health.port, 1);
    assert_eq!(good("", &[("TYPHA_HEALTHPORT", "")]).health.port, 9098);
}

#[test]
fn none_is_the_empty_value() {
    let config = good(
        "LogFilePath = None\nLogSeveritySys = none\nHealthHost = NONE\nMaxConnectionsLowerLimit = none\nHealthPort = none\n",
        &[("TYPHA_PROMETHEUSPROCESSMETRICSENABLED", "none")],
    );
    assert_eq!((config.logging.file_path, config.logging.sys), (None, None));
    assert_eq!((config.health.host.as_str(), config.health.port), ("", 0));
    assert_eq!(config.connections.lower_limit, 0);
    assert!(!config.metrics.process);
    insta::assert_snapshot!(mistakes("DatastoreType = none", &[]), @r#"DatastoreType = "none" (typha.cfg:1): expected one of kubernetes, etcdv3, file; it cannot be none"#);
}

#[test]
fn zero_and_less_become_what_the_table_says() {
    for text in ["0", "-1", "none", "-0.0"] {
        let config =
            good(&format!("ServerMinBatchingAgeThresholdSecs = {text}\nServerWriteTimeoutSecs = {text}\n"), &[]);
        assert_eq!(config.server.min_batching_age, Duration::from_millis(100), "{text}");
        assert_eq!(config.server.write_timeout, Duration::from_secs(120), "{text}");
    }
    let config = good("MaxConnectionsUpperLimit = none\nSnapshotCacheMaxBatchSize = none\nServerPort = 0\n", &[]);
    assert_eq!(config.server.max_connections, 2_147_483_647);
    assert_eq!((config.cache.max_batch_size, config.server.port), (100, 5473));
    assert_eq!(good("ServerPaceMaxSecs = -1", &[]).server.pace_max, Duration::ZERO);
}

#[test]
fn a_pong_timeout_that_is_too_short_becomes_six_pings() {
    for (ping, pong, expected) in [("10", "20", 60), ("10", "21", 21), ("10", "-5", 60), ("30", "60", 180)] {
        let file = format!("ServerPingIntervalSecs = {ping}\nServerPongTimeoutSecs = {pong}\n");
        assert_eq!(good(&file, &[]).server.pong_timeout, Duration::from_secs(expected), "{ping} {pong}");
    }
}

#[test]
fn all_mistakes_at_once_with_option_value_source_and_what_is_accepted() {
    let said = mistakes(
        "DatastoreType = etcd\nHealthPort: 70000\n[x\nServerPingIntervalSecs = 10s\nCAFile = /no/such/ca.pem\n",
        &[
            ("TYPHA_ETCDENDPOINTS", "https://root:secret@etcd:2379"),
            ("TYPHA_LOGSEVERITYSCREEN", "TRACE"),
            ("TLS_MIN_VERSION", "1.1"),
        ],
    );
    insta::assert_snapshot!(said, @r#"
    line = "[x" (typha.cfg:3): expected Name = value, [section], or a comment that begins with # or ;; the section's name has no closing bracket
    DatastoreType = "etcd" (typha.cfg:1): expected one of kubernetes, etcdv3, file
    EtcdEndpoints = "https://***@etcd:2379" (environment variable TYPHA_ETCDENDPOINTS): expected http:// or https:// URLs separated by commas, all of one scheme, without user, path or query; "https://***@etcd:2379" has a user in it
    LogSeverityScreen = "TRACE" (environment variable TYPHA_LOGSEVERITYSCREEN): expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL
    HealthPort = "70000" (typha.cfg:2): expected a whole number from 0 to 65535; it is out of range
    ServerPingIntervalSecs = "10s" (typha.cfg:4): expected a number of seconds without a unit, for example 10 or 0.5; leave the unit away and write seconds: "10s" is not understood
    CAFile = "/no/such/ca.pem" (typha.cfg:5): expected an existing path; No such file or directory (os error 2); check the path and, in a container, that the volume is mounted
    TLS_MIN_VERSION = "1.1" (environment variable TLS_MIN_VERSION): expected one of 1.2, 1.3
    ServerKeyFile = "" (default): expected a value, because TLS is switched on by CAFile
    ServerCertFile = "" (default): expected a value, because TLS is switched on by CAFile
    ClientCN = "" (default): expected a value, because TLS is switched on by CAFile; set it, ClientURISAN or both: without them any certificate of the CA would do
    "#);
}

#[test]
fn a_wrong_value_in_the_environment_does_not_bring_the_files_value_back() {
    assert!(
        mistakes("HealthPort = 1\n", &[("TYPHA_HEALTHPORT", "x")]).contains("environment variable TYPHA_HEALTHPORT")
    );
}

#[test]
fn a_wrong_value_that_is_overridden_is_a_warning() {
    let said = warnings("HealthPort = x\n", &[("TYPHA_HEALTHPORT", "1")]);
    assert!(said[0].ends_with("it is overridden by the environment"), "{said:?}");
    assert_eq!(good("HealthPort = x\n", &[("TYPHA_HEALTHPORT", "1")]).health.port, 1);
}

#[test]
fn unknown_names_are_reported_and_ignored() {
    let said = warnings(
        "MetadataAddr = None\nLogSeverityScren = INFO\n",
        &[("TYPHA_LOG_SEVERITY_SCREEN", "INFO"), ("TYPHA_FIPSMODEENABLED", "false"), ("TYPHA_", "x")],
    );
    assert_eq!(said.len(), 5, "{said:?}");
    assert!(said[0].ends_with("no option has this name; did you mean LogSeverityScreen?"), "{said:?}");
    assert!(
        said[1].starts_with("ignoring FIPSMODEENABLED from environment variable TYPHA_FIPSMODEENABLED"),
        "{said:?}"
    );
    assert!(said[4].ends_with("did you mean LogSeverityScreen?"), "{said:?}");
    assert!(said.iter().all(|said| said.starts_with("ignoring ")));
}

#[test]
fn a_missing_file_is_an_empty_one() {
    let loaded = load(Path::new("/no/such/file"), []);
    assert!(loaded.config.is_ok());
    assert_eq!(
        loaded.notices,
        [Notice::info("there is no file /no/such/file: no option is read from a file".to_owned())]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    assert!(load(folder.path(), []).config.unwrap_err().to_string().contains("configuration file = "));
    let path = folder.path().join("x");
    fs::write(&path, b"HealthPort = \xff\n").unwrap();
    assert!(load(&path, []).config.unwrap_err().to_string().contains("UTF-8"));
    fs::write(&path, " ".repeat(2 << 20)).unwrap();
    assert!(load(&path, []).config.unwrap_err().to_string().contains("it is too long"));
    assert!(load(Path::new("/dev/zero"), []).config.is_err());
}

#[test]
fn text_that_is_not_utf8_is_a_mistake_only_where_it_is_ours() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || OsString::from_vec(vec![0xff]);
    let loaded = load(Path::new("/no/such/file"), [(odd(), "x".into()), ("OTHER".into(), odd())]);
    assert!(loaded.config.is_ok());
    let loaded = load(Path::new("/no/such/file"), [("TYPHA_HEALTHHOST".into(), odd())]);
    assert!(loaded.config.unwrap_err().to_string().contains("expected text in UTF-8"));
}

/// A file that exists, for options that need one.
const HERE: &str = "/dev/null";

#[test]
fn tls_is_all_or_nothing() {
    let options = ["ServerKeyFile", "ServerCertFile", "CAFile", "ClientCN", "ClientURISAN"];
    for set in 0..1_u8 << options.len() {
        let is_set = |at: usize| set & (1 << at) != 0;
        let lines = (0..options.len()).filter(|at| is_set(*at)).map(|at| format!("{} = {HERE}", options[at]));
        let file = lines.collect::<Vec<_>>().join("\n");
        let complete = is_set(0) && is_set(1) && is_set(2) && (is_set(3) || is_set(4));
        let loaded = load_from(&file, &[]);
        assert_eq!(loaded.config.is_ok(), set == 0 || complete, "{file}");
        if let Ok(config) = loaded.config {
            assert_eq!(config.tls.is_some(), complete);
        }
    }
    insta::assert_snapshot!(mistakes("ClientCN = x", &[]), @r#"
    ServerKeyFile = "" (default): expected a value, because TLS is switched on by ClientCN
    ServerCertFile = "" (default): expected a value, because TLS is switched on by ClientCN
    CAFile = "" (default): expected a value, because TLS is switched on by ClientCN
    "#);
    insta::assert_snapshot!(mistakes(&format!("ServerKeyFile = {HERE}\nServerCertFile = {HERE}\nCAFile = {HERE}"), &[]), @r#"ClientCN = "" (default): expected a value, because TLS is switched on by ServerKeyFile, ServerCertFile, CAFile; set it, ClientURISAN or both: without them any certificate of the CA would do"#);
    // Typha starts without TLS here.
    insta::assert_snapshot!(mistakes("ServerKeyFile = /no/such/key\n", &[]), @r#"
    ServerKeyFile = "/no/such/key" (typha.cfg:1): expected an existing path; No such file or directory (os error 2); check the path and, in a container, that the volume is mounted
    ServerCertFile = "" (default): expected a value, because TLS is switched on by ServerKeyFile
    CAFile = "" (default): expected a value, because TLS is switched on by ServerKeyFile
    ClientCN = "" (default): expected a value, because TLS is switched on by ServerKeyFile; set it, ClientURISAN or both: without them any certificate of the CA would do
    "#);
}

#[test]
fn etcd_needs_endpoints_and_both_halves_of_a_certificate() {
    let config = good("EtcdEndpoints = https://a:1, https://b:2\nEtcdAddr = none\n", &[]);
    assert_eq!(config.of_calico().etcd.endpoints, ["https://a:1/", "https://b:2/"]);
    assert_eq!(good("EtcdAddr = a:1\nEtcdScheme = HTTPS", &[]).of_calico().etcd.endpoints, ["https://a:1"]);
    insta::assert_snapshot!(mistakes("EtcdAddr = none\nEtcdScheme = none", &[]), @r#"
    EtcdScheme = "" (typha.cfg:2): expected a value, because DatastoreType is etcdv3 and EtcdEndpoints is empty; set EtcdEndpoints
    EtcdAddr = "" (typha.cfg:1): expected a value, because DatastoreType is etcdv3 and EtcdEndpoints is empty; set EtcdEndpoints
    "#);
    insta::assert_snapshot!(mistakes(&format!("EtcdCertFile = {HERE}"), &[]), @r#"EtcdKeyFile = "" (default): expected a value, because EtcdCertFile is set"#);
    assert!(load_from("EtcdAddr = none\nDatastoreType = kubernetes", &[]).config.is_ok());
}

#[test]
fn a_folder_needs_a_path() {
    insta::assert_snapshot!(mistakes("DatastoreType = file", &[]), @r#"DatastorePath = "" (default): expected a folder, because DatastoreType is file"#);
    let config = good("DatastoreType = File\nDatastorePath = /\nFileQuietSecs = 1", &[]);
    assert_eq!(config.of_calico().datastore_type, DatastoreType::File);
    assert_eq!(config.of_calico().file.path.as_deref(), Some(Path::new("/")));
    assert_eq!(config.of_calico().file.quiet, Duration::from_secs(1));
}

#[test]
fn https_metrics_need_a_ca() {
    insta::assert_snapshot!(mistakes("PrometheusMetricsCertFile = c\nPrometheusMetricsKeyFile = k", &[]), @r#"PrometheusMetricsCAFile = "" (default): expected a value, because PrometheusMetricsCertFile and PrometheusMetricsKeyFile are set"#);
    assert_eq!(good("PrometheusMetricsCAFile = c", &[]).metrics.tls, None);
    let file = "PrometheusMetricsCAFile = a\nPrometheusMetricsCertFile = c\nPrometheusMetricsKeyFile = k\n\
                PrometheusMetricsClientAuth = requireanyclientcert";
    let tls = good(file, &[("TLS_MIN_VERSION", "1.3"), ("TLS_CIPHER_SUITES", "A, B")]).metrics.tls.unwrap();
    assert_eq!(tls.client_auth, MetricsClientAuth::RequireAnyClientCert);
    assert_eq!((tls.min_version, tls.cipher_suites.as_str()), (TlsVersion::V1_3, "A, B"));
}

#[test]
fn rebalancing_needs_a_poll_interval() {
    assert_eq!(good("K8sServicePollIntervalSecs = 0", &[]).connections.rebalancing, None);
    insta::assert_snapshot!(mistakes("ConnectionRebalancingMode = kubernetes\nK8sServicePollIntervalSecs = -1", &[]), @r#"K8sServicePollIntervalSecs = "-1" (typha.cfg:2): expected more than 0 seconds, because ConnectionRebalancingMode is kubernetes"#);
    let rebalancing = good("ConnectionRebalancingMode = kubernetes", &[]).connections.rebalancing.unwrap();
    assert_eq!(rebalancing.poll_interval, Duration::from_secs(30));
    assert_eq!(good("ConnectionRebalancingMode = none", &[]).connections.rebalancing, None);
}

#[test]
fn the_early_level_comes_from_exact_names() {
    let level =
        |variables: &[(&str, &str)]| early_level(variables.iter().map(|(name, text)| (name.into(), text.into())));
    let (early, screen) = ("TYPHA_EARLYLOGSEVERITYSCREEN", "TYPHA_LOGSEVERITYSCREEN");
    assert_eq!(level(&[]), Severity::Error);
    assert_eq!(level(&[(screen, "Debug")]), Severity::Debug);
    assert_eq!(level(&[(screen, "debug"), (early, "warn")]), Severity::Warning);
    assert_eq!(level(&[("typha_logseverityscreen", "debug")]), Severity::Error);
    assert_eq!(level(&[(early, ""), (screen, "info")]), Severity::Info);
    assert_eq!(level(&[(early, "loud"), (screen, "info")]), Severity::Error);
    assert!(mistakes("", &[("TYPHA_EARLYLOGSEVERITYSCREEN", "loud")]).contains("expected one of trace, debug"));
}

/// A path of the source tree.
fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares a text of the source tree with the text that the table generates. If they differ, leaves the latter under `target/`.
fn holds(name: &str, found: &str, generated: &str) {
    if found != generated {
        let path = in_tree("target").join(name.replace('/', "-"));
        fs::create_dir_all(in_tree("target")).unwrap();
        fs::write(&path, generated).unwrap();
        panic!("{name} is not what the option table generates, which is now in {}", path.display());
    }
}

#[test]
fn the_shipped_file_is_what_the_table_generates() {
    holds(
        "config/typha.cfg",
        &fs::read_to_string(in_tree("config/typha.cfg")).unwrap_or_default(),
        &render::cfg(&load_from("", &[]).options),
    );
}

#[test]
fn the_shipped_file_means_the_defaults_with_or_without_its_comment_signs() {
    let text = render::cfg(&load_from("", &[]).options);
    let defaults = good("", &[]);
    assert_eq!(good(&text, &[]), defaults);
    let active: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|c: char| c.is_ascii_alphabetic()) => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(active.contains("\nHealthPort = 9098\n"));
    assert_eq!(good(&active, &[]), defaults);
    assert_eq!(warnings(&active, &[]), [] as [String; 0]);
}

#[test]
fn the_effective_configuration_as_a_file_reads_back() {
    let file = "HealthHost = none\nK8sNamespace = `a#b;c`\nClientCN = \"\"\"it's `odd`\"\"\"\nServerKeyFile = /\n\
                ServerCertFile = /\nCAFile = /\nEtcdEndpoints = http://a:1,http://b:2\nServerPingIntervalSecs = 0x10p0\n";
    let loaded = load_from(file, &[]);
    let config = loaded.config.unwrap();
    assert_eq!(config.tls.as_ref().unwrap().client_cn.as_deref(), Some("it's `odd`"));
    assert_eq!(good(&render::cfg(&loaded.options), &[]), config);
}

#[test]
fn the_documentation_has_the_table() {
    let document = fs::read_to_string(in_tree("docs/operations.md")).unwrap();
    let (_, rest) = document.split_once("<!-- options: generated, a test holds it against the table -->\n\n").unwrap();
    let (table, _) = rest.split_once("<!-- end of options -->").unwrap();
    holds("docs/options.md", table, &render::markdown());
    assert!(document.contains(DEFAULT_FILE));
}
