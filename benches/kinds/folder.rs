//! An edit in a folder of many files: from the rename of the file to the update at a connected client.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bulrush::model::{SyncStatus, SyncerName};
use bulrush::syncclient::{Client, SyncEvent};
use tokio::time::{Instant, sleep};

use crate::args::Args;
use crate::content;
use crate::progress::Step;
use crate::report::{Row, median};
use crate::server::Server;

/// Quiet time of the folder, the default.
const FOLDER_QUIET: Duration = Duration::from_millis(250);
/// Quiet time of the syncer, the default.
const SYNCER_QUIET: Duration = Duration::from_millis(500);
/// Pause between two edits, so that none meets the quiet time of the one before.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest time of an edit, and of the client's start.
const UPDATE_WITHIN: Duration = Duration::from_secs(60);
/// Edits go to files this far apart.
const STRIDE: usize = 7919;

/// The next updates of the client until `done` says that it has what it waits for.
async fn events_until(client: &mut Client, what: &str, mut done: impl FnMut(SyncEvent) -> bool) -> anyhow::Result<()> {
    let wait = async {
        while let Some(event) = client.next().await {
            if let SyncEvent::Disconnected { reason, .. } = &event {
                bail!("the client lost its connection: {reason}");
            }
            if done(event) {
                return Ok(());
            }
        }
        bail!("the client gave up");
    };
    tokio::time::timeout(UPDATE_WITHIN, wait).await.with_context(|| format!("{what}: not within {UPDATE_WITHIN:?}"))?
}

/// Replaces file `i` at once by one with this note, and returns the moment just before. The new file is made beside the folder,
/// so the folder sees nothing but the rename.
fn edit(folder: &Path, beside: &Path, i: usize, note: &str) -> anyhow::Result<Instant> {
    fs::write(beside, content::garden(i, note).to_string())?;
    let before = Instant::now();
    fs::rename(beside, folder.join(format!("{}.json", content::garden_name(i))))?;
    Ok(before)
}

/// Median of the edits.
pub(crate) async fn measure(args: &Args) -> anyhow::Result<Vec<Row>> {
    let scratch = tempfile::tempdir()?;
    let (folder, beside) = (scratch.path().join("served"), scratch.path().join("fresh"));
    fs::create_dir(&folder)?;
    for i in 0..args.files {
        edit(&folder, &beside, i, "")?;
    }
    let name = format!("folder: an edit among {} files", args.files);
    let step = Step::begin(name.clone());
    let sections = format!(
        "[datastore \"git\"]\nType = file\nPath = {}\nQuietSecs = {}\n[syncer \"mesh\"]\nSources = git\nKinds = example.org/v1/Garden\nQuietSecs = {}\n",
        folder.display(),
        FOLDER_QUIET.as_secs_f64(),
        SYNCER_QUIET.as_secs_f64()
    );
    let config = ("CalicoSyncers = none", sections.as_str());
    let all = |keys: u64| keys == args.files as u64;
    let (server, start) = Server::start_until(args.program.as_deref(), config, "mesh", |it| all(it.keys)).await?;
    let builder = Client::builder([server.sync.to_string()]).agent("bench").syncer(SyncerName::new("mesh"));
    let mut client = builder.start()?;
    events_until(&mut client, "in sync", |event| event == SyncEvent::Status(SyncStatus::InSync)).await?;
    let (mut whole, cpu_before) = (Vec::new(), server.cpu_secs());
    for n in 0..args.edits {
        sleep(PAUSE).await;
        let (i, note) = (n * STRIDE % args.files, format!("edit number {n}"));
        let (key, before) = (content::garden_key(i), edit(&folder, &beside, i, &note)?);
        let has_note = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&note);
        let arrived = events_until(&mut client, &note, |event| {
            let SyncEvent::Updates(updates) = event else { return false };
            updates.iter().any(|update| {
                update.key.as_str() == key && update.value.as_ref().is_some_and(|value| has_note(&value.bytes))
            })
        });
        arrived.await.with_context(|| format!("log of the daemon:\n{}", server.log()))?;
        whole.push(before.elapsed().as_secs_f64() * 1e3);
    }
    let cpu = (server.cpu_secs() - cpu_before) * 1e3 / args.edits as f64;
    client.close().await;
    step.done();
    let (whole, quiet) = (median(whole), (FOLDER_QUIET + SYNCER_QUIET).as_secs_f64() * 1e3);
    Ok(vec![
        Row::new(name)
            .with("after_quiet_ms", whole - quiet)
            .with("whole_ms", whole)
            .with("cpu_per_edit_ms", cpu)
            .with("in_sync_secs", start.seconds),
    ])
}
