//! A DLMO or MAGIS file, the schedules found for it, and the one that meets a target.

use std::str::FromStr;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    check,
    dlmo::{Pattern, PatternError, Reading},
    fit::{self, Found, Options},
    magis::{self, Export, ExportError},
    unmade,
};
use crate::units::{Bytes, Micros, UnitError};

/// Sets of values that are looked at for the bound of a peak.
const SETS: usize = 20_000;

/// A program from a file.
#[derive(Debug)]
pub enum Workload {
    Dlmo(Pattern, Box<Reading>),
    Magis(Box<Export>),
}

/// Peak and time of one schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    pub peak_bytes: Bytes,
    pub time_us: Micros,
}

/// What a schedule must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// No more memory than this; as fast as possible.
    Limit(Limit),
    /// No slower than so many times the original; as small as possible.
    Slowdown(f64),
}

/// A memory limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    Bytes(Bytes),
    /// Of the original peak, 1 being all of it.
    Share(f64),
}

/// Why there is no workload, or no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error("no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "neither DLMO's form (`code`, `data`, `outputs`), nor tensors and operators (`tensors`, `ops`), nor MAGIS's (`ops`)"
    )]
    Form,
    #[error(transparent)]
    Dlmo(#[from] PatternError),
    #[error(transparent)]
    Magis(#[from] ExportError),
    #[error("a schedule does not pass its check: {0}")]
    Records(#[from] check::records::Flaw),
    #[error("a schedule does not pass its check: {0}")]
    Operators(#[from] check::operators::Flaw),
    #[error("a schedule takes {found} bytes and {found_us} µs, predicted were {predicted} bytes and {predicted_us} µs")]
    Prediction { found: u64, found_us: f64, predicted: u64, predicted_us: f64 },
}

/// The schedules of a workload.
pub struct Solved<'a> {
    workload: &'a Workload,
    found: Schedules<'a>,
    /// As the file has it.
    pub original: Figures,
    /// No schedule needs less memory; none takes less time than every operator once.
    pub bound: Figures,
    /// By rising peak and falling time.
    pub front: Vec<Figures>,
    /// Schedules looked at.
    pub evaluated: u64,
}

enum Schedules<'a> {
    Dlmo(Found),
    Magis(magis::fit::Fitted<'a>),
}

/// One schedule as a file.
pub struct Written {
    pub json: String,
    /// Operators that run more than once, counted without their first run.
    pub repeated: usize,
    /// Values that go to the host.
    pub stored: usize,
    /// Parts that the batch is split into.
    pub parts: u64,
}

impl Workload {
    /// # Errors
    /// If the text is of neither form, or inconsistent.
    pub fn parse(text: &[u8]) -> Result<Workload, WorkloadError> {
        #[derive(Deserialize)]
        struct Form {
            code: Option<IgnoredAny>,
            tensors: Option<IgnoredAny>,
            ops: Option<IgnoredAny>,
        }
        match serde_json::from_slice(text)? {
            Form { code: Some(_), .. } | Form { tensors: Some(_), ops: Some(_), .. } => {
                let pattern = Pattern::parse(text)?;
                let reading = Box::new(pattern.read()?);
                Ok(Workload::Dlmo(pattern, reading))
            }
            Form { ops: Some(_), .. } => Ok(Workload::Magis(Box::new(Export::parse(text)?))),
            _ => Err(WorkloadError::Form),
        }
    }

    /// How many operators it has.
    pub fn operators(&self) -> usize {
        match self {
            Workload::Dlmo(_, reading) => reading.program.operators.len(),
            Workload::Magis(export) => export.ops.len(),
        }
    }

    /// Bytes of its weights, as far as the file tells.
    pub fn weights(&self) -> Bytes {
        match self {
            Workload::Dlmo(_, reading) => Bytes(reading.program.resident),
            Workload::Magis(export) => export.ops.iter().filter(|op| op.is_weight).map(|op| Bytes(op.out_bytes)).sum(),
        }
    }

    /// Searches schedules. Deterministic by seed and budget.
    ///
    /// # Errors
    /// If the file is a schedule that cannot be read as a graph.
    pub fn solve(&self, options: &Options) -> Result<Solved<'_>, WorkloadError> {
        let figures = |peak: u64, time: f64| Figures { peak_bytes: Bytes(peak), time_us: Micros(time) };
        Ok(match self {
            Workload::Dlmo(pattern, reading) => {
                let found = fit::fit(&reading.program, options);
                let (peak, time) = pattern.figures();
                Solved {
                    workload: self,
                    original: figures(peak, time),
                    bound: figures(unmade::least_peak(&reading.program, SETS), reading.program.time()),
                    front: found.front.points().iter().map(|p| figures(p.peak, p.time)).collect(),
                    evaluated: found.evaluated,
                    found: Schedules::Dlmo(found),
                }
            }
            Workload::Magis(export) => {
                let fitted = magis::fit::fit(export, options)?;
                let simulated = magis::simulate::simulate(&export.ops);
                let time: f64 = export.ops.iter().map(|op| op.latency_ms * 1e3).sum();
                Solved {
                    workload: self,
                    original: figures(simulated.peak_bytes, simulated.latency_ms * 1e3),
                    bound: figures(fitted.least_peak(), time),
                    front: fitted.front().iter().map(|s| figures(s.peak, s.time)).collect(),
                    evaluated: fitted.evaluated,
                    found: Schedules::Magis(fitted),
                }
            }
        })
    }
}

impl Solved<'_> {
    /// The memory limit in bytes.
    pub fn limit(&self, limit: Limit) -> Bytes {
        limit.of(self.original.peak_bytes)
    }

    /// The place in the front of the best schedule that keeps the target.
    pub fn best(&self, target: Target) -> Option<usize> {
        match target {
            Target::Limit(limit) => {
                let limit = self.limit(limit);
                self.front.iter().rposition(|f| f.peak_bytes <= limit)
            }
            Target::Slowdown(factor) => {
                let time = self.original.time_us.0 * factor * (1.0 + 1e-12);
                self.front.iter().position(|f| f.time_us.0 <= time)
            }
        }
    }

    /// One schedule of the front in the form of the input, checked.
    ///
    /// # Errors
    /// If it does not pass the independent check.
    pub fn write(&self, index: usize) -> Result<Written, WorkloadError> {
        let wanted = self.front[index];
        let (written, peak, time) = match (self.workload, &self.found) {
            (Workload::Dlmo(pattern, reading), Schedules::Dlmo(found)) => {
                let point = &found.front.points()[index];
                let steps = fit::steps(&reading.program, &point.choice).unwrap_or_default();
                let schedule = pattern.with_code(reading.code(pattern, &steps));
                let cost = check::records::records(pattern, &schedule)?;
                let repeated = steps.len() - reading.program.operators.len().min(steps.len());
                let json = serde_json::to_string(&schedule)?;
                (Written { json, repeated, stored: 0, parts: 1 }, cost.peak, cost.time)
            }
            (Workload::Magis(export), Schedules::Magis(fitted)) => {
                let front = fitted.front();
                let schedule = fitted.export(&front[index]).unwrap_or_else(|| (**export).clone());
                check::operators::operators(export, &schedule)?;
                let inner = schedule.ops.iter().find_map(|op| op.fission.as_ref());
                let all = || schedule.ops.iter().chain(inner.iter().flat_map(|f| &f.graph.ops));
                let written = Written {
                    repeated: all().filter(|op| op.is_remat).count(),
                    stored: all().filter(|op| op.tag == "store").count(),
                    parts: inner.map_or(1, |f| f.iters),
                    json: serde_json::to_string(&schedule)?,
                };
                (written, schedule.peak_bytes, schedule.latency_ms * 1e3)
            }
            _ => return Err(WorkloadError::Form),
        };
        if peak != wanted.peak_bytes.0 || (time - wanted.time_us.0).abs() > 1e-6 * time {
            let (predicted, predicted_us) = (wanted.peak_bytes.0, wanted.time_us.0);
            return Err(WorkloadError::Prediction { found: peak, found_us: time, predicted, predicted_us });
        }
        Ok(written)
    }
}

impl Limit {
    /// In bytes, of an original peak.
    pub fn of(self, original: Bytes) -> Bytes {
        match self {
            Limit::Bytes(bytes) => bytes,
            Limit::Share(share) => Bytes((original.0 as f64 * share) as u64),
        }
    }
}

impl FromStr for Limit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Limit, UnitError> {
        let share = text.trim().strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
        match share {
            Some(percent) if percent > 0.0 && percent.is_finite() => Ok(Limit::Share(percent / 100.0)),
            _ => text.parse().map(Limit::Bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_or_sizes() {
        assert_eq!("40%".parse(), Ok(Limit::Share(0.4)));
        assert_eq!("1KiB".parse(), Ok(Limit::Bytes(Bytes(1024))));
        assert!("-3%".parse::<Limit>().is_err());
        assert!("much".parse::<Limit>().is_err());
    }
}
