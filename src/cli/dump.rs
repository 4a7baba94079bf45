//! `bulrush dump`: prints the data of a server, once, as soon as it is in sync.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;

use super::collect::collect;
use super::connect::{ConnectArgs, seconds};
use super::exit::{EXIT_FAILURE, EXIT_USAGE, ended};
use super::render::Renderer;
use super::screen::Screen;
use super::shown::ShownArgs;

/// Arguments of `bulrush dump`.
#[derive(Args, Clone, Debug)]
pub struct DumpArgs {
    /// The server, and the syncer.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// The keys, and the form.
    #[command(flatten)]
    pub shown: ShownArgs,
    /// Give up when the server is not in sync after this many seconds
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub timeout: Duration,
}

/// Connects, waits for in-sync, prints all keys in order to `out`. Problems go to `err`. `screen` is what `out` leads to.
/// Returns the exit status: 0, 1 if the server was not in sync in time, 64 for arguments that make no sense.
///
/// # Errors
/// `err` cannot be written to. A closed `out` is a way to stop.
pub async fn run(args: &DumpArgs, screen: Screen, out: &mut impl Write, err: &mut impl Write) -> io::Result<u8> {
    let mut client = match args.connect.start(&args.shown.prefix) {
        Ok(client) => client,
        Err(reason) => {
            writeln!(err, "dump: {reason}")?;
            return Ok(EXIT_USAGE);
        }
    };
    match collect(&mut client, args.connect.server.len(), args.timeout).await {
        Ok(content) => {
            client.close().await;
            let renderer = Renderer::new(args.shown.output, screen);
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
