//! `bulrush dump`: prints the data of a server, once, as soon as it is in sync.
//!
//! `dump` waits for a server that is not there yet. When a connection is lost, it tries only a few times to connect again: a
//! port-forward that has died does not come back, and its user has to know.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, timeout_at};

use super::connect::{ConnectArgs, seconds};
use super::exit::{EXIT_FAILURE, EXIT_USAGE, ended};
use super::render::Renderer;
use crate::model::{Key, SyncStatus, Update};
use crate::syncclient::{Client, SyncEvent, apply};

/// Number of tries to connect again after a connection was lost; with their pauses they take some two seconds.
const TRIES_AFTER_LOSS: u32 = 5;

/// Arguments of `bulrush dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// The server, and the data to show.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Give up when the server is not in sync after this many seconds
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub timeout: Duration,
}

/// Connects, waits for in-sync, prints all keys in order to `out`. Problems go to `err`. `width` is that of the terminal.
/// Returns the exit status: 0, 1 if the server was not in sync in time, 64 for arguments that make no sense.
///
/// # Errors
/// `err` cannot be written to. A closed `out` is a way to stop.
pub async fn run(args: &DumpArgs, width: Option<usize>, out: &mut impl Write, err: &mut impl Write) -> io::Result<u8> {
    let client = match args.connect.builder().and_then(|builder| builder.start().map_err(|error| error.to_string())) {
        Ok(client) => client,
        Err(reason) => {
            writeln!(err, "dump: {reason}")?;
            return Ok(EXIT_USAGE);
        }
    };
    match collect(client, args.timeout).await {
        Ok(content) => {
            let renderer = Renderer::new(args.connect.output, width);
            let mut out = BufWriter::new(out);
            let printed = content.values().try_for_each(|update| renderer.entry(update, &mut out));
            ended(printed.and_then(|()| out.flush()))
        }
        Err(reason) => {
            writeln!(err, "dump: {reason}")?;
            Ok(EXIT_FAILURE)
        }
    }
}

/// A connection that was lost, and the tries to come back.
struct Loss {
    how: String,
    tries: u32,
}

/// All keys once in sync, or else the reason why there is nothing to print.
async fn collect(mut client: Client, timeout: Duration) -> Result<BTreeMap<Key, Update>, String> {
    let deadline = Instant::now() + timeout;
    let mut content = BTreeMap::new();
    let mut progress = "no server has answered yet".to_owned();
    let mut connected = false;
    let mut loss: Option<Loss> = None;
    while let Ok(Some(event)) = timeout_at(deadline, client.next()).await {
        match event {
            SyncEvent::Updates(updates) => apply(&mut content, updates),
            SyncEvent::Status(SyncStatus::InSync) => {
                client.close().await;
                return Ok(content);
            }
            SyncEvent::Status(status) => {
                progress = format!("status is {status}");
            }
            SyncEvent::Connected { address, .. } => {
                progress = format!("connected to {address}");
                (connected, loss) = (true, None);
            }
            SyncEvent::Disconnected { address, reason, .. } => {
                progress = format!("no connection to {address}: {reason}");
                if std::mem::take(&mut connected) {
                    let how = format!("lost the connection to {address} with {} keys so far: {reason}", content.len());
                    loss.get_or_insert(Loss { how, tries: 0 });
                }
                if let Some(Loss { how, tries }) = &mut loss {
                    *tries += 1;
                    if *tries > TRIES_AFTER_LOSS {
                        return Err(format!(
                            "{how}; {TRIES_AFTER_LOSS} tries to come back failed, the last: {progress}; if it is forwarded, \
                             look at the forwarder (kubectl port-forward) and at the pod behind it"
                        ));
                    }
                }
            }
            SyncEvent::Progress(_) => {}
        }
    }
    if !content.is_empty() {
        progress = format!("{progress}, {} keys so far", content.len());
    }
    Err(format!("not in sync after {} s: {progress}", timeout.as_secs_f64()))
}
