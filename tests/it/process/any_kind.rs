//! Syncers of any kind: a real daemon over folders, etcd and an API server at once, seen by `watch`, `get` and `status`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use etcd_client::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Finished, Watcher, bulrush, finish, text_of};
use crate::apiserver::ApiServer;
use crate::daemon::{Daemon, eventually, http_get};
use crate::real_etcd::Etcd;

mod churn;

/// A definition of gardens: beds is a number, and at least one.
const GARDENS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gardens.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Garden, plural: gardens, singular: garden, listKind: GardenList}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [beds]
              properties:
                beds: {type: integer, minimum: 1}
                fence: {type: string}
              x-kubernetes-validations:
                - {rule: "!has(self.fence) || self.beds < 10", message: "a fence is for fewer than 10 beds"}
"#;

fn garden(name: &str, beds: &str) -> String {
    format!(
        "apiVersion: example.org/v1\nkind: Garden\nmetadata: {{name: {name}, namespace: home}}\nspec: {{beds: {beds}}}\n"
    )
}

fn key(name: &str) -> String {
    format!("/bulrush/v1/example.org/Garden/home/{name}")
}

/// A folder of gardens, the folder of their schema, and the configuration of a daemon.
struct Mesh {
    scratch: TempDir,
    folder: TempDir,
    schemas: TempDir,
}

impl Mesh {
    fn new() -> anyhow::Result<Self> {
        let mesh = Self { scratch: TempDir::new()?, folder: TempDir::new()?, schemas: TempDir::new()? };
        fs::write(mesh.schemas.path().join("gardens.yaml"), GARDENS)?;
        mesh.write("back.yaml", &garden("back", "3"))?;
        Ok(mesh)
    }

    /// Replaces a whole file at once, as editors do.
    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let fresh = self.folder.path().join(format!(".{name}.new"));
        fs::write(&fresh, text)?;
        Ok(fs::rename(fresh, self.folder.path().join(name))?)
    }

    fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.folder.path().join(name))?)
    }

    /// Starts a daemon whose syncer "mesh" reads the folder and the further datastores: sections, and their names.
    fn daemon(&self, sections: &str, further: &str) -> anyhow::Result<Daemon> {
        let (folder, schemas) = (text_of(self.folder.path()), text_of(self.schemas.path()));
        let config = format!(
            "[global]\nCalicoSyncers = none\n[datastore \"git\"]\nType = file\nPath = {folder}\nQuietSecs = 0.05\n{sections}\n\
             [syncer \"mesh\"]\nSources = git{further}\nKinds = example.org/v1/Garden, v1/ConfigMap\nSchemas = {schemas}\n\
             QuietSecs = 0.05\nMaxDelaySecs = 0.5\n"
        );
        self.daemon_of(&config)
    }

    fn daemon_of(&self, config: &str) -> anyhow::Result<Daemon> {
        fs::write(self.scratch.path().join("typha.cfg"), config)?;
        Daemon::start(self.scratch.path(), &[])
    }
}

fn watch(daemon: &Daemon) -> anyhow::Result<Watcher> {
    Watcher::start(daemon, &["--syncer", "mesh"])
}

/// The lines about a key so far.
fn lines_about(watcher: &Watcher, key: &str) -> Vec<String> {
    watcher.said().lines().filter(|line| line.contains(key)).map(str::to_owned).collect()
}

fn get(daemon: &Daemon, arguments: &[&str]) -> anyhow::Result<Finished> {
    let server = daemon.sync.to_string();
    finish(bulrush().args(["get", "--server", &server, "--syncer", "mesh", "-n", "home"]).args(arguments))
}

/// The only syncer in the status.
fn status(daemon: &Daemon) -> anyhow::Result<Value> {
    let (code, page) = http_get(daemon.health, "/status")?;
    ensure!(code == 200, "/status answers {code}: {page}");
    let status: Value = serde_json::from_str(&page)?;
    Ok(status["syncers"][0].clone())
}

