//! Scheduling workloads in the formats of DLMO and MAGIS: the Pareto front of schedules, and the one that meets a target;
//! [`batch`] runs many of them.

pub mod batch;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::{
    dlmo::{self, LoweredPattern, Pattern, PatternError},
    magis::{self, Export, ExportError},
};
use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    bound::remat::peak_bound,
    remat::{RematOptions, RematResult, expand, search_schedules},
    target::{Limit, Target},
};

/// Live sets that are expanded for the lower bound on the peak.
const SETS: usize = 20_000;

/// A workload file.
#[derive(Debug)]
pub enum MemoryWorkload {
    Dlmo(Pattern, Box<LoweredPattern>),
    Magis(Box<Export>),
}

/// Peak and time of one schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PeakAndTime {
    pub peak_bytes: Bytes,
    pub time_us: Micros,
}

/// Why a file is not a workload, or its result is invalid.
#[derive(Debug, thiserror::Error)]
pub enum MemoryWorkloadError {
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("expected the form of DLMO (`code`, `data`, `outputs` or `tensors`, `ops`) or of MAGIS (`ops`)")]
    Form,
    #[error(transparent)]
    Dlmo(#[from] PatternError),
    #[error(transparent)]
    Magis(#[from] ExportError),
    #[error("the schedule fails its check: {0}")]
    Records(#[from] dlmo::check::DlmoViolation),
    #[error("the schedule fails its check: {0}")]
    Operators(#[from] magis::check::MagisViolation),
    #[error(
        "the schedule takes {} bytes and {} µs, predicted were {} bytes and {} µs",
        .found.peak_bytes.0, .found.time_us.0, .predicted.peak_bytes.0, .predicted.time_us.0
    )]
    Prediction { found: PeakAndTime, predicted: PeakAndTime },
}

/// The schedules found for a workload.
pub struct Solved<'a> {
    workload: &'a MemoryWorkload,
    found: Schedules<'a>,
    /// The file's own order.
    pub original: PeakAndTime,
    /// Lower bounds: on the peak over all schedules, and on the time.
    pub bound: PeakAndTime,
    /// The Pareto front, by increasing peak.
    pub front: Vec<PeakAndTime>,
    /// The number of schedules evaluated.
    pub evaluated: u64,
}

enum Schedules<'a> {
    Dlmo(RematResult),
    Magis(magis::search::MagisSchedules<'a>),
}

/// A schedule in the format of its workload.
pub struct WrittenSchedule {
    pub json: String,
    /// As the workload's own simulation has them: at most what the search predicted.
    pub figures: PeakAndTime,
    /// Recomputations.
    pub repeated: usize,
    /// Copies to the host.
    pub stored: usize,
    /// The number of parts that the batch is split into.
    pub parts: u64,
}

impl MemoryWorkload {
    /// # Errors
    /// If the text has neither form, or is inconsistent.
    pub fn parse(text: &[u8]) -> Result<MemoryWorkload, MemoryWorkloadError> {
        #[derive(Deserialize)]
        struct WorkloadForm {
            code: Option<IgnoredAny>,
            tensors: Option<IgnoredAny>,
            ops: Option<IgnoredAny>,
        }
        match serde_json::from_slice(text)? {
            WorkloadForm { code: Some(_), .. } | WorkloadForm { tensors: Some(_), ops: Some(_), .. } => {
                let pattern = Pattern::parse(text)?;
                let lowered = Box::new(LoweredPattern::new(&pattern)?);
                Ok(MemoryWorkload::Dlmo(pattern, lowered))
            }
            WorkloadForm { ops: Some(_), .. } => Ok(MemoryWorkload::Magis(Box::new(Export::parse(text)?))),
            _ => Err(MemoryWorkloadError::Form),
        }
    }

    /// The number of operators.
    pub fn operators(&self) -> usize {
        match self {
            MemoryWorkload::Dlmo(_, lowered) => lowered.program.operators.len(),
            MemoryWorkload::Magis(export) => export.ops.len(),
        }
    }

