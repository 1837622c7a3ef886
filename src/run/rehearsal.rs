//! A plan run on the agents before it is given out, to learn what it takes in fact.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{
    execute::Record,
    outcome::Outcome,
    perform::{PerformError, Stage, perform},
};
use crate::{
    plan::{Plan, flight, problem::Objective},
    statistics::median,
    units::Micros,
};

/// What running a plan a few times showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsal {
    pub outcome: Outcome,
    /// By server: how long after the last thing that it waited for an idle device begins to compute. Nothing of a stream,
    /// where devices are rarely idle.
    pub wakes: BTreeMap<SmolStr, Micros>,
}

impl Rehearsal {
    /// What the plan is judged by: the time between results if it is for a stream, else the latency.
    pub fn time(&self) -> Micros {
        self.outcome.interval_us.unwrap_or(self.outcome.latency.median_us)
    }

    /// What `plan` predicted of that.
    pub fn predicted(&self, plan: &Plan) -> Micros {
        if self.outcome.interval_us.is_some() { plan.predicted.interval_us } else { plan.predicted.latency_us }
    }
}

/// Why a plan could not be rehearsed.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    #[error(transparent)]
    Perform(#[from] PerformError),
    #[error("no run was measured")]
    Nothing,
}

/// Runs are counted until they have taken about so long together.
const ENOUGH: Micros = Micros(1e6);

/// The fewest and the most runs that count.
const FEWEST: f64 = 8.0;
const MOST: f64 = 40.0;

/// Runs `plan` often enough for medians: one input at a time, or as many under way as a plan for throughput says.
///
/// # Errors
/// If an agent refuses its part, fails or is lost.
pub async fn rehearse(stage: &Stage<'_>, plan: &Plan) -> Result<Rehearsal, RehearsalError> {
    let in_flight = match plan.objective {
        Objective::Throughput => plan.in_flight.unwrap_or(1).clamp(1, flight::MOST),
        Objective::Latency | Objective::Memory => 1,
    };
    let between = if in_flight > 1 { plan.predicted.interval_us } else { plan.predicted.latency_us };
    let repeat = (ENOUGH.0 / between.0.max(1.0)).clamp(FEWEST, MOST) as u64;
    // At the beginning and at the end fewer are under way: some more runs, so that this matters little.
    let repeat = repeat + 2 * u64::from(in_flight - 1);
    let (deployment, record) = perform(stage, plan, repeat, in_flight).await?;
    let outcome = Outcome::of(plan, &deployment, &record).ok_or(RehearsalError::Nothing)?;
    let wakes = if in_flight > 1 { BTreeMap::new() } else { wakes(&record) };
    Ok(Rehearsal { outcome, wakes })
}

/// By server, the median time from what a stage waited for to its beginning, of stages whose device had nothing else to do.
fn wakes(record: &Record) -> BTreeMap<SmolStr, Micros> {
    let mut found = BTreeMap::new();
    for (server, measured) in &record.measured {
        let mut waits = Vec::new();
        for inference in measured {
            let mut busy_until: BTreeMap<&SmolStr, Micros> = BTreeMap::new();
            for stage in &inference.stages {
                let free = busy_until.insert(&stage.device, stage.end);
                if stage.ready > Micros::ZERO && free.is_none_or(|free| stage.ready > free) {
                    waits.push(stage.start - stage.ready);
                }
            }
        }
        if !waits.is_empty() {
            found.insert(server.clone(), median(&waits));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::measured::{Measured, StageTime};

    #[test]
    fn only_devices_that_waited_tell_how_fast_they_wake() {
        let stage = |ready: f64, start: f64, end: f64| StageTime {
            device: "cpu".into(),
            stage: 0,
            ready: Micros(ready),
            start: Micros(start),
            end: Micros(end),
            steps: Vec::new(),
        };
        // The second was ready while the first still ran.
        let stages = vec![stage(10.0, 15.0, 100.0), stage(50.0, 101.0, 200.0), stage(300.0, 307.0, 400.0)];
        let measured = Measured { inference: 1, stages, transfers: vec![], arrivals: vec![], memory: vec![] };
        let record = Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: [("a".into(), vec![measured])].into(),
            clocks: BTreeMap::new(),
        };
        assert_eq!(wakes(&record), [("a".into(), Micros(6.0))].into());
    }
}
