//! Time and energy by kind of operator, and the consistency check of a profile: the sum of its items against the whole model.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    Cost, ProfileError, ProfileRow,
    csv_file::{replace, summary_path},
};
use edgecut_graph::units::{Joules, Micros};

/// A profile aggregated by kind of operator.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileSummary {
    /// Most expensive first.
    pub kinds: Vec<OperatorTotal>,
    /// Sum over all rows.
    pub sum: ModelTime,
    /// Rows without a time: what the device cannot compute.
    pub missing: usize,
    /// Rows of which most samples were disturbed.
    pub disturbed: usize,
}

/// All operators or groups of one name; one line of the summary file, whose last two lines are of all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorTotal {
    pub kind: TotalKind,
    /// Empty for the sum and for the whole model.
    pub operator: String,
    pub count: usize,
    /// Sum of the medians.
    pub time_us: Micros,
    pub cpu_us: Micros,
    /// Fraction of the time of all kinds.
    #[serde(rename = "share")]
    pub fraction: f64,
    /// `None` unless it is known of all of them. Files may lack this column.
    #[serde(default)]
    pub energy_j: Option<Joules>,
}

/// Medians of wall-clock and CPU time, and the energy of a run where it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelTime {
    pub time: Micros,
    pub cpu: Micros,
    pub energy: Option<Joules>,
}

/// What a line of the summary file is of, so that a sum over lines of one kind counts nothing twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TotalKind {
    /// All operators or groups of one name.
    Operator,
    /// All of them.
    Sum,
    /// The whole model, measured in one piece.
    Model,
}

/// A row is disturbed if more than this fraction of its samples is.
const MOSTLY_DISTURBED: f64 = 0.5;

impl ProfileSummary {
    pub fn of(rows: &[ProfileRow]) -> ProfileSummary {
        let mut kinds: BTreeMap<&str, OperatorTotal> = BTreeMap::new();
        for row in rows {
            let new = || OperatorTotal {
                energy_j: Some(Joules::ZERO),
                ..OperatorTotal::new(TotalKind::Operator, &row.operator)
            };
            let kind = kinds.entry(&row.operator).or_insert_with(new);
            kind.count += 1;
            kind.time_us += row.time_us_median.unwrap_or(Micros::ZERO);
            kind.cpu_us += row.cpu_us_median.unwrap_or(Micros::ZERO);
            kind.energy_j = added(kind.energy_j, row.energy_j);
        }
        let mut kinds: Vec<OperatorTotal> = kinds.into_values().collect();
        let time: Micros = kinds.iter().map(|kind| kind.time_us).sum();
        let cpu: Micros = kinds.iter().map(|kind| kind.cpu_us).sum();
        let none = Some(Joules::ZERO).filter(|_| !kinds.is_empty());
        let energy = kinds.iter().fold(none, |sum, kind| added(sum, kind.energy_j));
        for kind in &mut kinds {
            kind.fraction = if time > Micros::ZERO { kind.time_us.0 / time.0 } else { 0.0 };
        }
        kinds.sort_by(|a, b| b.time_us.0.total_cmp(&a.time_us.0));
        ProfileSummary {
            kinds,
            sum: ModelTime { time, cpu, energy },
            missing: rows.iter().filter(|row| row.time_us_median.is_none()).count(),
            disturbed: rows.iter().filter(|row| row.disturbed > MOSTLY_DISTURBED).count(),
        }
    }

    /// Writes the kinds, their sum and the time of the whole model next to the profile at `profile`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, profile: &Path, whole: Option<ModelTime>) -> Result<PathBuf, ProfileError> {
        let line = |kind: TotalKind, of: ModelTime| OperatorTotal {
            time_us: of.time,
            cpu_us: of.cpu,
            energy_j: of.energy,
            ..OperatorTotal::new(kind, "")
        };
        let count = self.kinds.iter().map(|kind| kind.count).sum();
        let mut lines = self.kinds.clone();
        lines.push(OperatorTotal { count, fraction: 1.0, ..line(TotalKind::Sum, self.sum) });
        lines.extend(whole.map(|whole| OperatorTotal { count: 1, ..line(TotalKind::Model, whole) }));
        let rounded = |time: Micros| Micros((time.0 * 1e3).round() / 1e3);
        for line in &mut lines {
            line.time_us = rounded(line.time_us);
            line.cpu_us = rounded(line.cpu_us);
            line.fraction = (line.fraction * 1e6).round() / 1e6;
        }
        let path = summary_path(profile);
        replace(&path, &lines)?;
        Ok(path)
    }
}

