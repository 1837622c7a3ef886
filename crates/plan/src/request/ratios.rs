//! In which ratio a split group is shared among its devices: as the search tunes it, or by one of the two rules that
//! are common elsewhere, to compare with.

use std::{fmt, str::FromStr};

use crate::problem::{Cost, ProblemError};

/// How the fractions of split groups are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ratios {
    /// Tuned for each segment of the model, by transfers and the measured costs of shards.
    #[default]
    Tuned,
    /// Every device gets an equal share.
    Equal,
    /// Shares are proportional to the devices' speeds, the reciprocals of their times for the whole model.
    Proportional,
}

/// The speed of each of `devices` devices, in groups of average size a microsecond; 0 for one that can compute nothing.
/// `costs` are by group and device.
pub fn speeds(costs: &[Vec<Option<Cost>>], devices: usize) -> Vec<f64> {
    let speed = |device: usize| {
        let times = costs.iter().filter_map(|row| row.get(device).copied().flatten()).map(|cost| cost.time.0);
        let (sum, count) = times.fold((0.0, 0usize), |(sum, count), time| (sum + time, count + 1));
        if count == 0 || sum <= 0.0 { 0.0 } else { count as f64 / sum }
    };
    (0..devices).map(speed).collect()
}

impl FromStr for Ratios {
    type Err = ProblemError;
    fn from_str(text: &str) -> Result<Ratios, ProblemError> {
        match text {
            "tuned" => Ok(Ratios::Tuned),
            "equal" => Ok(Ratios::Equal),
            "proportional" => Ok(Ratios::Proportional),
            _ => Err(ProblemError {
                what: format!("`{text}` is not a valid rule: expected tuned, equal or proportional"),
            }),
        }
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ratios::Tuned => "tuned",
            Ratios::Equal => "equal",
            Ratios::Proportional => "proportional",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Micros;

    #[test]
    fn speed_is_what_the_whole_model_takes() {
        let cost = |time: f64| Some(Cost { time: Micros(time), ..Cost::default() });
        let costs = [vec![cost(10.0), cost(30.0), None], vec![cost(30.0), cost(10.0), None]];
        assert_eq!(speeds(&costs, 3), [0.05, 0.05, 0.0]);
    }

    #[test]
    fn rules_are_read_as_they_are_written() {
        for rule in [Ratios::Tuned, Ratios::Equal, Ratios::Proportional] {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert!("best".parse::<Ratios>().is_err());
    }
}
