//! Kinds that are missing, over definitions that change only as a test says.

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

use super::super::absence::{ABSENT_AFTER, POLL_EXPECTED, SETTLE};
use super::super::config::KubernetesConfig;
use super::super::definitions::KNOWN_WITHIN;
use super::super::known::Sight;
use super::*;
use crate::calico::catalog::{CalicoGroup, catalog};
use crate::calico::kinds::TIER;

const NAME: &str = "tiers.crd.projectcalico.org";

/// A server whose definitions change only as a test says.
fn shared() -> Shared {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
        pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = ApiClient::fixed(kube::Client::new(nobody, "default"), &KubernetesConfig::default());
    let catalog = catalog(Some(CalicoGroup::CrdV1));
    let shared = Shared::new(client, &KubernetesConfig { catalog, ..KubernetesConfig::default() });
    shared.definitions.follow_nothing();
    shared
}

fn set(shared: &Shared, sight: Sight, defined: bool) {
    shared.definitions.set(sight, if defined { &[NAME] } else { &[] });
}

async fn waits(shared: &Shared) -> u128 {
    let began = Instant::now();
    shared.arrival(&TIER.into()).await;
    began.elapsed().as_millis()
}

/// The server has long said that it does not know the kind.
async fn missing(shared: &Shared) {
    shared.judge(&TIER.into()).await;
    sleep(ABSENT_AFTER).await;
    assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: false });
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_a_defined_kind_is_missing_and_begin_anew_once_it_was_found() {
    let shared = shared();
    set(&shared, Sight::Full, true);
    missing(&shared).await;
    for expected in [250, 500, 1000, 2000] {
        assert_eq!(waits(&shared).await, expected);
    }
    shared.found(&TIER.into());
    missing(&shared).await;
    assert_eq!(waits(&shared).await, 250, "it was there in between");
}

#[tokio::test(start_paused = true)]
async fn changes_of_other_definitions_put_nothing_off() {
    let shared = shared();
    for (sight, expected) in
        [(Sight::None, POLL_EXPECTED), (Sight::Forbidden, POLL_EXPECTED), (Sight::Full, POLL_WATCHED)]
    {
        set(&shared, sight, false);
        let others = async {
            loop {
                sleep(Duration::from_secs(3)).await;
                shared.definitions.add("others.example.org");
            }
        };
        let waited = tokio::select! {
            waited = waits(&shared) => waited,
            () = others => unreachable!("goes on for ever"),
        };
        assert_eq!(waited, expected.as_millis(), "{sight:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_definition_a_kind_is_missing_and_its_objects_are_gone_only_if_it_had_one() {
    let shared = shared();
    set(&shared, Sight::Full, false);
    assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: false });
    set(&shared, Sight::Full, true);
    shared.found(&TIER.into());
    set(&shared, Sight::Full, false);
    assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: true });
    assert_eq!(waits(&shared).await, POLL_WATCHED.as_millis(), "that was told");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_without_a_definition_is_missing_when_that_lasts() {
    let shared = shared();
    set(&shared, Sight::Full, false);
    shared.found(&TIER.into());
    assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain);
    sleep(ABSENT_AFTER).await;
    assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: false });
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_defined_or_whose_definition_may_not_be_seen_is_missing_when_that_lasts() {
    for (sight, defined) in [(Sight::Full, true), (Sight::Forbidden, false)] {
        let shared = shared();
        set(&shared, sight, defined);
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain);
        sleep(ABSENT_AFTER / 2).await;
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain);
        shared.with(&TIER.into(), |state| state.presence.interrupted());
        sleep(ABSENT_AFTER / 2).await;
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain, "there was another answer in between");
        sleep(ABSENT_AFTER).await;
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: false });
        shared.with(&TIER.into(), |state| state.presence.interrupted());
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Certain { gone: false }, "until it is found");
        shared.found(&TIER.into());
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain);
    }
}

#[tokio::test(start_paused = true)]
async fn while_definitions_are_not_known_nothing_is_certain() {
    let shared = shared();
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(shared.judge(&TIER.into()).await, Absence::Uncertain);
    }
    assert_eq!(began.elapsed(), 3 * KNOWN_WITHIN);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_definitions_makes_no_answer_one_that_lasts() {
    let (shared, tier) = (shared(), Selection::from(TIER));
    let seen = async {
        sleep(ABSENT_AFTER + Duration::from_secs(1)).await;
        set(&shared, Sight::Forbidden, false);
    };
    let (absence, ()) = tokio::join!(shared.judge(&tier), seen);
    assert_eq!(absence, Absence::Uncertain);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_not_served_is_looked_for_once_its_definition_goes() {
    let shared = shared();
    set(&shared, Sight::Full, true);
    missing(&shared).await;
    set(&shared, Sight::Full, false);
    assert_eq!(waits(&shared).await, SETTLE.0.as_millis());
}