impl ModelTime {
    /// The time of the whole model in the summary next to `profile`, if there is one.
    pub fn read(profile: &Path) -> Option<ModelTime> {
        let mut lines = csv::Reader::from_path(summary_path(profile)).ok()?.into_deserialize::<OperatorTotal>();
        let line = lines.find_map(|line| line.ok().filter(|line| line.kind == TotalKind::Model))?;
        Some(ModelTime { time: line.time_us, cpu: line.cpu_us, energy: line.energy_j })
    }

    /// Relative difference of `sum` from this, by wall-clock time and by CPU time; other processes on the machine
    /// distort the latter less.
    pub fn relative_difference(&self, sum: &ModelTime) -> (f64, f64) {
        let difference = |sum: Micros, whole: Micros| (sum.0 - whole.0) / whole.0.max(f64::MIN_POSITIVE);
        (difference(sum.time, self.time), difference(sum.cpu, self.cpu))
    }
}

impl From<&Cost> for ModelTime {
    fn from(cost: &Cost) -> ModelTime {
        ModelTime { time: cost.time.median, cpu: cost.cpu, energy: cost.energy.map(|energy| energy.run) }
    }
}

impl OperatorTotal {
    fn new(kind: TotalKind, operator: &str) -> OperatorTotal {
        OperatorTotal {
            kind,
            operator: operator.to_string(),
            count: 0,
            time_us: Micros::ZERO,
            cpu_us: Micros::ZERO,
            fraction: 0.0,
            energy_j: None,
        }
    }
}

/// A sum of energies; unknown if one of them is.
fn added(sum: Option<Joules>, more: Option<Joules>) -> Option<Joules> {
    Some(sum? + more?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, MeasurementMode, ProfiledDevice};
    use edgecut_engine::EngineId;
    use edgecut_graph::{Granularity, Graph};

    #[test]
    fn times_are_added_by_kind_and_the_file_is_read_back() {
        let engine = EngineId { name: "e".into(), version: "1".into() };
        let device =
            ProfiledDevice { server: "s".into(), device: "cpu".into(), hardware: "h".into(), engine, threads: 1 };
        let item = Item::new(&Graph::new(), Vec::new());
        let row = |id: usize, operator: &str, time: Option<f64>, disturbed: f64| ProfileRow {
            operator: operator.to_string(),
            time_us_median: time.map(Micros),
            cpu_us_median: time.map(Micros),
            energy_j: time.filter(|_| operator == "add").map(Joules),
            disturbed,
            ..ProfileRow::new(
                &device,
                MeasurementMode::Isolated,
                Granularity::Op,
                id,
                &item,
                &Err("not measured".to_string()),
            )
        };
        let rows = [
            row(0, "add", Some(1.0), 0.0),
            row(1, "conv", Some(6.0), 0.75),
            row(2, "add", Some(1.0), 0.5),
            row(3, "sort", None, 0.0),
        ];
        let summary = ProfileSummary::of(&rows);
        let kinds: Vec<(&str, usize, f64, f64)> =
            summary.kinds.iter().map(|k| (k.operator.as_str(), k.count, k.time_us.0, k.fraction)).collect();
        assert_eq!(kinds, [("conv", 1, 6.0, 0.75), ("add", 2, 2.0, 0.25), ("sort", 1, 0.0, 0.0)]);
        assert_eq!((summary.missing, summary.disturbed), (1, 1));
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("p.csv");
        let whole = ModelTime { time: Micros(10.0), cpu: Micros(8.0), energy: Some(Joules(0.5)) };
        let path = summary.write(&profile, Some(whole)).unwrap();
        assert_eq!(ModelTime::read(&profile), Some(whole));
        assert_eq!(whole.relative_difference(&summary.sum), (-0.2, 0.0));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("kind,operator,count,time_us,cpu_us,share,energy_j\noperator,conv,1,6.0,6.0,0.75,\noperator,add,2,2.0,2.0,0.25,2.0\n"), "{text}");
        assert!(text.ends_with("sum,,4,8.0,8.0,1.0,\nmodel,,1,10.0,8.0,0.0,0.5\n"), "{text}");
    }
}
