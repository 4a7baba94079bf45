//! The manners of agents, and their spread among all agents.

use std::str::FromStr;

/// Behaviour of a counted agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Reads everything at once.
    Honest,
    /// Reads this many bytes a second.
    Slow(usize),
    /// Sends its greeting, and then neither reads nor sends pongs.
    Stuck,
}

/// A share of agents: `10%`, or a number of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Share {
    Percent(f64),
    Number(usize),
}

impl Share {
    /// Number of agents out of `all`.
    pub(crate) fn of(self, all: usize) -> usize {
        match self {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 % of a count")]
            Self::Percent(percent) => (all as f64 * percent / 100.0).round() as usize,
            Self::Number(number) => number.min(all),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = match text.trim().strip_suffix('%') {
            Some(percent) => percent.trim().parse().ok().filter(|n| (0.0..=100.0).contains(n)).map(Self::Percent),
            None => text.trim().parse().ok().map(Self::Number),
        };
        fits.ok_or_else(|| format!("{text:?} is neither a number of agents nor a share such as 10%"))
    }
}

/// The manners of `all` agents, with the hostile ones spread evenly among the others.
pub(crate) fn mixed(all: usize, slow: usize, slow_rate: usize, stuck: usize) -> Vec<Manner> {
    let mut manners = vec![Manner::Honest; all];
    spread(&mut manners, stuck, Manner::Stuck);
    spread(&mut manners, slow, Manner::Slow(slow_rate));
    manners
}

/// Gives `n` honest agents, at even distances, another manner.
fn spread(manners: &mut [Manner], n: usize, manner: Manner) {
    let honest: Vec<usize> =
        manners.iter().enumerate().filter(|(_, manner)| **manner == Manner::Honest).map(|(i, _)| i).collect();
    let n = n.min(honest.len());
    for i in 0..n {
        manners[honest[i * honest.len() / n]] = manner;
    }
}
