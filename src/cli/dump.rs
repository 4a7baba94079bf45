//! `bulrush dump`: prints what a server holds, once, as soon as it is in sync.
//!
//! A server that is not there yet is waited for; one that was there and went is come back to a few times only: whoever looks
//! through a port-forward that has died wants to know that, and not wait.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, timeout_at};

use super::connect::{ConnectArgs, seconds};
use super::render::Renderer;
use super::{EXIT_FAILURE, EXIT_USAGE, ended};
use crate::model::{Key, SyncStatus, Update};
use crate::syncclient::{Client, SyncEvent, apply};

/// Tries to come back to servers after a connection was lost; with their pauses some two seconds.
const TRIES_AFTER_LOSS: u32 = 5;

/// Arguments of `bulrush dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// How to connect, and what to show.
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
    match collect(client, Instant::now() + args.timeout).await {
        Ok(content) => {
            let renderer = Renderer::new(args.connect.output, width);
            let mut out = BufWriter::new(out);
            let printed = content.values().try_for_each(|update| renderer.entry(update, &mut out));
            ended(printed.and_then(|()| out.flush()))
        }
        Err(Unfinished::TimeOut(progress)) => {
            let seconds = args.timeout.as_secs_f64();
            writeln!(err, "dump: not in sync after {seconds} s: {progress}")?;
            Ok(EXIT_FAILURE)
        }
        Err(Unfinished::Lost(how)) => {
            writeln!(err, "dump: {how}")?;
            Ok(EXIT_FAILURE)
        }
    }
}

/// Why there is nothing to print.
enum Unfinished {
    /// How far it came in the time.
    TimeOut(String),
    /// How a connection was lost for good.
    Lost(String),
}

/// A connection that was lost, and what became of the tries to come back.
struct Loss {
    how: String,
    tries: u32,
}

/// All keys once in sync, or how far it came.
async fn collect(mut client: Client, deadline: Instant) -> Result<BTreeMap<Key, Update>, Unfinished> {
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
                        return Err(Unfinished::Lost(format!(
                            "{how}; {TRIES_AFTER_LOSS} tries to come back failed, the last: {progress}; if it is forwarded, \
                             look at the forwarder (kubectl port-forward) and at the pod behind it"
                        )));
                    }
                }
            }
            SyncEvent::Progress(_) => {}
        }
    }
    if !content.is_empty() {
        progress = format!("{progress}, {} keys so far", content.len());
    }
    Err(Unfinished::TimeOut(progress))
}
