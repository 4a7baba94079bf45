//! The terminal that a command prints to, if it prints to one: its width, and whether it shows colours.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};

/// A terminal, or none: then nothing is cut and nothing is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Longest row, in characters. `None`: no limit.
    pub width: Option<usize>,
    /// Whether rows are coloured.
    pub colours: bool,
}

/// A colour of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Red,
    Green,
    Yellow,
    Faint,
}

impl Screen {
    /// Standard output. Colours need a terminal that knows them; `NO_COLOR` with any text switches them off
    /// (<https://no-color.org>).
    #[must_use]
    pub fn of_stdout() -> Self {
        let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let variable = |name| std::env::var_os(name);
        let colours = shows_colours(variable("NO_COLOR").as_deref(), variable("TERM").as_deref());
        Self { width, colours: io::stdout().is_terminal() && colours }
    }

    /// A row in a colour.
    pub(super) fn paint(self, colour: Colour, row: &str) -> String {
        if !self.colours {
            return row.to_owned();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Faint => 2,
        };
        format!("\x1b[{code}m{row}\x1b[0m")
    }
}

fn shows_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        for (no_color, term, expected) in [
            (None, Some("xterm"), true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (Some("0"), Some("xterm"), false),
            (None, Some("dumb"), false),
            (None, None, false),
        ] {
            assert_eq!(
                shows_colours(no_color.map(OsStr::new), term.map(OsStr::new)),
                expected,
                "{no_color:?} {term:?}"
            );
        }
        assert_eq!(Screen::default().paint(Colour::Red, "row"), "row");
        let screen = Screen { width: None, colours: true };
        assert_eq!(screen.paint(Colour::Red, "row"), "\x1b[31mrow\x1b[0m");
    }
}
