//! `bulrush get`: prints objects of any kind that a syncer has, and their changes if that is wanted.
//!
//! Kinds are those of the data: a syncer without any object of a kind does not know it.

mod object;
mod print;
mod wanted;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use self::object::Found;
pub use self::print::Format;
use self::print::{Change, Printer};
use self::wanted::{Kind, Wanted};
use super::collect::collect;
use super::connect::{ConnectArgs, seconds};
use super::exit::{EXIT_FAILURE, EXIT_USAGE, ended};
use super::screen::Screen;
use crate::datastore::labels::Labels;
use crate::model::nearest::{did_you_mean, nearest};
use crate::model::{Key, Update};
use crate::syncclient::{Client, SyncEvent};

/// Arguments of `bulrush get`.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    /// The kind in any case, singular or plural, and perhaps the name of one object: VirtualService/reviews, configmaps,
    /// gateways.networking.istio.io
    #[arg(value_name = "KIND[.GROUP][/NAME]", value_parser = Wanted::parse)]
    pub wanted: Wanted,
    /// Name of one object
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// The namespace; objects that belong to none are shown all the same
    #[arg(short, long, default_value = "default", value_name = "NAME")]
    pub namespace: String,
    /// Objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only objects with these labels, as for kubectl: app=web,tier in (a,b),!old
    #[arg(short = 'l', long, default_value = "", hide_default_value = true, value_parser = Labels::parse)]
    pub selector: Labels,
    /// Go on and print every change
    #[arg(short, long)]
    pub watch: bool,
    /// Form of the output
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Give up when the server is not in sync after this many seconds
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub timeout: Duration,
    /// The server, and the syncer.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// The objects that are asked for, once their kind is known.
struct Query<'a> {
    kind: &'a Kind,
    name: Option<&'a str>,
    args: &'a GetArgs,
}

impl Query<'_> {
    fn admits(&self, found: &Found) -> bool {
        found.kind == *self.kind
            && self.name.is_none_or(|name| name == found.name)
            && (self.args.all_namespaces || found.namespace.is_empty() || found.namespace == self.args.namespace)
            && found.body.is_some()
            && (self.args.selector.is_empty() || self.args.selector.select(&found.labels()))
    }

    /// The reason why nothing is printed.
    fn none_of(&self, all: &BTreeMap<Key, Found>) -> String {
        let of_kind = || all.values().filter(|found| found.kind == *self.kind && found.body.is_some());
        let place = if self.args.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", self.args.namespace)
        };
        let Some(name) = self.name else {
            let selected = if self.args.selector.is_empty() { "" } else { " with these labels" };
            let elsewhere: BTreeSet<&str> = of_kind().map(|found| &*found.namespace).collect();
            let elsewhere: Vec<&str> = elsewhere.into_iter().collect();
            return format!("no {}{selected} is in {place}; there are some in {}", self.kind, elsewhere.join(", "));
        };
        let same = of_kind().filter(|found| found.name == name);
        let elsewhere: Vec<&str> = same.map(|found| &*found.namespace).collect();
        let hint = if elsewhere.is_empty() {
            let here = of_kind().filter(|found| self.args.all_namespaces || found.namespace == self.args.namespace);
            let near = nearest(name, here.map(|found| &*found.name));
            near.map(|_| format!("; {}", did_you_mean(near))).unwrap_or_default()
        } else if self.args.selector.is_empty() {
            format!("; there is one in namespace {}", elsewhere.join(", "))
        } else {
            "; the one with this name has other labels, or is in another namespace".to_owned()
        };
        format!("no {} with the name {name:?} is in {place}{hint}", self.kind)
    }
}

