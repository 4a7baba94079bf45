//! One measurement for each of several values, as points of a plot.

use std::str::FromStr;

/// The setting that varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Clients,
    Rate,
    Endpoints,
}

/// The setting that varies, and its values: `clients=22,102,502`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sweep {
    pub(crate) axis: Axis,
    pub(crate) values: Vec<u32>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (axis, values) = text.split_once('=').ok_or("a sweep is written as clients=22,102,502")?;
        let axis = match axis {
            "clients" => Axis::Clients,
            "rate" => Axis::Rate,
            "endpoints" => Axis::Endpoints,
            other => return Err(format!("{other:?} cannot vary; clients, rate and endpoints can")),
        };
        let values: Vec<u32> = values
            .split(',')
            .map(|value| value.trim().parse().map_err(|error| format!("{value:?}: {error}")))
            .collect::<Result<_, _>>()?;
        if values.contains(&0) {
            return Err("0 is no value to measure at".to_owned());
        }
        Ok(Self { axis, values })
    }
}

impl Sweep {
    /// The setting's name in results.
    pub(crate) fn name(&self) -> &'static str {
        match self.axis {
            Axis::Clients => "clients",
            Axis::Rate => "rate",
            Axis::Endpoints => "endpoints",
        }
    }

    /// Whether the datastore has to be filled anew for each value.
    pub(crate) fn changes_data(&self) -> bool {
        self.axis == Axis::Endpoints
    }
}
