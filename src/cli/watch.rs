//! `bulrush watch`: prints the data of a server, then every change, and survives the loss of servers.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::connect::{ConnectArgs, seconds};
use super::exit::{EXIT_FAILURE, EXIT_USAGE, ended};
use super::render::Renderer;
use super::screen::Screen;
use super::shown::ShownArgs;
use crate::model::{Key, SyncStatus};
use crate::syncclient::{Client, SyncEvent};

/// Arguments of `bulrush watch`.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    /// The server, and the syncer.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// The keys, and the form.
    #[command(flatten)]
    pub shown: ShownArgs,
    /// Give up when there is no in-sync for this many seconds [default: never]
    #[arg(long, value_parser = seconds, value_name = "SECONDS")]
    pub timeout: Option<Duration>,
    /// Do not print the keys of the first snapshot, only their number
    #[arg(long)]
    pub changes_only: bool,
}

/// Prints to `out` until `cancel`, or until `out` is closed. Problems go to `err`. `screen` is what `out` leads to.
/// Returns the exit status: 0, 1 if there was no in-sync for too long, 64 for arguments that make no sense.
///
/// # Errors
/// `err` cannot be written to. A closed `out` is a way to stop.
pub async fn run(
    args: &WatchArgs,
    screen: Screen,
    cancel: CancellationToken,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let client = match args.connect.start(&args.shown.prefix) {
        Ok(client) => client,
        Err(reason) => {
            writeln!(err, "watch: {reason}")?;
            return Ok(EXIT_USAGE);
        }
    };
    let renderer = Renderer::new(args.shown.output, screen);
    follow(client, args, renderer, cancel, out, err).await
}

async fn follow(
    mut client: Client,
    args: &WatchArgs,
    renderer: Renderer,
    cancel: CancellationToken,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let mut keys: BTreeSet<Key> = BTreeSet::new();
    let mut silent = args.changes_only;
    // Set while there is no in-sync and there is a limit to that.
    let limit = || args.timeout.map(|timeout| Instant::now() + timeout);
    let mut deadline = limit();
    loop {
        let event = tokio::select! {
            () = cancel.cancelled() => break,
            () = expired(deadline) => {
                let seconds = args.timeout.unwrap_or_default().as_secs_f64();
                writeln!(err, "watch: no in-sync for {seconds} s, {} keys are held", keys.len())?;
                return Ok(EXIT_FAILURE);
            }
            event = client.next() => event,
        };
        let Some(event) = event else { break };
        match &event {
            SyncEvent::Updates(updates) => {
                for update in updates {
                    if update.value.is_some() {
                        keys.insert(update.key.clone());
                    } else {
                        keys.remove(&update.key);
                    }
                }
                if silent {
                    continue;
                }
            }
            SyncEvent::Status(SyncStatus::InSync) => {
                deadline = None;
                silent = false;
            }
            SyncEvent::Status(_) => deadline = deadline.or_else(limit),
            _ => {}
        }
        let printed = renderer.event(&event, keys.len(), out).and_then(|()| out.flush());
        if printed.is_err() {
            return ended(printed);
        }
    }
    client.close().await;
    Ok(0)
}

async fn expired(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