/// Connects, waits for in-sync, prints the objects to `out`, and their changes until `cancel` if these are wanted. Problems go to `err`.
/// `screen` is what `out` leads to. Returns the exit status: 0, 1 if there is no such object or no in-sync in time, 64 for
/// arguments that make no sense.
///
/// # Errors
/// `err` cannot be written to. A closed `out` is a way to stop.
pub async fn run(
    args: &GetArgs,
    screen: Screen,
    cancel: CancellationToken,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    let started = match (&args.wanted.name, &args.name) {
        (Some(_), Some(_)) => Err("a name is given twice: as KIND/NAME and as NAME".to_owned()),
        _ => args.connect.start(&[]),
    };
    let mut client = match started {
        Ok(client) => client,
        Err(reason) => {
            writeln!(err, "get: {reason}")?;
            return Ok(EXIT_USAGE);
        }
    };
    let collected = tokio::select! {
        () = cancel.cancelled() => return Ok(0),
        collected = collect(&mut client, args.connect.server.len(), args.timeout) => collected,
    };
    let shown = match collected {
        Ok(content) => show(args, &content, screen, out),
        Err(reason) => Err(reason),
    };
    let (kind, printer, shown, printed) = match shown {
        Ok(shown) => shown,
        Err(reason) => {
            writeln!(err, "get: syncer {}: {reason}", args.connect.syncer)?;
            client.close().await;
            return Ok(EXIT_FAILURE);
        }
    };
    let mut status = ended(printed)?;
    if args.watch {
        let query = Query { kind: &kind, name: args.wanted.name.as_deref().or(args.name.as_deref()), args };
        let following = follow(&mut client, &query, printer, shown, out, err);
        status = tokio::select! {
            () = cancel.cancelled() => 0,
            status = following => status?,
        };
    }
    client.close().await;
    Ok(status)
}

type Shown = (Kind, Printer, BTreeSet<Key>, io::Result<()>);

/// Prints the objects that are there. Returns their kind, their keys, and whether they could be printed; or the reason why there
/// are none.
fn show(
    args: &GetArgs,
    content: &BTreeMap<Key, Update>,
    screen: Screen,
    out: &mut impl Write,
) -> Result<Shown, String> {
    let all: BTreeMap<Key, Found> =
        content.iter().filter_map(|(key, update)| Some((key.clone(), Found::of(update)?))).collect();
    let kinds: BTreeSet<Kind> = all.values().map(|found| found.kind.clone()).collect();
    let kind = args.wanted.resolve(&kinds)?.clone();
    let query = Query { kind: &kind, name: args.wanted.name.as_deref().or(args.name.as_deref()), args };
    let found: Vec<(&Key, &Found)> = all.iter().filter(|(_, found)| query.admits(found)).collect();
    if found.is_empty() {
        return Err(query.none_of(&all));
    }
    let objects: Vec<&Found> = found.iter().map(|(_, found)| *found).collect();
    let mut printer = Printer::new(args.output, screen, args.all_namespaces, args.watch);
    let one = query.name.is_some() && objects.len() == 1;
    let printed = printer.list(&objects, one, out).and_then(|()| out.flush());
    let keys = found.into_iter().map(|(key, _)| key.clone()).collect();
    Ok((kind, printer, keys, printed))
}

/// Prints every change of the objects that are asked for, until the output is closed or the client ends.
async fn follow(
    client: &mut Client,
    query: &Query<'_>,
    mut printer: Printer,
    mut shown: BTreeSet<Key>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> io::Result<u8> {
    while let Some(event) = client.next().await {
        match event {
            SyncEvent::Updates(updates) => {
                for update in updates {
                    let Some(found) = Found::of(&update) else { continue };
                    let change = match (query.admits(&found), shown.contains(&update.key)) {
                        (true, true) => Change::Updated,
                        (true, false) => Change::New,
                        // Deleted, or its labels are others now.
                        (false, true) => Change::Deleted,
                        (false, false) => continue,
                    };
                    if change == Change::Deleted {
                        shown.remove(&update.key);
                    } else {
                        shown.insert(update.key.clone());
                    }
                    let printed = printer.change(change, &found, out).and_then(|()| out.flush());
                    if printed.is_err() {
                        return ended(printed);
                    }
                }
            }
            SyncEvent::Disconnected { address, reason, .. } => {
                writeln!(err, "get: no connection to {address}: {reason}; changes may be missing until it is back")?;
            }
            SyncEvent::Status(_) | SyncEvent::Connected { .. } | SyncEvent::Progress(_) => {}
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
