//! The form of an option: its kind of value, the meaning of `none`, its group.

/// How an option's text is read.
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
        /// Whether it must exist when the configuration is read.
        must_exist: bool,
    },
}

/// What `none` means, and for numbers zero and less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zero {
    /// The empty value itself: off, nothing, 0.
    Plain,
    /// This value takes its place. `bulrush config` shows both.
    Becomes(&'static str),
    /// It is a mistake.
    Refused,
}

/// The part of the program that an option belongs to. Gives the headings of the generated texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Where truth lives.
    Datastore,
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
    /// For whoever looks into a running process.
    Debug,
}

impl Group {
    /// All groups, in the order of the generated texts.
    pub const ALL: [Self; 8] = [
        Self::Datastore,
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
    /// Its name in the file. The variable is `TYPHA_` and the name, in any case.
    pub name: &'static str,
    /// What it belongs to.
    pub group: Group,
    /// How its text is read.
    pub kind: Kind,
    /// Its default, written as in the file.
    pub default: &'static str,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
    /// What a number counts; empty for other kinds.
    pub unit: &'static str,
    /// What `none` (and zero or less) means.
    pub zero: Zero,
    /// Whether Typha does not have it.
    pub ours: bool,
    /// Read only from the environment, from a variable of exactly this name, without the prefix.
    pub plain_variable: bool,
}

impl OptionSpec {
    pub(super) const fn new(
        group: Group,
        name: &'static str,
        kind: Kind,
        default: &'static str,
        doc: &'static str,
    ) -> Self {
        let unit = if matches!(kind, Kind::Seconds) { "seconds" } else { "" };
        Self { name, group, kind, default, doc, unit, zero: Zero::Plain, ours: false, plain_variable: false }
    }

    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(super) const fn zero(self, zero: Zero) -> Self {
        Self { zero, ..self }
    }

    pub(super) const fn ours(self) -> Self {
        Self { ours: true, ..self }
    }

    pub(super) const fn plain_variable(self) -> Self {
        Self { plain_variable: true, ..self }
    }

    /// The environment variable that sets it, in the spelling that documentation uses.
    #[must_use]
    pub fn variable(&self) -> String {
        if self.plain_variable { self.name.to_owned() } else { format!("TYPHA_{}", self.name.to_uppercase()) }
    }

    /// What it accepts, for people.
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
        }
    }
}
