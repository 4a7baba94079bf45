//! The form of an option: its kind of value, the meaning of `none`, its group, its section.

use crate::model::nearest::nearest;

/// The kind of an option's value, by which its text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true`, `1`, `yes`, `y`, `t` or `false`, `0`, `no`, `n`, `f`, in any case.
    Bool,
    /// A whole number in Go's notation (`0x`, `0o`, `0b`, `_`), within bounds.
    Int {
        /// Least accepted value.
        min: i32,
        /// Greatest accepted value.
        max: i32,
    },
    /// A number of seconds in Go's notation for floats, without a unit.
    Seconds,
    /// One of these words, in any case; kept in the spelling given here.
    OneOf(&'static [&'static str]),
    /// A host name or address without brackets: 1 to 64 of letters, digits and `: . _ + -`.
    HostAddress,
    /// `host:port`, without IPv6 addresses.
    Authority,
    /// URLs separated by commas, all of one scheme, without user, query, fragment and path.
    EndpointList,
    /// One line of text.
    Text,
    /// A path.
    File {
        /// True if it must exist when the configuration is read.
        must_exist: bool,
    },
    /// A path below a folder: relative, without `..`.
    InnerPath,
    /// A text that ends in `/`.
    Prefix,
    /// A label selector in Kubernetes' syntax.
    Selector,
    /// Items separated by commas, none of them twice.
    ListOf(Item),
}

/// The items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The name of a datastore.
    Datastore,
    /// A pattern of kinds, as [`crate::datastore::Pattern`] reads it.
    Pattern,
    /// A namespace; or `*`, alone, for all of them.
    Namespace,
    /// A path that must exist when the configuration is read.
    ExistingPath,
}

/// The meaning of `none`, and of numbers of zero and less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The empty value itself: off, nothing, 0.
    Plain,
    /// This value, written as in the file. `bulrush config` shows both.
    Becomes(&'static str),
    /// A mistake.
    Refused,
}

/// The section of the file that an option stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// No section of its own: the option counts anywhere outside of named sections, and in the environment.
    Global,
    /// `[datastore "name"]`: a datastore for syncers of any kind.
    Datastore,
    /// `[syncer "name"]`: a syncer of any kind.
    Syncer,
}

impl Section {
    /// The sections with a heading.
    pub const NAMED: [Self; 2] = [Self::Datastore, Self::Syncer];

    /// The word before the quoted name in the section's heading; `None` if the section has no heading of its own.
    #[must_use]
    pub const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Global => None,
            Self::Datastore => Some("datastore"),
            Self::Syncer => Some("syncer"),
        }
    }

    /// The heading of the section with this name; empty for options that stand in none.
    #[must_use]
    pub fn heading(self, name: &str) -> String {
        self.kind().map(|kind| format!("[{kind} \"{name}\"]")).unwrap_or_default()
    }

    /// The section that a heading of this kind begins, in any case.
    pub(super) fn of_kind(kind: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|section| section.kind().is_some_and(|own| own.eq_ignore_ascii_case(kind)))
    }

    /// The section whose kind is spelled like this.
    pub(super) fn like(kind: &str) -> Option<Self> {
        nearest(kind, Self::NAMED.into_iter().filter_map(Self::kind)).and_then(Self::of_kind)
    }
}

/// The part of the program that an option belongs to. The generated texts have a heading for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The datastore.
    Datastore,
    /// The data that are served to agents.
    Syncers,
    /// Log destinations and levels.
    Logging,
    /// Health endpoints and status.
    Health,
    /// Prometheus metrics.
    Metrics,
    /// The cache and the server that agents connect to.
    Server,
    /// TLS of the server.
    Tls,
    /// Numbers of connections, rebalancing, shutdown.
    Connections,
    /// Looking into a running process.
    Debug,
}

impl Group {
    /// All groups, in the order of the generated texts.
    pub const ALL: [Self; 9] = [
        Self::Datastore,
        Self::Syncers,
        Self::Logging,
        Self::Health,
        Self::Metrics,
        Self::Server,
        Self::Tls,
        Self::Connections,
        Self::Debug,
    ];

    /// Its heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Datastore => "Datastore",
            Self::Syncers => "Syncers",
            Self::Logging => "Logging",
            Self::Health => "Health and status",
            Self::Metrics => "Metrics",
            Self::Server => "Cache and server",
            Self::Tls => "TLS",
            Self::Connections => "Connections and shutdown",
            Self::Debug => "Debugging",
        }
    }
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name in the file. The variable is `TYPHA_` and the name, in any case; options of named sections have none.
    pub name: &'static str,
    /// The section of the file that it stands in.
    pub section: Section,
    /// The part of the program that it belongs to.
    pub group: Group,
    /// The kind of its value.
    pub kind: Kind,
    /// Its default, written as in the file.
    pub default: &'static str,
    /// Its effect, in a sentence or two.
    pub doc: &'static str,
    /// The unit of a number; empty for other kinds.
    pub unit: &'static str,
    /// The meaning of `none` (and of zero or less).
    pub zero: Zero,
    /// True if Typha does not have it.
    pub ours: bool,
    /// True if only an environment variable of exactly this name, without the prefix, sets it.
    pub plain_variable: bool,
    /// The datastore's type that the option of a `[datastore "name"]` is for; empty: for all.
    pub only_for: &'static str,
    /// True if its section is wrong without it.
    pub required: bool,
}

impl OptionSpec {
    /// The environment variable that sets it, in the spelling that documentation uses.
    #[must_use]
    pub fn variable(&self) -> String {
        if self.plain_variable { self.name.to_owned() } else { format!("TYPHA_{}", self.name.to_uppercase()) }
    }

    /// The texts that it accepts, in words.
    #[must_use]
    pub fn accepts(&self) -> String {
        match self.kind {
            Kind::Bool => "true or false".to_owned(),
            Kind::Int { min, max: i32::MAX } => format!("a whole number, {min} or more"),
            Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Seconds => "a number of seconds without a unit, for example 10 or 0.5".to_owned(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::HostAddress => "a host name or IP address without brackets, at most 64 characters".to_owned(),
            Kind::Authority => "host:port".to_owned(),
            Kind::EndpointList => {
                "http:// or https:// URLs separated by commas, all of one scheme, without user, path or query"
                    .to_owned()
            }
            Kind::Text => "one line of text".to_owned(),
            Kind::File { must_exist: true } => "an existing path".to_owned(),
            Kind::File { must_exist: false } => "a path".to_owned(),
            Kind::InnerPath => "a path below the folder; .. is not accepted".to_owned(),
            Kind::Prefix => "a text that ends in /".to_owned(),
            Kind::Selector => "a label selector, for example app=web,tier in (a,b),!old".to_owned(),
            Kind::ListOf(Item::Datastore) => "names of datastore sections, separated by commas".to_owned(),
            Kind::ListOf(Item::Pattern) => {
                "group/version/Kind, version/Kind (Kubernetes' core group) or group/*, separated by commas".to_owned()
            }
            Kind::ListOf(Item::Namespace) => "* or namespaces, separated by commas".to_owned(),
            Kind::ListOf(Item::ExistingPath) => "existing paths, separated by commas".to_owned(),
        }
    }
}
