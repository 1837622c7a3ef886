//! One candidate run on the agents, to learn what it takes.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use edgecut_engine::statistics::median;
use edgecut_graph::units::Micros;
use edgecut_plan::{Plan, pipeline_depth, problem::Objective};

use super::options::PilotOptions;
use crate::run::{
    execute::Record,
    outcome::Outcome,
    perform::{PerformError, RunContext, perform},
};

/// What running a plan a few times showed.
#[derive(Debug, Clone, PartialEq)]
pub struct PilotOutcome {
    pub outcome: Outcome,
    /// By server: how long an idle device takes to begin computing once the last tensor that it waited for has arrived.
    /// Empty of a stream, where devices are rarely idle.
    pub wake_times: BTreeMap<SmolStr, Micros>,
}

impl PilotOutcome {
    /// What the plan is judged by: the time between results of a stream, else the latency.
    pub fn time(&self) -> Micros {
        self.outcome.interval_us.unwrap_or(self.outcome.latency.median_us)
    }

    /// What `plan` predicted of that.
    pub fn predicted(&self, plan: &Plan) -> Micros {
        if self.outcome.interval_us.is_some() { plan.predicted.interval_us } else { plan.predicted.latency_us }
    }

    /// The outcome in a sentence, for the plan's notes.
    pub fn note(&self, is_scheduled: bool) -> String {
        let latency = self.outcome.latency;
        let measured = match self.outcome.interval_us {
            Some(interval) => format!("{interval} between {} results", latency.n),
            None => format!("{} (median of {} runs, ± {})", latency.median_us, latency.n, latency.mad_us),
        };
        let times = match is_scheduled {
            false => "times are those of groups in context",
            true => "times are those of groups in the run, all of them and the links' scaled to the whole",
        };
        format!("pilot run on the agents: {measured}; {times}")
    }
}

/// Why a candidate could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PilotError {
    #[error(transparent)]
    Perform(#[from] PerformError),
    #[error("no run was measured")]
    NothingMeasured,
}

/// Runs `plan` often enough for medians: one input at a time, or as many in flight as a plan for throughput says.
///
/// # Errors
/// If an agent refuses its part, fails or is lost.
pub async fn pilot_run(
    context: &RunContext<'_>,
    plan: &Plan,
    options: &PilotOptions,
) -> Result<PilotOutcome, PilotError> {
    let in_flight = match plan.objective {
        Objective::Throughput => plan.in_flight.unwrap_or(1).clamp(1, pipeline_depth::MAX_IN_FLIGHT),
        Objective::Latency | Objective::Memory => 1,
    };
    let interval = if in_flight > 1 { plan.predicted.interval_us } else { plan.predicted.latency_us };
    let repeats = (options.run_time.0 / interval.0.max(1.0)) as u64;
    let repeats = repeats.clamp(options.min_repeats, options.max_repeats);
    // While the pipeline fills and drains fewer inputs are in flight: some more runs make that matter little.
    let repeats = repeats + 2 * u64::from(in_flight - 1);
    let (deployment, record) = perform(context, plan, repeats, in_flight).await?;
    let outcome = Outcome::of(plan, &deployment, &record).ok_or(PilotError::NothingMeasured)?;
    let wake_times = if in_flight > 1 { BTreeMap::new() } else { wake_times(&record) };
    Ok(PilotOutcome { outcome, wake_times })
}

/// By server, the median time from the arrival of a stage's last operand to its beginning, over stages whose device was
/// idle then.
fn wake_times(record: &Record) -> BTreeMap<SmolStr, Micros> {
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
    use crate::agent::protocol::inference_trace::{InferenceTrace, StageTime};

    #[test]
    fn only_idle_devices_have_wake_times() {
        let stage = |ready: f64, start: f64, end: f64| StageTime {
            device: "cpu".into(),
            stage: 0,
            ready: Micros(ready),
            start: Micros(start),
            end: Micros(end),
            steps: Vec::new(),
        };
        // The second is ready while the first still runs.
        let stages = vec![stage(10.0, 15.0, 100.0), stage(50.0, 101.0, 200.0), stage(300.0, 307.0, 400.0)];
        let measured = InferenceTrace { inference: 1, stages, transfers: vec![], arrivals: vec![], memory: vec![] };
        let record = Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: [("a".into(), vec![measured])].into(),
            clocks: BTreeMap::new(),
        };
        assert_eq!(wake_times(&record), [("a".into(), Micros(6.0))].into());
    }
}
