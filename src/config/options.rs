//! Options, each written once: the row of an option (name, kind, default, text) stands where its value is used.
//!
//! A function of [`super::table`] begins a row with a method of [`Options`], adds to it, and ends it with [`Row::read`], which returns
//! the value in its type. The same functions list the options, and make the configuration from checked values. So they must read
//! all their options each time, even an option that the value of another one makes useless.

use std::path::PathBuf;
use std::time::Duration;

use super::parse::Value;
use super::spec::{Group, Item, Kind, OptionSpec, Section, Zero};
use crate::datastore::Pattern;

/// A text of an option's row.
type Str = &'static str;

/// Stands for all namespaces.
const ALL_NAMESPACES: &str = "*";

/// Gives the value of an option that is read.
type ValueOf<'a> = dyn FnMut(OptionSpec) -> Value + 'a;

/// The values of all options, read one by one.
pub(super) struct Options<'a> {
    group: Group,
    section: Section,
    value_of: &'a mut ValueOf<'a>,
}

impl<'a> Options<'a> {
    /// Options of the section with these values. Each value must be of its option's kind.
    pub(super) fn new(section: Section, value_of: &'a mut ValueOf<'a>) -> Self {
        Self { group: Group::Datastore, section, value_of }
    }

    /// Begins a group: the options that are read from now on belong to it.
    pub(super) fn begin(&mut self, group: Group) {
        self.group = group;
    }

    pub(super) fn boolean(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, bool> {
        self.row(name, Kind::Bool, default, doc, |value| matches!(value, Value::Bool(true)))
    }

    /// A whole number of at least 1, unless the row sets other bounds.
    pub(super) fn count(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, usize> {
        self.row(name, Kind::Int { min: 1, max: i32::MAX }, default, doc, |value| match value {
            Value::Int(number) => usize::try_from(number).unwrap_or(0),
            other => unreachable!("{other:?} is no whole number"),
        })
    }

    pub(super) fn port(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, u16> {
        self.row(name, Kind::Int { min: 0, max: 65535 }, default, doc, |value| match value {
            Value::Int(number) => u16::try_from(number).expect("the kind bounds ports"),
            other => unreachable!("{other:?} is no port"),
        })
    }

    /// A number of seconds; a negative number counts as zero.
    pub(super) fn seconds(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, Duration> {
        self.row(name, Kind::Seconds, default, doc, |value| match value {
            Value::Seconds(seconds) => Duration::from_secs_f64(seconds.max(0.0)),
            other => unreachable!("{other:?} is no number of seconds"),
        })
        .unit("seconds")
    }

    pub(super) fn word(&mut self, name: Str, words: &'static [Str], default: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::OneOf(words), default, doc, text)
    }

    pub(super) fn host(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::HostAddress, default, doc, text)
    }

    pub(super) fn authority(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::Authority, default, doc, text)
    }

    /// A list of URLs, empty by default.
    pub(super) fn endpoints(&mut self, name: Str, doc: Str) -> Row<'_, Vec<String>> {
        self.row(name, Kind::EndpointList, "", doc, list)
    }

    pub(super) fn text(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::Text, default, doc, text)
    }