    /// The size of its weights, as far as the file has them.
    pub fn weights(&self) -> Bytes {
        match self {
            MemoryWorkload::Dlmo(_, lowered) => lowered.program.resident,
            MemoryWorkload::Magis(export) => {
                export.ops.iter().filter(|op| op.is_weight).map(|op| Bytes(op.out_bytes)).sum()
            }
        }
    }

    /// Searches schedules. Deterministic for a given seed and budget.
    ///
    /// # Errors
    /// If the file is a schedule already.
    pub fn solve(&self, options: &RematOptions) -> Result<Solved<'_>, MemoryWorkloadError> {
        let figures = |peak: Bytes, time: Micros| PeakAndTime { peak_bytes: peak, time_us: time };
        Ok(match self {
            MemoryWorkload::Dlmo(pattern, lowered) => {
                let found = search_schedules(&lowered.program, options);
                let (peak, time) = pattern.figures();
                Solved {
                    workload: self,
                    original: figures(peak, time),
                    bound: figures(peak_bound(&lowered.program, SETS), lowered.program.time()),
                    front: found.front.points().iter().map(|p| figures(p.peak, p.time)).collect(),
                    evaluated: found.evaluated,
                    found: Schedules::Dlmo(found),
                }
            }
            MemoryWorkload::Magis(export) => {
                let schedules = magis::search::search_schedules(export, options)?;
                let simulated = magis::simulate::simulate(&export.ops);
                let time: f64 = export.ops.iter().map(|op| op.latency_ms * 1e3).sum();
                Solved {
                    workload: self,
                    original: figures(Bytes(simulated.peak_bytes), Micros(simulated.latency_ms * 1e3)),
                    bound: figures(schedules.peak_bound(), Micros(time)),
                    front: schedules.front().iter().map(|s| figures(s.peak, s.time)).collect(),
                    evaluated: schedules.evaluated,
                    found: Schedules::Magis(schedules),
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

    /// The index in the front of the best schedule that meets the target.
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

    /// A schedule of the front in the format of the input, checked.
    ///
    /// # Errors
    /// If it fails the independent check, or needs more memory or time than the search predicted.
    pub fn write(&self, index: usize) -> Result<WrittenSchedule, MemoryWorkloadError> {
        let wanted = self.front[index];
        let written = match (self.workload, &self.found) {
            (MemoryWorkload::Dlmo(pattern, lowered), Schedules::Dlmo(found)) => {
                let point = &found.front.points()[index];
                let steps = expand(&lowered.program, &point.decision).unwrap_or_default();
                let schedule = pattern.with_code(lowered.code(pattern, &steps));
                let cost = dlmo::check::records(pattern, &schedule)?;
                let repeated = steps.len() - lowered.program.operators.len().min(steps.len());
                WrittenSchedule {
                    json: serde_json::to_string(&schedule)?,
                    figures: PeakAndTime { peak_bytes: cost.peak, time_us: cost.time },
                    repeated,
                    stored: 0,
                    parts: 1,
                }
            }
            (MemoryWorkload::Magis(export), Schedules::Magis(schedules)) => {
                let front = schedules.front();
                let schedule = schedules.export(&front[index]).unwrap_or_else(|| (**export).clone());
                magis::check::operators(export, &schedule)?;
                let inner = schedule.ops.iter().find_map(|op| op.fission.as_ref());
                let all = || schedule.ops.iter().chain(inner.iter().flat_map(|f| &f.graph.ops));
                WrittenSchedule {
                    figures: PeakAndTime {
                        peak_bytes: Bytes(schedule.peak_bytes),
                        time_us: Micros(schedule.latency_ms * 1e3),
                    },
                    repeated: all().filter(|op| op.is_remat).count(),
                    stored: all().filter(|op| op.tag == "store").count(),
                    parts: inner.map_or(1, |f| f.iters),
                    json: serde_json::to_string(&schedule)?,
                }
            }
            _ => return Err(MemoryWorkloadError::Form),
        };
        let found = written.figures;
        // Simulated as a whole a schedule may free a tensor earlier than its parts say.
        match found.peak_bytes > wanted.peak_bytes || found.time_us.0 > wanted.time_us.0 * (1.0 + 1e-6) {
            true => Err(MemoryWorkloadError::Prediction { found, predicted: wanted }),
            false => Ok(written),
        }
    }
}

/// Why no schedule that was found keeps a target.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoSchedule {
    #[error("no schedule within {limit} was found: no schedule needs less than {bound}, {} more{}", .limit.shortfall(*.bound), or_smallest(*.smallest))]
    BelowBound { limit: Bytes, bound: Bytes, smallest: Option<Bytes> },
    #[error("no schedule within {limit} was found: the lower bound is {bound}; a longer search may find one{}", or_smallest(*.smallest))]
    NotFound { limit: Bytes, bound: Bytes, smallest: Option<Bytes> },
    #[error("no schedule takes at most {factor} times {original}{}", or_fastest(*.fastest))]
    TooSlow { factor: f64, original: Micros, fastest: Option<Micros> },
}

fn or_smallest(found: Option<Bytes>) -> String {
    found.map_or(String::new(), |peak| format!("; the smallest one found needs {peak}"))
}

fn or_fastest(found: Option<Micros>) -> String {
    found.map_or(String::new(), |time| format!("; the fastest one takes {time}"))
}

impl Solved<'_> {
    /// The share by which a schedule is above the bound of what the target makes small: the time under a
    /// limit, the peak under a slowdown.
    pub fn gap(&self, found: PeakAndTime, target: Target) -> f64 {
        let bound = &self.bound;
        let ratio = match target {
            Target::Limit(_) => found.time_us.0 / bound.time_us.0,
            Target::Slowdown(_) => found.peak_bytes.0 as f64 / bound.peak_bytes.0 as f64,
        };
        if ratio.is_finite() { (ratio - 1.0).max(0.0) } else { 0.0 }
    }

    /// Why no schedule of the front keeps the target.
    pub fn why_none(&self, target: Target) -> NoSchedule {
        match target {
            Target::Limit(limit) => {
                let (limit, bound) = (self.limit(limit), self.bound.peak_bytes);
                let smallest = self.front.first().map(|found| found.peak_bytes);
                match bound > limit {
                    true => NoSchedule::BelowBound { limit, bound, smallest },
                    false => NoSchedule::NotFound { limit, bound, smallest },
                }
            }
            Target::Slowdown(factor) => {
                let (original, fastest) = (self.original.time_us, self.front.last().map(|found| found.time_us));
                NoSchedule::TooSlow { factor, original, fastest }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two values of 100 bytes that are live together; 10 µs.
    const PATTERN: &str = r#"{"version": 7, "inputs": [0], "outputs": [2],
        "data": [{"id": 0, "size": 0}, {"id": 1, "size": 100}, {"id": 2, "size": 100}],
        "code": [{"name": "f", "attr": {}, "ins": [0], "outs": [1], "workspace": 0, "time": 4.0},
                 {"name": "g", "attr": {}, "ins": [1], "outs": [2], "workspace": 0, "time": 6.0},
                 {"name": ".dealloc", "attr": {}, "ins": [], "outs": [1], "workspace": 0, "time": 0}]}"#;

    #[test]
    fn a_missed_target_is_explained_by_its_bound() {
        let workload = MemoryWorkload::parse(PATTERN.as_bytes()).unwrap();
        let solved = workload.solve(&RematOptions { seed: 1, budget: 10_000, cut_off: None }).unwrap();
        assert_eq!((solved.original.peak_bytes, solved.original.time_us), (Bytes(200), Micros(10.0)));
        let target = Target::Limit(Limit::Share(1.0));
        let best = solved.best(target).unwrap();
        assert_eq!(solved.gap(solved.write(best).unwrap().figures, target), 0.0);
        let (limit, bound, smallest) = (Bytes(150), Bytes(200), Some(Bytes(200)));
        let why = solved.why_none(Target::Limit(Limit::Bytes(limit)));
        assert_eq!(why, NoSchedule::BelowBound { limit, bound, smallest });
        assert_eq!(
            why.to_string(),
            "no schedule within 150 B was found: no schedule needs less than 200 B, 50 B more; the smallest one found needs 200 B"
        );
        let why = solved.why_none(Target::Slowdown(0.5)).to_string();
        assert_eq!(why, "no schedule takes at most 0.5 times 10.0 us; the fastest one takes 10.0 us");
    }
}
