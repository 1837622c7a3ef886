//! A pilot run of one candidate on the agents: measured times and memory.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use edgecut_engine::statistics::median;
use edgecut_graph::units::Micros;
use edgecut_plan::{Plan, pipeline_depth, problem::Objective};

use super::options::PilotOptions;
use crate::run::perform::{PerformError, RunContext, perform};
use edgecut_agent::results::{Outcome, record::Record};

/// The measurements of a pilot run.
#[derive(Debug, Clone, PartialEq)]
pub struct PilotOutcome {
    pub outcome: Outcome,
    /// By server: median time from the arrival of the last operand to the start of a stage on an idle device. Empty for
    /// a stream, where devices are rarely idle.
    pub wake_times: BTreeMap<SmolStr, Micros>,
}

impl PilotOutcome {
    /// The measured objective: the interval between results of a stream, else the median latency.
    pub fn time(&self) -> Micros {
        self.outcome.interval_us.unwrap_or(self.outcome.latency.median_us)
    }

    /// The prediction of `plan` for [`PilotOutcome::time`].
    pub fn predicted(&self, plan: &Plan) -> Micros {
        if self.outcome.interval_us.is_some() { plan.predicted.interval_us } else { plan.predicted.latency_us }
    }

    /// The outcome in a sentence, for the plan's notes.
    pub fn note(&self, is_scheduled: bool) -> String {
        let latency = self.outcome.latency;
        let measured = match self.outcome.interval_us {
            Some(interval) => format!("{interval} between {} results", latency.n),
            None if latency.n == 1 => format!("{} (one run)", latency.median_us),
            None => format!("{} (median of {} runs, ± {})", latency.median_us, latency.n, latency.mad_us),
        };
        let times = match is_scheduled {
            false => "times of groups are measured in context",
            true => "times of groups and links are those of the run, scaled to the measured total",
        };
        format!("pilot run: {measured}; {times}")
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

impl PilotError {
    /// Whether an agent failed or was lost.
    pub fn is_of_agent(&self) -> bool {
        matches!(self, PilotError::Perform(PerformError::Run(error)) if error.is_of_agent())
    }
}

/// Runs `plan` for about [`PilotOptions::run_time`]: with one input at a time, or for throughput with the plan's number
/// of inputs in flight.
///
/// # Errors
/// If an agent rejects its part, fails or is lost, or no run was measured.
pub async fn pilot_run(
    context: &RunContext<'_>,
    plan: &Plan,
    options: &PilotOptions,
) -> Result<PilotOutcome, PilotError> {
    let in_flight = match plan.objective {
        Objective::Throughput => plan.in_flight.unwrap_or(1).clamp(1, pipeline_depth::MAX_IN_FLIGHT),
        Objective::Latency | Objective::Memory | Objective::Energy => 1,
    };
    let interval = if in_flight > 1 { plan.predicted.interval_us } else { plan.predicted.latency_us };
    let repeats = (options.run_time.0 / interval.0.max(1.0)) as u64;
    let repeats = repeats.clamp(options.min_repeats, options.max_repeats);
    // Fewer inputs are in flight while the pipeline fills and drains; further runs compensate for it.
    let repeats = repeats + 2 * u64::from(in_flight - 1);
    let (deployment, record) = perform(context, plan, repeats, in_flight).await?;
    let outcome = Outcome::of(plan, &deployment, &record).ok_or(PilotError::NothingMeasured)?;
    let wake_times = if in_flight > 1 { BTreeMap::new() } else { wake_times(&record) };
    Ok(PilotOutcome { outcome, wake_times })
}

/// By server, the median time from the arrival of a stage's last operand to the start of the stage, over stages whose
/// device was idle at the arrival.
pub(crate) fn wake_times(record: &Record) -> BTreeMap<SmolStr, Micros> {
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
    use edgecut_agent::protocol::inference_trace::{InferenceTrace, StageTime};

    #[test]
    fn only_idle_devices_have_wake_times() {
        let stage = |ready: f64, start: f64, end: f64| StageTime {
            device: "cpu".into(),
            stage: 0,
            ready: Micros(ready),
            start: Micros(start),
            end: Micros(end),
            steps: Vec::new(),
            engine: SmolStr::default(),
            fallbacks: 0,
        };
        // The second is ready while the first still runs.
        let stages = vec![stage(10.0, 15.0, 100.0), stage(50.0, 101.0, 200.0), stage(300.0, 307.0, 400.0)];
        let measured = InferenceTrace { inference: 1, stages, ..InferenceTrace::default() };
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
