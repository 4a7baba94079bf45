//! Checks that compare options: the values that one option requires of another, and the values that follow from others.

use super::mistake::Mistake;
use super::parse::Value;
use super::resolve::Resolved;

/// Typha's rule: a pong time-out of at most two ping intervals becomes this number of ping intervals.
const PONG_TIMEOUT_PINGS: f64 = 6.0;

/// Checks all options together, and sets the values that follow from other options.
pub(super) fn together(options: &mut [Resolved], mistakes: &mut Vec<Mistake>) {
    pong_timeout(options);
    let options = &*options;
    etcd(options, mistakes);
    folder(options, mistakes);
    tls(options, mistakes);
    metrics_tls(options, mistakes);
    rebalancing(options, mistakes);
}

/// Whether the Kubernetes API is used. `global`: whether the datastore outside of named sections is.
pub(super) fn uses_kubernetes(options: &[Resolved], global: bool) -> bool {
    (global && text(options, "DatastoreType") == "kubernetes")
        || text(options, "ConnectionRebalancingMode") == "kubernetes"
}

pub(super) fn get<'a>(options: &'a [Resolved], name: &str) -> &'a Resolved {
    options.iter().find(|option| option.spec.name == name).expect("names in this file are in the option table")
}

pub(super) fn text<'a>(options: &'a [Resolved], name: &str) -> &'a str {
    match &get(options, name).value {
        Value::Text(text) => text,
        _ => "",
    }
}

fn is_set(options: &[Resolved], name: &str) -> bool {
    !get(options, name).value.is_zero()
}

/// Whether the option is set, to a right or a wrong value.
fn is_given(options: &[Resolved], mistakes: &[Mistake], name: &str) -> bool {
    is_set(options, name) || is_wrong(mistakes, name)
}

/// Whether the option's own text was wrong: then its value here is not the one that was meant.
fn is_wrong(mistakes: &[Mistake], name: &str) -> bool {
    mistakes.iter().any(|mistake| mistake.option == name)
}

fn mistake(option: &Resolved, accepted: &str, hint: &str) -> Mistake {
    Mistake::new(option.spec.name, option.value.to_string(), option.source.clone(), accepted, hint)
}

fn pong_timeout(options: &mut [Resolved]) {
    let Value::Seconds(interval) = get(options, "ServerPingIntervalSecs").value else { return };
    let timeout = options.iter_mut().find(|option| option.spec.name == "ServerPongTimeoutSecs");
    if let Some(timeout) = timeout
        && let Value::Seconds(given) = timeout.value
        && given <= 2.0 * interval
    {
        let effective = PONG_TIMEOUT_PINGS * interval;
        timeout.note = format!("{given} is at most twice the ping interval, so {effective} takes effect");
        timeout.value = Value::Seconds(effective);
    }
}

fn etcd(options: &[Resolved], mistakes: &mut Vec<Mistake>) {
    if text(options, "DatastoreType") == "etcdv3" && !is_set(options, "EtcdEndpoints") {
        for name in ["EtcdScheme", "EtcdAddr"] {
            if !is_set(options, name) && !is_wrong(mistakes, "EtcdEndpoints") {
                let accepted = "a value, because DatastoreType is etcdv3 and EtcdEndpoints is empty";
                mistakes.push(mistake(get(options, name), accepted, "set EtcdEndpoints"));
            }
        }
    }
    together_or_not_at_all(options, &["EtcdKeyFile", "EtcdCertFile"], mistakes);
}

fn folder(options: &[Resolved], mistakes: &mut Vec<Mistake>) {
    let name = "DatastorePath";
    if text(options, "DatastoreType") == "file" && !is_given(options, mistakes, name) {
        mistakes.push(mistake(get(options, name), "a folder, because DatastoreType is file", ""));
    }
}

/// Typha's rule: any of these options switches TLS on. Then all files are needed, and at least one of the names.
fn tls(options: &[Resolved], mistakes: &mut Vec<Mistake>) {
    const FILES: [&str; 3] = ["ServerKeyFile", "ServerCertFile", "CAFile"];
    const NAMES: [&str; 2] = ["ClientCN", "ClientURISAN"];
    let set: Vec<&str> = FILES.into_iter().chain(NAMES).filter(|name| is_given(options, mistakes, name)).collect();
    if set.is_empty() {
        return;
    }
    let because = format!("a value, because TLS is switched on by {}", set.join(", "));
    for name in FILES {
        if !is_given(options, mistakes, name) {
            mistakes.push(mistake(get(options, name), &because, ""));
        }
    }
    if !NAMES.into_iter().any(|name| is_given(options, mistakes, name)) {
        let hint = "set it, ClientURISAN or both: without them any certificate of the CA would do";
        mistakes.push(mistake(get(options, "ClientCN"), &because, hint));
    }
}

fn metrics_tls(options: &[Resolved], mistakes: &mut Vec<Mistake>) {
    const CERT_AND_KEY: [&str; 2] = ["PrometheusMetricsCertFile", "PrometheusMetricsKeyFile"];
    if CERT_AND_KEY.into_iter().any(|name| is_set(options, name)) {
        let all = ["PrometheusMetricsCertFile", "PrometheusMetricsKeyFile", "PrometheusMetricsCAFile"];
        together_or_not_at_all(options, &all, mistakes);
    }
}

fn together_or_not_at_all(options: &[Resolved], names: &[&str], mistakes: &mut Vec<Mistake>) {
    let set: Vec<&str> = names.iter().copied().filter(|name| is_given(options, mistakes, name)).collect();
    if set.is_empty() {
        return;
    }
    let are = if set.len() == 1 { "is" } else { "are" };
    let accepted = format!("a value, because {} {are} set", set.join(" and "));
    for name in names {
        if !is_given(options, mistakes, name) {
            mistakes.push(mistake(get(options, name), &accepted, ""));
        }
    }
}

fn rebalancing(options: &[Resolved], mistakes: &mut Vec<Mistake>) {
    let interval = get(options, "K8sServicePollIntervalSecs");
    if text(options, "ConnectionRebalancingMode") == "kubernetes" && interval.value.is_zero() {
        mistakes.push(mistake(interval, "more than 0 seconds, because ConnectionRebalancingMode is kubernetes", ""));
    }
}