    /// A line of text that may be missing; missing by default.
    pub(super) fn optional_text(&mut self, name: Str, doc: Str) -> Row<'_, Option<String>> {
        self.row(name, Kind::Text, "", doc, optional)
    }

    /// A path that need not exist.
    pub(super) fn file(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, Option<PathBuf>> {
        self.row(name, Kind::File { must_exist: false }, default, doc, |value| optional(value).map(PathBuf::from))
    }

    /// A path that must exist if it is set; not set by default.
    pub(super) fn existing_file(&mut self, name: Str, doc: Str) -> Row<'_, Option<PathBuf>> {
        self.row(name, Kind::File { must_exist: true }, "", doc, |value| optional(value).map(PathBuf::from))
    }

    /// A path below a folder; empty by default, which is the folder itself.
    pub(super) fn inner_path(&mut self, name: Str, doc: Str) -> Row<'_, PathBuf> {
        self.row(name, Kind::InnerPath, "", doc, |value| PathBuf::from(text(value)))
    }

    /// A text that ends in `/`.
    pub(super) fn prefix(&mut self, name: Str, default: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::Prefix, default, doc, text)
    }

    /// A label selector; empty by default, which selects everything.
    pub(super) fn selector(&mut self, name: Str, doc: Str) -> Row<'_, String> {
        self.row(name, Kind::Selector, "", doc, text)
    }

    /// Names of datastores.
    pub(super) fn datastores(&mut self, name: Str, doc: Str) -> Row<'_, Vec<String>> {
        self.row(name, Kind::ListOf(Item::Datastore), "", doc, list)
    }

    /// Patterns of kinds.
    pub(super) fn patterns(&mut self, name: Str, doc: Str) -> Row<'_, Vec<Pattern>> {
        self.row(name, Kind::ListOf(Item::Pattern), "", doc, |value| {
            let patterns = list(value).into_iter().map(|text| text.parse().expect("the kind accepts patterns only"));
            patterns.collect()
        })
    }

    /// Namespaces; all by default, which the value says by naming none.
    pub(super) fn namespaces(&mut self, name: Str, doc: Str) -> Row<'_, Vec<String>> {
        self.row(name, Kind::ListOf(Item::Namespace), ALL_NAMESPACES, doc, |value| {
            list(value).into_iter().filter(|namespace| namespace != ALL_NAMESPACES).collect()
        })
        .zero_means(ALL_NAMESPACES)
    }

    /// Paths that must exist; none by default.
    pub(super) fn existing_paths(&mut self, name: Str, doc: Str) -> Row<'_, Vec<PathBuf>> {
        self.row(name, Kind::ListOf(Item::ExistingPath), "", doc, |value| {
            list(value).into_iter().map(PathBuf::from).collect()
        })
    }

    fn row<T>(&mut self, name: Str, kind: Kind, default: Str, doc: Str, typed: fn(Value) -> T) -> Row<'_, T> {
        let spec = OptionSpec {
            name,
            section: self.section,
            group: self.group,
            kind,
            default,
            doc,
            unit: "",
            zero: Zero::Plain,
            ours: false,
            plain_variable: false,
            only_for: "",
            required: false,
        };
        Row { spec, typed, value_of: &mut *self.value_of }
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        other => unreachable!("{other:?} is no text"),
    }
}

fn list(value: Value) -> Vec<String> {
    match value {
        Value::List(list) => list,
        other => unreachable!("{other:?} is no list"),
    }
}

fn optional(value: Value) -> Option<String> {
    Some(text(value)).filter(|text| !text.is_empty())
}

/// An option that is about to be read.
#[must_use]
pub(super) struct Row<'a, T> {
    spec: OptionSpec,
    typed: fn(Value) -> T,
    value_of: &'a mut ValueOf<'a>,
}

impl<T> Row<'_, T> {
    /// Sets the unit of the number.
    pub(super) fn unit(mut self, unit: Str) -> Self {
        self.spec.unit = unit;
        self
    }

    /// Sets the least and the greatest whole number that are accepted.
    pub(super) fn bounds(mut self, min: i32, max: i32) -> Self {
        self.spec.kind = Kind::Int { min, max };
        self
    }

    /// Sets the value that takes effect in place of `none`, and of numbers of zero and less.
    pub(super) fn zero_means(mut self, replacement: Str) -> Self {
        self.spec.zero = Zero::Becomes(replacement);
        self
    }

    /// Makes `none` a mistake.
    pub(super) fn refuses_zero(mut self) -> Self {
        self.spec.zero = Zero::Refused;
        self
    }

    /// Marks an option that Typha does not have.
    pub(super) fn ours(mut self) -> Self {
        self.spec.ours = true;
        self
    }

    /// Marks an option that only an environment variable of exactly its name can set.
    pub(super) fn plain_variable(mut self) -> Self {
        self.spec.plain_variable = true;
        self
    }

    /// Limits an option of a `[datastore "name"]` to datastores of this type.
    pub(super) fn only_for(mut self, datastore_type: Str) -> Self {
        self.spec.only_for = datastore_type;
        self
    }

    /// Makes a section without the option a mistake.
    pub(super) fn required(mut self) -> Self {
        self.spec.required = true;
        self
    }

    /// The option's value.
    pub(super) fn read(self) -> T {
        (self.typed)((self.value_of)(self.spec))
    }
}