fn wait_for_status(daemon: &Daemon, what: &str, fits: impl Fn(&Value) -> bool + Sync) -> anyhow::Result<Value> {
    let found = eventually(what, || status(daemon).ok().filter(|status| fits(status)));
    found.with_context(|| format!("the status is {:#?}", status(daemon)))
}

fn says(status: &Value, text: &str) -> bool {
    status.to_string().contains(text)
}

#[test]
fn one_edit_is_one_change_and_bad_edits_are_none() -> anyhow::Result<()> {
    let mesh = Mesh::new()?;
    let daemon = mesh.daemon("", "")?;
    daemon.wait_ready()?;
    let watcher = watch(&daemon)?;
    mesh.write("back.yaml", &garden("back", "4"))?;
    watcher.wait_for(r#""beds":4"#)?;
    ensure!(lines_about(&watcher, &key("back")).len() == 2, "the snapshot, and one change: {}", watcher.said());
    // A value that its schema refuses, a rule in CEL, a broken file, an unknown field.
    for (bad, reason) in
        [("0", "/spec/beds"), ("12, fence: wood", "a fence is for fewer than 10 beds"), ("1, bedz: 2", "bedz")]
    {
        mesh.write("back.yaml", &garden("back", bad))?;
        wait_for_status(&daemon, reason, |status| says(status, reason))?;
    }
    mesh.write("back.yaml", "{")?;
    eventually("the broken file is named", || {
        let (_, page) = http_get(daemon.health, "/status").ok()?;
        page.contains("back.yaml").then_some(())
    })?;
    mesh.write("front.yaml", &garden("front", "1"))?;
    watcher.wait_for(&key("front"))?;
    ensure!(lines_about(&watcher, &key("back")).len() == 2, "the last good value stays: {}", watcher.said());
    let yaml = get(&daemon, &["Garden/back", "-o", "yaml"])?.expect_code(0)?.out;
    ensure!(yaml.contains("beds: 4"), "{yaml}");
    mesh.write("back.yaml", &garden("back", "5"))?;
    watcher.wait_for(r#""beds":5"#)?;
    wait_for_status(&daemon, "nothing is wrong any more", |status| status["problem_count"] == 0)?;
    mesh.remove("front.yaml")?;
    watcher.wait_for(&format!("- {}", key("front")))?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_datastore_counts_and_the_next_one_is_its_heir() -> anyhow::Result<()> {
    let Some(mut etcd) = Etcd::start().await else { return Ok(()) };
    let mut client = Client::connect([etcd.url()], None).await?;
    let json = json!({"apiVersion": "example.org/v1", "kind": "Garden", "metadata": {"name": "back", "namespace": "home"}, "spec": {"beds": 7}});
    client.put("/mesh/a/back", json.to_string(), None).await?;
    client.put("/mesh/yaml", garden("east", "8"), None).await?;
    client.put("/mesh/broken", "{", None).await?;
    client.put("/mesh/other", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\n", None).await?;
    client.put("/raw/x/y", vec![0_u8, 1, 255], None).await?;
    let mesh = Mesh::new()?;
    let section = format!("[datastore \"kv\"]\nType = etcdv3\nEndpoints = {}\nPrefix = /mesh/\n", etcd.url());
    let daemon = mesh.daemon(&section, ", kv")?;
    daemon.wait_ready()?;
    let watcher = watch(&daemon)?;
    let said = watcher.said();
    ensure!(said.contains(r#""beds":3"#) && said.contains(r#""beds":8"#) && !said.contains(r#""beds":7"#), "{said}");
    ensure!(!said.contains("Secret"), "kinds that nobody asked for stay away: {said}");
    let now = status(&daemon)?;
    ensure!(says(&now, "git (back.yaml:1)") && says(&now, "kv (/mesh/a/back)") && now["conflict_count"] == 1, "{now}");
    ensure!(says(&now, "broken") && now["problem_count"] == 1, "the broken document is named: {now}");
    ensure!(daemon.metric("bulrush_conflicts{syncer=\"mesh\"}")? > 0.0, "the conflict is counted");
    let page = finish(bulrush().args(["status", "--server", &daemon.health.to_string()]))?.out;
    ensure!(page.contains("Garden.example.org home/back: git (back.yaml:1) hides kv (/mesh/a/back)"), "{page}");
    // The heir comes as a change, and the first one comes back as a change.
    mesh.write("other.yaml", &garden("other", "1"))?;
    mesh.remove("back.yaml")?;
    watcher.wait_for(r#""beds":7"#)?;
    mesh.write("back.yaml", &garden("back", "9"))?;
    watcher.wait_for(r#""beds":9"#)?;
    let about = lines_about(&watcher, &key("back"));
    ensure!(about.len() == 3 && !about.iter().any(|line| line.starts_with('-')), "{about:?}");
    // etcd goes, loses nothing for agents, and comes back; the folder flows on.
    etcd.kill();
    mesh.write("other.yaml", &garden("other", "2"))?;
    watcher.wait_for(r#""beds":2"#)?;
    etcd.run().await;
    let mut client = Client::connect([etcd.url()], None).await?;
    client.put("/mesh/yaml", garden("east", "10"), None).await?;
    watcher.wait_for(r#""beds":10"#)?;
    client.delete("/mesh/yaml", None).await?;
    watcher.wait_for(&format!("- {}", key("east")))?;
    let deleted = watcher.said().lines().filter(|line| line.starts_with('-')).count();
    ensure!(deleted == 1, "{}", watcher.said());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_in_etcd_are_passed_on_as_they_are() -> anyhow::Result<()> {
    let Some(etcd) = Etcd::start().await else { return Ok(()) };
    let mut client = Client::connect([etcd.url()], None).await?;
    client.put("/raw/x/y", "plain text, no object", None).await?;
    let mesh = Mesh::new()?;
    let daemon = mesh.daemon_of(&format!(
        "[global]\nCalicoSyncers = none\n[datastore \"kv\"]\nType = etcdv3\nEndpoints = {}\nPrefix = /raw/\nFormat = raw\n\
         [syncer \"mesh\"]\nSources = kv\nKinds = bulrush.io/v1/Bytes\n",
        etcd.url()
    ))?;
    daemon.wait_ready()?;
    let said = watch(&daemon)?.said();
    ensure!(said.contains("/bulrush/v1/bulrush.io/Bytes/-/x/y") && said.contains("plain text, no object"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_a_source_among_others_and_kinds_come_late() -> anyhow::Result<()> {
    let Some(mut api) = ApiServer::start().await else { return Ok(()) };
    let rest = api.rest();
    rest.create("/api/v1/namespaces", &json!({"metadata": {"name": "home"}})).await?;
    let settings = json!({"metadata": {"name": "settings", "labels": {"app": "web"}}, "data": {"a": "1"}});
    rest.create("/api/v1/namespaces/home/configmaps", &settings).await?;
    let mesh = Mesh::new()?;
    let kubeconfig = api.kubeconfig("admin");
    let section = format!("[datastore \"cluster\"]\nType = kubernetes\nKubeconfig = {}\n", text_of(&kubeconfig));
    let daemon = mesh.daemon(&section, ", cluster")?;
    daemon.wait_ready()?;
    let watcher = watch(&daemon)?;
    ensure!(watcher.said().contains("ConfigMap/home/settings"), "{}", watcher.said());
    ensure!(!watcher.said().contains("managedFields"), "{}", watcher.said());
    // The kind comes, with an object that the folder has as well.
    let definition: Value = serde_saphyr::from_str(GARDENS)?;
    rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    crate::apiserver::crds::served_at(&rest, "/apis/example.org/v1/namespaces/home/gardens").await?;
    for (name, beds) in [("back", 5), ("west", 6)] {
        let object = json!({"apiVersion": "example.org/v1", "kind": "Garden", "metadata": {"name": name}, "spec": {"beds": beds}});
        rest.create("/apis/example.org/v1/namespaces/home/gardens", &object).await?;
    }
    watcher.wait_for(r#""beds":6"#)?;
    wait_for_status(&daemon, "the conflict is named", |status| {
        status["conflict_count"] == 1 && says(status, "git (back.yaml:1)") && says(status, "cluster (")
    })?;
    ensure!(lines_about(&watcher, &key("back")).len() == 1, "the folder counts: {}", watcher.said());
    // The API server goes: nothing is deleted.
    api.kill();
    mesh.write("back.yaml", &garden("back", "4"))?;
    watcher.wait_for(r#""beds":4"#)?;
    ensure!(!watcher.said().lines().any(|line| line.starts_with('-')), "{}", watcher.said());
    Ok(())
}

#[test]
fn a_datastore_that_is_away_is_missed_or_spared() -> anyhow::Result<()> {
    let away = |required: &str| {
        format!(
            "[datastore \"kv\"]\nType = etcdv3\nEndpoints = http://127.0.0.1:1\nPrefix = /mesh/\nRequired = {required}\nSyncTimeoutSecs = 1\n"
        )
    };
    let mesh = Mesh::new()?;
    let daemon = mesh.daemon(&away("false"), ", kv")?;
    daemon.wait_ready()?;
    let watcher = watch(&daemon)?;
    ensure!(watcher.said().contains(&key("back")), "{}", watcher.said());
    ensure!(status(&daemon)?["sources"][1]["missed"] == true, "{}", status(&daemon)?);
    drop(daemon);
    let daemon = mesh.daemon(&away("true"), ", kv")?;
    wait_for_status(&daemon, "it lists", |status| status["status"] == "resync")?;
    let (ready, _) = http_get(daemon.health, "/readiness")?;
    ensure!(ready == 503 && status(&daemon)?["keys"] == 0, "nothing is served without a datastore that is required");
    Ok(())
}

#[test]
fn schemas_are_read_again_and_one_that_does_not_compile_changes_nothing() -> anyhow::Result<()> {
    let mesh = Mesh::new()?;
    let daemon = mesh.daemon("", "")?;
    daemon.wait_ready()?;
    let watcher = watch(&daemon)?;
    let schema = |text: &str| anyhow::Ok(fs::write(mesh.schemas.path().join("gardens.yaml"), text)?);
    // A stricter one: the garden that agents have is named, and stays.
    schema(&GARDENS.replace("minimum: 1", "minimum: 4"))?;
    daemon.signal("HUP")?;
    wait_for_status(&daemon, "the garden is named", |status| {
        says(status, "back.yaml:4:8 error bad-value /spec/beds") && status["problem_count"] == 1
    })?;
    schema(GARDENS)?;
    daemon.signal("HUP")?;
    wait_for_status(&daemon, "the garden is good again", |status| status["problem_count"] == 0)?;
    ensure!(lines_about(&watcher, &key("back")).len() == 1, "agents hear nothing of it: {}", watcher.said());
    let broken = GARDENS.replace("self.beds < 10", "self.beds <");
    schema(&broken)?;
    daemon.signal("HUP")?;
    eventually("the log says that the old schemas stay", || daemon.log().contains("the old ones stay").then_some(()))?;
    mesh.write("back.yaml", &garden("back", "0"))?;
    wait_for_status(&daemon, "the old schema counts", |status| says(status, "/spec/beds"))?;
    drop(daemon);
    let Err(refused) = mesh.daemon("", "") else { anyhow::bail!("it started") };
    let words = format!("{refused:#}");
    ensure!(words.contains("gardens.yaml") && words.contains("schemas that cannot be used"), "{words}");
    Ok(())
}

/// The shipped sample is clean.
#[test]
fn the_sample_is_valid() -> anyhow::Result<()> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = bulrush();
    command.current_dir(top).args(["validate", "-f", "config/mesh"]);
    let done = finish(&mut command)?.expect_code(0)?;
    ensure!(done.out.contains("5 files, 7 objects"), "{}", done.out);
    Ok(())
}
