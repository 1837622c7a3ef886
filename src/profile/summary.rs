//! Time per kind of operator, and the check of a profile: the sum of its parts against the whole.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{Row, StoreError, measure::Cost, store::replace};
use crate::units::Micros;

/// What a profile says in all.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The most expensive first.
    pub kinds: Vec<Kind>,
    /// Sum over all rows.
    pub sum: Whole,
    /// Rows without a time: what the device cannot compute.
    pub missing: usize,
    /// Rows for which hardly any undisturbed sample was there.
    pub disturbed: usize,
}

/// All operators or groups of one name; one line of the summary file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    pub operator: String,
    pub count: usize,
    /// Sum of the medians.
    pub time_us: f64,
    pub cpu_us: f64,
    /// Fraction of the sum over all kinds.
    pub share: f64,
}

/// Medians of wall clock and of processor time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Whole {
    pub time: Micros,
    pub cpu: Micros,
}

/// Names of the summary file's last two lines.
const SUM: &str = "(sum)";
const WHOLE: &str = "(whole model)";

impl Summary {
    pub fn of(rows: &[Row]) -> Summary {
        let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
        for row in rows {
            let kind = kinds.entry(&row.operator).or_insert_with(|| Kind::new(&row.operator));
            kind.count += 1;
            kind.time_us += row.time_us_median.unwrap_or(0.0);
            kind.cpu_us += row.cpu_us_median.unwrap_or(0.0);
        }
        let mut kinds: Vec<Kind> = kinds.into_values().collect();
        let time: f64 = kinds.iter().map(|kind| kind.time_us).sum();
        let cpu: f64 = kinds.iter().map(|kind| kind.cpu_us).sum();
        for kind in &mut kinds {
            kind.share = if time > 0.0 { kind.time_us / time } else { 0.0 };
        }
        kinds.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
        Summary {
            kinds,
            sum: Whole { time: Micros(time), cpu: Micros(cpu) },
            missing: rows.iter().filter(|row| row.time_us_median.is_none()).count(),
            disturbed: rows.iter().filter(|row| row.disturbed > 0.5).count(),
        }
    }

    /// Writes the kinds, their sum and the time of the whole model beside the profile at `profile`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, profile: &Path, whole: Option<Whole>) -> Result<PathBuf, StoreError> {
        let line = |name: &str, of: Whole| Kind { time_us: of.time.0, cpu_us: of.cpu.0, ..Kind::new(name) };
        let count = self.kinds.iter().map(|kind| kind.count).sum();
        let mut lines = self.kinds.clone();
        lines.push(Kind { count, share: 1.0, ..line(SUM, self.sum) });
        lines.extend(whole.map(|whole| Kind { count: 1, ..line(WHOLE, whole) }));
        for line in &mut lines {
            line.time_us = (line.time_us * 1e3).round() / 1e3;
            line.cpu_us = (line.cpu_us * 1e3).round() / 1e3;
            line.share = (line.share * 1e6).round() / 1e6;
        }
        let path = beside(profile);
        replace(&path, &lines)?;
        Ok(path)
    }
}

impl Whole {
    /// What the summary beside `profile` says of the whole model, if it is there.
    pub fn read(profile: &Path) -> Option<Whole> {
        let mut lines = csv::Reader::from_path(beside(profile)).ok()?.into_deserialize::<Kind>();
        let line = lines.find_map(|line| line.ok().filter(|line| line.operator == WHOLE))?;
        Some(Whole { time: Micros(line.time_us), cpu: Micros(line.cpu_us) })
    }

    /// How far `sum` is from this, as fractions of it: by wall clock and by processor time, which other
    /// processes on the machine distort less.
    pub fn off(&self, sum: &Whole) -> (f64, f64) {
        let off = |sum: Micros, whole: Micros| (sum.0 - whole.0) / whole.0.max(f64::MIN_POSITIVE);
        (off(sum.time, self.time), off(sum.cpu, self.cpu))
    }
}

impl From<&Cost> for Whole {
    fn from(cost: &Cost) -> Whole {
        Whole { time: cost.time.median, cpu: cost.cpu }
    }
}

impl Kind {
    fn new(operator: &str) -> Kind {
        Kind { operator: operator.to_string(), count: 0, time_us: 0.0, cpu_us: 0.0, share: 0.0 }
    }
}

/// `profile.csv` → `profile.summary.csv`.
pub(super) fn beside(profile: &Path) -> PathBuf {
    profile.with_extension("summary.csv")
}
