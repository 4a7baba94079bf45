//! Named sections: what they give, and what is wrong with them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::MAX_SECTIONS;
use crate::config::list::MAX_ITEMS;
use crate::config::spec::{Item, Kind, Section};
use crate::config::table::{IN_SECTIONS, of_section};
use crate::config::{
    Config, DatastoreType, Documents, GLOBAL, Loaded, Source, Value, exercise, load_text, parse, render,
};
use crate::validate::filter::OnInvalid;

fn load(file: &str) -> Loaded {
    load_with(file, &[])
}

fn load_with(file: &str, variables: &[(&str, &str)]) -> Loaded {
    let variables = variables.iter().map(|(name, text)| (name.into(), text.into()));
    load_text(Path::new("typha.cfg"), file, variables)
}

fn good(file: &str) -> Config {
    load(file).config.unwrap()
}

/// The mistakes, one a line.
fn mistakes(file: &str) -> String {
    let mistakes = load(file).config.unwrap_err().0;
    mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn warnings(file: &str) -> Vec<String> {
    load(file).notices.into_iter().filter(|notice| notice.warning).map(|notice| notice.text).collect()
}

/// A datastore and a syncer without mistakes. Settings after it are the syncer's.
const SMALL: &str =
    "[datastore \"git\"]\nType = file\nPath = /\n[syncer \"mesh\"]\nSources = git\nKinds = v1/ConfigMap\n";

/// Every option of both sections is set, but for what other types of datastores have.
const LARGE: &str = "CalicoSyncers = none\n\
    [datastore \"git\"]\ntype = File\nPath = /\nQuietSecs = 1\nServeIncomplete = true\nMassDeleteGuard = OFF\n\
    Required = false\nSyncTimeoutSecs = 5\n\
    [DataStore \"etcd\"] # shared\nType: etcdv3\nEndpoints: https://a:2379,https://b:2379\nKeyFile = /dev/null\n\
    CertFile = /dev/null\nCaFile = /dev/null\nPrefix = `/me#sh;/`\nFormat = raw\n\
    [datastore \"cluster\"]\nType = kubernetes\nKubeconfig = /dev/null\n\
    [syncer \"mesh\"]\nSources = cluster, git,etcd\nKinds = networking.istio.io/v1/VirtualService, v1/ConfigMap, \\\n\
    gateway.networking.k8s.io/*\nNamespaces = a, b\nSelector = app in (web,shop),tier!=old\nFolder = ./apps/web\n\
    Schemas = /dev/null, /\nOnInvalid = drop\nQuietSecs = 1\nMaxDelaySecs = 1\nStatus = true\nReady = false\n\
    [syncer \"bytes\"]\nSources = etcd\nKinds = bulrush.io/v1/Bytes\n";

#[test]
fn the_table_of_sections_is_sound() {
    for spec in IN_SECTIONS.iter() {
        let same = of_section(spec.section).filter(|other| other.name.eq_ignore_ascii_case(spec.name)).count();
        assert_eq!(same, 1, "{} is there once", spec.name);
        if !spec.default.is_empty() {
            assert_eq!(parse::value(spec, spec.default).unwrap().to_string(), spec.default, "{}", spec.name);
        }
        assert!(spec.doc.ends_with('.') && !spec.doc.contains('|'), "{}", spec.name);
        assert!(!spec.required || spec.default.is_empty(), "{}", spec.name);
        assert!(!spec.plain_variable && !spec.ours, "{}: no option of a section is Typha's", spec.name);
    }
    assert_eq!(of_section(Section::Datastore).next().unwrap().name, "Type", "the type decides about the others");
}

#[test]
fn a_small_file_has_the_defaults() {
    let config = good(SMALL);
    assert!(config.calico_syncers);
    let names: Vec<&str> = config.datastores.iter().map(|datastore| &*datastore.name).collect();
    assert_eq!(names, [GLOBAL, "git"]);
    let git = &config.datastores[1];
    assert_eq!((git.datastore_type, git.file.path.as_deref()), (DatastoreType::File, Some(Path::new("/"))));
    assert_eq!((git.file.quiet, git.sync_timeout), (Duration::from_millis(250), Duration::from_secs(60)));
    assert!(git.required && git.read_only && git.file.mass_delete_guard && !git.file.serve_incomplete);
    let mesh = &config.syncers[0];
    assert_eq!(
        (mesh.name.as_str(), mesh.sources.join(","), mesh.kinds[0].to_string()),
        ("mesh", "git".into(), "v1/ConfigMap".into())
    );
    assert_eq!((mesh.quiet, mesh.max_delay), (Duration::from_millis(500), Duration::from_secs(2)));
    assert!(mesh.namespaces.is_empty() && mesh.selector.is_empty() && mesh.folder.as_os_str().is_empty());
    assert!(mesh.schemas.is_empty() && mesh.on_invalid == OnInvalid::KeepLast && !mesh.status && mesh.ready);
}

#[test]
fn a_large_file_sets_everything() {
    let loaded = load_with(
        LARGE,
        &[("KUBECONFIG", "/no/such/file"), ("K8S_API_ENDPOINT", "https://other"), ("K8S_CLIENT_QPS", "7")],
    );
    let config = loaded.config.unwrap();
    assert!(!config.calico_syncers);
    let names: Vec<&str> = config.datastores.iter().map(|datastore| &*datastore.name).collect();
    assert_eq!(names, ["git", "etcd", "cluster"], "nothing of Calico's is opened");
    let [git, etcd, cluster] = &config.datastores[..] else { unreachable!("there are three") };
    assert_eq!((git.file.quiet, git.sync_timeout), (Duration::from_secs(1), Duration::from_secs(5)));
    assert!(!git.required && !git.file.mass_delete_guard && git.file.serve_incomplete);
    assert_eq!(etcd.etcd.endpoints, ["https://a:2379/", "https://b:2379/"]);
    assert_eq!(etcd.etcd.documents, Some(Documents { prefix: "/me#sh;/".to_owned(), raw: true }));
    assert!(etcd.etcd.key_file.is_some() && etcd.etcd.cert_file.is_some() && etcd.etcd.ca_file.is_some());
    // A kubeconfig names another server than the variables.
    assert_eq!(cluster.kubernetes.kubeconfig, [PathBuf::from("/dev/null")]);
    assert_eq!((cluster.kubernetes.endpoint.as_ref(), cluster.kubernetes.qps), (None, 7.0));
    let [mesh, bytes] = &config.syncers[..] else { unreachable!("there are two") };
    assert_eq!(mesh.sources, ["cluster", "git", "etcd"]);
    let kinds: Vec<String> = mesh.kinds.iter().map(ToString::to_string).collect();
    assert_eq!(kinds, ["networking.istio.io/v1/VirtualService", "v1/ConfigMap", "gateway.networking.k8s.io/*"]);
    assert_eq!(mesh.namespaces, ["a", "b"]);
    assert_eq!((&*mesh.selector, &*mesh.folder), ("app in (web,shop),tier!=old", Path::new("apps/web")));
    assert_eq!(mesh.schemas, [Path::new("/dev/null"), Path::new("/")]);
    assert_eq!(
        (mesh.on_invalid, mesh.quiet, mesh.max_delay),
        (OnInvalid::Absent, Duration::from_secs(1), Duration::from_secs(1))
    );
    assert!(mesh.status && !mesh.ready);
    assert_eq!(bytes.name.as_str(), "bytes");
}

/// A value that an option of a section does not have in `LARGE`.
fn another(name: &str, kind: Kind, value: &Value) -> String {
    match (kind, value) {
        (Kind::Bool, Value::Bool(value)) => (!value).to_string(),
        // A longer quiet time would be longer than the longest delay.
        (Kind::Seconds, Value::Seconds(seconds)) if name == "QuietSecs" => (seconds * 0.5).to_string(),
        (Kind::Seconds, Value::Seconds(seconds)) => (seconds * 1.5).to_string(),
        (Kind::OneOf(words), Value::Text(word)) => words.iter().find(|other| *other != word).unwrap().to_string(),
        (Kind::EndpointList, _) => "http://elsewhere".to_owned(),
        (Kind::File { .. } | Kind::ListOf(Item::ExistingPath), _) => "/etc".to_owned(),
        (Kind::Prefix, _) => "/elsewhere/".to_owned(),
        (Kind::InnerPath | Kind::Selector | Kind::ListOf(Item::Namespace), _) => "elsewhere".to_owned(),
        (Kind::ListOf(Item::Datastore), _) => "etcd,git".to_owned(),
        (Kind::ListOf(Item::Pattern), _) => "bulrush.io/*".to_owned(),
        (kind, value) => unreachable!("{name}: {kind:?} has no value {value:?}"),
    }
}

#[test]
fn every_option_of_a_section_reaches_the_configuration() {
    let before = load(LARGE);
    let config = before.config.unwrap();
    let mut seen = 0;
    for section in &before.sections {
        for option in &section.options {
            // Another type has other options; the guard's word has no third one.
            if option.spec.name == "Type" {
                continue;
            }
            let name = option.spec.name;
            let setting = format!("{name} = {}\n", another(name, option.spec.kind, &option.value));
            // The last setting of a section counts, and a section ends where the next one begins.
            let start = LARGE.to_lowercase().find(&section.heading()).unwrap();
            let end = LARGE[start + 1..].find("\n[").map_or(LARGE.len(), |end| start + end + 2);
            let file = format!("{}{setting}{}", &LARGE[..end], &LARGE[end..]);
            assert_ne!(good(&file), config, "{} {name}", section.heading());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn the_effective_sections_as_a_file_read_back() {
    for file in [SMALL, LARGE] {
        let loaded = load(file);
        let config = loaded.config.unwrap();
        let printed = render::cfg(&loaded.options) + &render::cfg_sections(&loaded.sections);
        assert_eq!(good(&printed), config, "{printed}");
    }
}

#[test]
fn sections_are_printed_as_tables_and_as_json() {
    let loaded = load(SMALL);
    let table = render::table(&loaded);
    let (_, sections) = table.split_once("\n* not an option of Typha's\n").unwrap();
    let squeezed: Vec<String> =
        sections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    insta::assert_snapshot!(squeezed.join("\n"), @r#"

    [datastore "git"] typha.cfg:1
    OPTION VALUE DEFAULT FROM
    Type file - typha.cfg:2
    Path / - typha.cfg:3
    QuietSecs 0.25 0.25 default
    ServeIncomplete false false default
    MassDeleteGuard on on default
    Required true true default
    SyncTimeoutSecs 60 60 default

    [syncer "mesh"] typha.cfg:4
    OPTION VALUE DEFAULT FROM
    Sources git - typha.cfg:5
    Kinds v1/ConfigMap - typha.cfg:6
    Namespaces * * default
    Selector - - default
    Folder - - default
    Schemas - - default
    OnInvalid keep keep default
    QuietSecs 0.5 0.5 default
    MaxDelaySecs 2 2 default
    Status false false default
    Ready true true default
    "#);
    let json: serde_json::Value = serde_json::from_str(&render::json(&loaded)).unwrap();
    assert_eq!((&json["sections"][1]["kind"], &json["sections"][1]["name"]), (&"syncer".into(), &"mesh".into()));
    assert_eq!(json["sections"][1]["options"][1]["value"][0], "v1/ConfigMap");
}

#[test]
fn a_syncer_may_be_fed_by_the_datastore_outside_of_sections() {
    let syncer = "[syncer \"mesh\"]\nSources = global\nKinds = v1/ConfigMap\n";
    let config = good(&format!("CalicoSyncers = none\nDatastoreType = kubernetes\n{syncer}"));
    assert_eq!(config.datastores.iter().map(|datastore| &*datastore.name).collect::<Vec<_>>(), [GLOBAL]);
    insta::assert_snapshot!(mistakes(syncer), @r#"[syncer "mesh"] Sources = "global" (typha.cfg:2): expected datastores that may hold objects of any kind; global is an etcd with Calico's objects (DatastoreType); describe other prefixes of it in a section [datastore "name"] with Type = etcdv3"#);
}

#[test]
fn all_mistakes_of_sections_at_once() {
    insta::assert_snapshot!(mistakes(
        "HealthPort = x\n[datasore \"git\"]\nType = file\nPaht = /\n[datastore \"etcd\"]\nType = etcdv3\nEndpoints = http://user:secret@a\n\
         KeyFile = /dev/null\nPrefix = /mesh\nPath = /\nHealthPort = 1\n[datastore \"none\"]\n[datastore \"git\"]\nType = Kubernets\n\
         [syncer \"felix\"]\nSources = gti, etc\n[syncer \"Mesh Two\"]\nSources = git, git\nKinds = ConfigMap, v1/configMap\nNamespaces = *, A\n\
         Selector = app=\"web\"\nFolder = ../x\nSchemas = /no/such, /\nOnInvalid = stop\nQuietSecs = 3\nmax_delay_sec = 1\nUnlike = x\n",
    ), @r#"
    section = "[datasore \"git\"]" (typha.cfg:2): expected a section [datastore "name"] or [syncer "name"]; did you mean "datastore"?
    HealthPort = "x" (typha.cfg:1): expected a whole number from 0 to 65535
    [datastore "git"] Paht = "/" (typha.cfg:4): expected one of Type, Path, QuietSecs, ServeIncomplete, MassDeleteGuard, Required, SyncTimeoutSecs; did you mean "Path"?
    [datastore "git"] Path = "" (typha.cfg:2): expected an existing path; the section needs it
    [datastore "etcd"] Endpoints = "http://***@a" (typha.cfg:7): expected http:// or https:// URLs separated by commas, all of one scheme, without user, path or query; "http://***@a" has a user in it
    [datastore "etcd"] Prefix = "/mesh" (typha.cfg:9): expected a text that ends in /; write /mesh/: without it, /meshx would be meant too
    [datastore "etcd"] Path = "/" (typha.cfg:10): expected one of Type, Endpoints, KeyFile, CertFile, CaFile, Prefix, Format, Required, SyncTimeoutSecs, because Type is etcdv3; Path is for Type = file
    [datastore "etcd"] HealthPort = "1" (typha.cfg:11): expected one of Type, Endpoints, KeyFile, CertFile, CaFile, Prefix, Format, Required, SyncTimeoutSecs; HealthPort stands outside of named sections, for example at the top of the file
    [datastore "etcd"] CertFile = "" (typha.cfg:5): expected a value, because KeyFile is set
    [datastore "none"] Type = "" (typha.cfg:12): expected one of file, etcdv3, kubernetes; the section needs it
    section = "[datastore \"git\"]" (typha.cfg:13): expected a section that is there once; the first one is at typha.cfg:2: put all settings there, or choose another name
    [datastore "git"] Type = "Kubernets" (typha.cfg:14): expected one of file, etcdv3, kubernetes; did you mean "kubernetes"?
    [syncer "felix"] Kinds = "" (typha.cfg:15): expected group/version/Kind, version/Kind (Kubernetes' core group) or group/*, separated by commas; the section needs it
    section = "[syncer \"Mesh Two\"]" (typha.cfg:17): expected a name of 1 to 63 lower-case letters, digits and - inside; did you mean [syncer "mesh-two"]?
    [syncer "Mesh Two"] Sources = "git, git" (typha.cfg:18): expected names of datastore sections, separated by commas; "git" is there twice
    [syncer "Mesh Two"] Kinds = "ConfigMap, v1/configMap" (typha.cfg:19): expected group/version/Kind, version/Kind (Kubernetes' core group) or group/*, separated by commas; "ConfigMap" names no kind: write group/version/Kind, version/Kind for Kubernetes' core group, or group/*; "v1/configMap" names no kind: the kind begins with a capital letter and has letters and digits, for example ConfigMap
    [syncer "Mesh Two"] Namespaces = "*, A" (typha.cfg:20): expected * or namespaces, separated by commas; "A" is no name of a namespace; * stands for all namespaces: write it alone
    [syncer "Mesh Two"] Selector = "app=\"web\"" (typha.cfg:21): expected a label selector, for example app=web,tier in (a,b),!old; "\"web\"" is no value of a label
    [syncer "Mesh Two"] Folder = "../x" (typha.cfg:22): expected a path below the folder; .. is not accepted
    [syncer "Mesh Two"] Schemas = "/no/such, /" (typha.cfg:23): expected existing paths, separated by commas; /no/such: No such file or directory (os error 2); check the path and, in a container, that the volume is mounted
    [syncer "Mesh Two"] OnInvalid = "stop" (typha.cfg:24): expected one of keep, drop, pass
    [syncer "Mesh Two"] max_delay_sec = "1" (typha.cfg:26): expected one of Sources, Kinds, Namespaces, Selector, Folder, Schemas, OnInvalid, QuietSecs, MaxDelaySecs, Status, Ready; did you mean "MaxDelaySecs"?
    [syncer "Mesh Two"] Unlike = "x" (typha.cfg:27): expected one of Sources, Kinds, Namespaces, Selector, Folder, Schemas, OnInvalid, QuietSecs, MaxDelaySecs, Status, Ready
    [syncer "Mesh Two"] QuietSecs = "3" (typha.cfg:25): expected at most MaxDelaySecs, which is 2; after MaxDelaySecs changes are published without quiet
    section = "[syncer \"felix\"]" (typha.cfg:15): expected another name than those of Calico's syncers: felix, bgp, tunnel-ip-allocation, node-status; agents of Calico would take its data for Calico's
    [syncer "felix"] Sources = "gti,etc" (typha.cfg:16): expected names of datastore sections: etcd, git, global, none; there is no section [datastore "gti"]; did you mean "git"?
    [syncer "felix"] Sources = "gti,etc" (typha.cfg:16): expected names of datastore sections: etcd, git, global, none; there is no section [datastore "etc"]; did you mean "etcd"?
    "#);
}

#[test]
fn each_mistake_by_itself() {
    // Lines that are added to a small file, the beginning and the end of its only mistake.
    for (added, begins, ends) in [
        (
            "[syncr \"x\"]\nSources = git\nKinds = v1/Pod\n",
            "section = \"[syncr \\\"x\\\"]\" (typha.cfg:7): ",
            "did you mean \"syncer\"?",
        ),
        (
            "[syncer \"mesh\"]\nSources = git\nKinds = v1/Pod\n",
            "section = \"[syncer \\\"mesh\\\"]\" (typha.cfg:7): expected a section that is there once",
            "choose another name",
        ),
        (
            "[syncer \"bgp\"]\nSources = git\nKinds = v1/Pod\n",
            "section = \"[syncer \\\"bgp\\\"]\" (typha.cfg:7): ",
            "for Calico's",
        ),
        (
            "[syncer \"-x\"]\nSources = git\nKinds = v1/Pod\n",
            "section = \"[syncer \\\"-x\\\"]\" (typha.cfg:7): expected a name of 1 to 63",
            "inside",
        ),
        ("[syncer \"X y\"]\nSources = git\nKinds = v1/Pod\n", "section = ", "did you mean [syncer \"x-y\"]?"),
        (
            "[datastore \"global\"]\nType = file\nPath = /\n",
            "section = \"[datastore \\\"global\\\"]\"",
            "sections describe",
        ),
        (
            "Kind = v1/Pod\n",
            "[syncer \"mesh\"] Kind = \"v1/Pod\" (typha.cfg:7): expected one of Sources, Kinds, ",
            "did you mean \"Kinds\"?",
        ),
        ("ServerPort = 1\n", "[syncer \"mesh\"] ServerPort = \"1\" (typha.cfg:7): ", "the top of the file"),
        (
            "Sources = git, clustr\n[datastore \"cluster\"]\nType = kubernetes\n",
            "[syncer \"mesh\"] Sources = \"git,clustr\" (typha.cfg:7): expected names of datastore sections: cluster, git, global",
            "did you mean \"cluster\"?",
        ),
        ("Sources = git, git\n", "[syncer \"mesh\"] Sources = \"git, git\"", "\"git\" is there twice"),
        (
            "Sources = none\n",
            "[syncer \"mesh\"] Sources = \"\" (typha.cfg:7): expected names of",
            "the section needs it",
        ),
        (
            "Kinds = ,\n",
            "[syncer \"mesh\"] Kinds = \"\" (typha.cfg:7): expected group/version/Kind",
            "the section needs it",
        ),
        ("Kinds = ConfigMap\n", "[syncer \"mesh\"] Kinds = \"ConfigMap\" (typha.cfg:7): ", "or group/*"),
        ("Namespaces = a, *\n", "[syncer \"mesh\"] Namespaces", "write it alone"),
        ("Namespaces = a_b\n", "[syncer \"mesh\"] Namespaces", "\"a_b\" is no name of a namespace"),
        ("Selector = app=(web)\n", "[syncer \"mesh\"] Selector = \"app=(web)\"", "\"(web)\" is no value of a label"),
        ("Folder = /x\n", "[syncer \"mesh\"] Folder", ".. is not accepted"),
        ("Schemas = /, /no/such\n", "[syncer \"mesh\"] Schemas = \"/, /no/such\"", "the volume is mounted"),
        ("OnInvalid = none\n", "[syncer \"mesh\"] OnInvalid", "it cannot be none"),
        (
            "QuietSecs = 2.5\n",
            "[syncer \"mesh\"] QuietSecs = \"2.5\" (typha.cfg:7): expected at most MaxDelaySecs, which is 2",
            "without quiet",
        ),
        (
            "MaxDelaySecs = 0.1\n",
            "[syncer \"mesh\"] QuietSecs = \"0.5\" (typha.cfg:4): expected at most MaxDelaySecs, which is 0.1",
            "without quiet",
        ),
        (
            "[datastore \"x\"]\n",
            "[datastore \"x\"] Type = \"\" (typha.cfg:7): expected one of file, etcdv3, kubernetes",
            "the section needs it",
        ),
        (
            "[datastore \"x\"]\nType = files\n",
            "[datastore \"x\"] Type = \"files\" (typha.cfg:8): ",
            "did you mean \"file\"?",
        ),
        (
            "[datastore \"x\"]\nType = file\n",
            "[datastore \"x\"] Path = \"\" (typha.cfg:7): expected an existing path",
            "the section needs it",
        ),
        (
            "[datastore \"x\"]\nType = etcdv3\n",
            "[datastore \"x\"] Endpoints = \"\" (typha.cfg:7): ",
            "the section needs it",
        ),
        (
            "[datastore \"x\"]\nType = etcdv3\nEndpoints = http://a\nPath = /\n",
            "[datastore \"x\"] Path = \"/\" (typha.cfg:10): expected one of Type, Endpoints, ",
            "Path is for Type = file",
        ),
        (
            "[datastore \"x\"]\nType = etcdv3\nEndpoints = http://a\nPrefix = /x\n",
            "[datastore \"x\"] Prefix = \"/x\" (typha.cfg:10): expected a text that ends in /",
            "would be meant too",
        ),
        (
            "[datastore \"x\"]\nType = etcdv3\nEndpoints = http://a\nCertFile = /dev/null\n",
            "[datastore \"x\"] KeyFile = \"\" (typha.cfg:7): ",
            "because CertFile is set",
        ),
        (
            "[datastore \"x\"]\nType = etcdv3\nEndpoints = http://a\nFormat = raw\n[syncer \"y\"]\nSources = x\nKinds = v1/Pod, bulrush.io/*\n",
            "[syncer \"y\"] Kinds = \"v1/Pod,bulrush.io/*\" (typha.cfg:13): expected bulrush.io/v1/Bytes",
            "no source can hold v1/Pod",
        ),
    ] {
        let said = mistakes(&format!("{SMALL}{added}"));
        assert!(said.starts_with(begins) && said.ends_with(ends) && !said.contains('\n'), "{added}:\n{said}");
    }
    insta::assert_snapshot!(mistakes("CalicoSyncers = none"), @r#"CalicoSyncers = "none" (typha.cfg:1): expected all, because there is no syncer of another kind; add a section [syncer "name"]"#);
    let many: String = (0..=MAX_SECTIONS).map(|n| format!("[datastore \"d{n}\"]\nType = kubernetes\n")).collect();
    assert!(mistakes(&many).contains(&format!("at most {MAX_SECTIONS} sections")));
    let kinds: Vec<String> = (0..=MAX_ITEMS).map(|n| format!("v1/K{n}")).collect();
    assert!(
        mistakes(&format!("{SMALL}Kinds = {}\n", kinds.join(","))).ends_with(&format!("more than {MAX_ITEMS} items"))
    );
}

#[test]
fn oddities_are_warnings() {
    // Lines that are added to a small file, and its only warning.
    for (added, warning) in [
        (
            "Ready = true\nready = false\n",
            "[syncer \"mesh\"] Ready is given twice: typha.cfg:8 counts, typha.cfg:7 does not",
        ),
        (
            "[datastore \"x\"]\nType = kubernetes\n",
            "[datastore \"x\"] (typha.cfg:7) is not opened: no syncer has it among its Sources",
        ),
        (
            "Sources = c\nFolder = x\n[datastore \"c\"]\nType = kubernetes\n",
            "[syncer \"mesh\"] Folder has no effect: none of its Sources is a folder",
        ),
    ] {
        let said = warnings(&format!("{SMALL}{added}"));
        assert!(said.iter().any(|said| said == warning), "{added}: {said:?}");
    }
    // A source that is misspelled leaves no datastore unused.
    assert_eq!(
        warnings(&format!("{SMALL}Sources = gti\n")),
        ["[syncer \"mesh\"] Sources is given twice: typha.cfg:7 counts, typha.cfg:5 does not"]
    );
    for heading in ["[datastore git]", "[datastore 'git']", "[syncers mesh]", "[datastore \"git\" x]"] {
        let said = warnings(&format!("{heading}\nHealthPort = 1\n"));
        assert!(said.len() == 1 && said[0].contains("in double quotes"), "{heading}: {said:?}");
        assert_eq!(good(&format!("{heading}\nHealthPort = 1\n")).health.port, 1);
    }
    // As in Typha: no quoted name, or nothing like a section of ours.
    for heading in ["[datastore]", "[syncer]", "[logging]", "[x \"y\"]", "[global \"y\"]"] {
        let file = format!("{heading}\nHealthPort = 1\n");
        assert_eq!((warnings(&file), good(&file).health.port), (vec![], 1), "{heading}");
    }
}

#[test]
fn settings_of_sections_are_their_own() {
    // No variable sets them, and settings below a heading are none outside of it.
    let loaded = load_with(&format!("HealthPort = 1\n{SMALL}"), &[("TYPHA_KINDS", "v1/Pod")]);
    assert_eq!(loaded.config.as_ref().unwrap().syncers[0].kinds[0].to_string(), "v1/ConfigMap");
    assert!(loaded.notices.iter().any(|notice| notice.text.starts_with("ignoring KINDS")), "{:?}", loaded.notices);
    let [git, mesh] = &loaded.sections[..] else { unreachable!("there are two") };
    assert_eq!((git.heading(), mesh.heading()), ("[datastore \"git\"]".to_owned(), "[syncer \"mesh\"]".to_owned()));
    assert_eq!(mesh.source, Source::File { path: "typha.cfg".into(), line: 5 });
    // The same section in another case is the same one.
    assert!(mistakes(&format!("{SMALL}[SYNCER \"mesh\"]\nSources = git\nKinds = v1/Pod\n")).contains("there once"));
}

#[test]
fn the_shipped_sample_is_good() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh.cfg")).unwrap();
    // Its paths are relative to the project's top folder, which need not be the current one.
    let loaded = load(&text.replace("= config/mesh", "= /dev/null\n#"));
    assert_eq!(loaded.notices, []);
    let config = loaded.config.unwrap();
    assert_eq!((config.calico_syncers, config.datastores.len(), config.syncers.len()), (false, 1, 1));
    assert_eq!(config.server.host, "localhost");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any text below headings is read or refused, and what is printed reads back.
    #[test]
    fn no_section_panics(
        lines in proptest::collection::vec(
            prop_oneof![
                Just("[datastore \"a\"]".to_owned()), Just("[syncer \"b\"]".to_owned()), Just("CalicoSyncers = none".to_owned()),
                Just("Type = file\nPath = /".to_owned()), Just("Type = kubernetes".to_owned()), Just("Sources = a".to_owned()),
                Just("Kinds = v1/*".to_owned()),
                "(Type|Path|Prefix|Format|Sources|Kinds|Namespaces|Selector|Folder|OnInvalid|QuietSecs|Status) = [a-z0-9/*=#;,`\"\\\\() .:-]{0,12}",
                "[a-zA-Z\\[\\]\"'`=:#; \\\\é]{0,24}",
            ],
            0..16,
        )
    ) {
        exercise::load(lines.join("\n").as_bytes());
    }
}
