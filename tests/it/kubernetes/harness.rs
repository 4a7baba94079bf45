//! Checks of the harness that the other tests rely on.

use bulrush::calico::kinds::{IP_POOL, POD};
use serde_json::json;

use crate::apiserver::ApiServer;
use crate::apiserver::crds::{CrdGroup, custom_kinds, definition_path};
use crate::apiserver::rest::{Refused, Rest};

#[tokio::test]
async fn the_api_server_serves_counts_and_can_be_killed_and_restarted() -> anyhow::Result<()> {
    let Some(mut server) = ApiServer::start().await else { return Ok(()) };
    let rest = server.rest();
    let group = CrdGroup::V1;
    server.install_crds(group).await?;
    let seeded = (0..250).map(|i| {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": format!("pod-{i}"), "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1"},
        })
    });
    server.seed("pods", seeded).await?;
    let pool = json!({"apiVersion": group.api_version(), "kind": "IPPool", "metadata": {"name": "p"}, "spec": {"cidr": "10.0.0.0/16"}});
    rest.create(&group.collection(&IP_POOL, ""), &pool).await?;

    let before = server.lists_answered().await?.get("pods").copied().unwrap_or_default();
    let pods = rest.list(&group.collection(&POD, "")).await?;
    assert_eq!(pods.len(), 250);
    assert_eq!(pods[0]["status"]["podIP"], "10.0.0.1");
    assert_eq!(pods[0]["spec"]["restartPolicy"], "Always", "the server fills in defaults");
    assert_eq!(server.lists_answered().await?["pods"], before + 1);

    let nobody = Rest::new(server.client("bulrush"));
    let refused = nobody.list(&group.collection(&POD, "")).await.unwrap_err();
    assert_eq!(refused.downcast::<Refused>()?.code, 403);
    let audited = server.audited("bulrush");
    assert_eq!((audited.len(), audited[0].code, audited[0].resource.as_str()), (1, 403, "pods"));
    assert!(audited[0].is_list());

    server.kill();
    server.run().await;
    let rest = server.rest();
    assert_eq!(rest.list(&group.collection(&POD, "")).await?.len(), 250);
    // Only one kind is read: the server sets up every custom kind at its first request, half a second each.
    for kind in custom_kinds() {
        rest.get(&definition_path(&kind, group)).await?;
    }
    assert_eq!(rest.list(&group.collection(&IP_POOL, "")).await?.len(), 1);
    Ok(())
}
