//! Answers of API servers, and of others in between, by what to do next.

use super::*;
use crate::calico::kinds;

fn answer(code: u16, body: &str) -> Failure {
    Failure::of_answer(StatusCode::from_u16(code).unwrap(), None, body.as_bytes())
}

#[test]
fn answers_by_what_to_do_next() {
    let status = |code: u16, reason: &str| {
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","reason":"{reason}","code":{code}}}"#
        )
    };
    assert_eq!(answer(410, &status(410, "Expired")), Failure::PositionGone("m (410)".to_owned()));
    assert!(matches!(answer(401, "Unauthorized"), Failure::Unauthorized(_)));
    assert!(matches!(answer(403, &status(403, "Forbidden")), Failure::Forbidden(_)));
    assert!(matches!(answer(404, "404 page not found\n"), Failure::NotFound(_)));
    for code in [404, 405] {
        assert!(matches!(answer(code, &status(code, "NotFound")), Failure::NotFound(_)));
        for not_ours in ["", "<html>404</html>", r#"{"error":"no route"}"#, r#"{"kind":"Error"}"#] {
            assert!(matches!(answer(code, not_ours), Failure::Retry { .. }), "{code} {not_ours}");
        }
    }
    assert!(matches!(answer(422, &status(422, "Invalid")), Failure::Refused(_)));
    assert!(matches!(answer(409, &status(409, "Conflict")), Failure::Conflict(_)));
    assert!(matches!(answer(500, ""), Failure::Retry { .. }));
    assert!(matches!(answer(500, &status(500, "InternalError")), Failure::Failed(_)));
    assert!(matches!(answer(503, &status(503, "ServiceUnavailable")), Failure::Retry { .. }));
    assert!(
        matches!(answer(502, "<html>bad gateway</html>"), Failure::Retry { reason, .. } if reason.contains("gateway"))
    );
}

#[test]
fn the_servers_wish_for_a_pause_is_kept() {
    let body = br#"{"kind":"Status","status":"Failure","message":"slow down","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":7}}"#;
    let code = StatusCode::TOO_MANY_REQUESTS;
    let after = |failure| match failure {
        Failure::Retry { after, .. } => after,
        other => panic!("{other:?}"),
    };
    assert_eq!(after(Failure::of_answer(code, None, body)), Some(Duration::from_secs(7)));
    let header = Some(Duration::from_secs(2));
    assert_eq!(after(Failure::of_answer(code, header, body)), header, "the header counts");
    assert_eq!(after(Failure::of_answer(code, header, b"busy")), header);
}

#[test]
fn a_server_behind_our_position_means_a_list() {
    let body = br#"{"kind":"Status","status":"Failure","message":"Too large resource version: 90, current: 5","reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
    assert!(matches!(Failure::of_answer(StatusCode::GATEWAY_TIMEOUT, None, body), Failure::PositionGone(_)));
}

#[test]
fn forbidden_names_the_missing_rule() {
    let resource = Resource::new(&kinds::IP_POOL, "crd.projectcalico.org", "v1");
    let failure = Failure::Forbidden("no".to_owned());
    let error = failure.into_error("list", &resource, "https://api", &"".into());
    assert_eq!(
        error.to_string(),
        r#"list ippools.crd.projectcalico.org from the API server at https://api: not permitted: no; add to the ClusterRole: {apiGroups: ["crd.projectcalico.org"], resources: ["ippools"], verbs: ["list", "watch"]}"#
    );
}

#[test]
fn paths_and_names() {
    let pods = Resource::new(&kinds::POD, "", "v1");
    assert_eq!((pods.name().as_str(), pods.path(None).as_str()), ("pods", "/api/v1/pods"));
    let slices = Resource::new(&kinds::ENDPOINT_SLICE, "discovery.k8s.io", "v1");
    assert_eq!(slices.path(Some("kube-system")), "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices");
}

#[test]
fn selections_are_pushed_to_the_server() {
    let all = || Selection::from(kinds::POD);
    let pods = Resource::new(&kinds::POD, "", "v1");
    for (selection, url) in [
        (all(), "/api/v1/pods?limit=5"),
        (all().in_namespaces(["a"]), "/api/v1/namespaces/a/pods?limit=5"),
        (all().in_namespaces(["a", "b"]), "/api/v1/pods?limit=5"),
        (all().with_labels("app in (web)").unwrap(), "/api/v1/pods?limit=5&labelSelector=app+in+%28web%29"),
    ] {
        assert_eq!(pods.url(&selection, &[("limit", "5"), ("continue", "")]), url, "{selection}");
    }
}

#[test]
fn long_answers_are_cut() {
    let Failure::Retry { reason, .. } = answer(500, &"é".repeat(5_000)) else { panic!("a retry") };
    assert!(reason.chars().count() < 600);
}
