//! Time per kind of operator, and the check of a profile: the sum of its parts against the whole.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Row, measure::Cost};
use crate::units::Micros;

/// All operators or groups of one name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kind {
    pub operator: String,
    pub count: usize,
    pub time_us: f64,
    /// Fraction of the sum over all kinds.
    pub share: f64,
}

/// What a profile says in all.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The most expensive first.
    pub kinds: Vec<Kind>,
    /// Sum of the medians of wall time and of processor time.
    pub time: Micros,
    pub cpu: Micros,
    /// Rows without a time: what the device cannot compute.
    pub missing: usize,
    /// Rows for which too few undisturbed samples were there.
    pub disturbed: usize,
}

impl Summary {
    pub fn of(rows: &[Row]) -> Summary {
        let mut kinds: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
        for row in rows {
            let kind = kinds.entry(&row.operator).or_default();
            kind.0 += 1;
            kind.1 += row.time_us_median.unwrap_or(0.0);
        }
        let time: f64 = kinds.values().map(|kind| kind.1).sum();
        let share = |part: f64| if time > 0.0 { part / time } else { 0.0 };
        let mut kinds: Vec<Kind> = kinds
            .into_iter()
            .map(|(operator, (count, time_us))| Kind {
                operator: operator.to_string(),
                count,
                time_us,
                share: share(time_us),
            })
            .collect();
        kinds.sort_by(|a, b| b.time_us.total_cmp(&a.time_us));
        Summary {
            kinds,
            time: Micros(time),
            cpu: Micros(rows.iter().filter_map(|row| row.cpu_us_median).sum()),
            missing: rows.iter().filter(|row| row.time_us_median.is_none()).count(),
            disturbed: rows.iter().filter(|row| row.disturbed > 0.5).count(),
        }
    }

    /// How far the sum of the parts is from the whole, as fractions of the whole: by wall clock and by
    /// processor time, which other processes on the machine distort less.
    pub fn against(&self, whole: &Cost) -> (f64, f64) {
        let off = |sum: Micros, whole: Micros| (sum.0 - whole.0) / whole.0.max(f64::MIN_POSITIVE);
        (off(self.time, whole.time.median), off(self.cpu, whole.cpu))
    }
}
