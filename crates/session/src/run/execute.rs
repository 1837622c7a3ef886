//! Driving the agents through a run, and collecting what they measure.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use super::{
    error::RunError,
    participants::{Participants, deadline},
    run_progress::RunProgress,
};
use edgecut_agent::{
    client::{Agent, Fleet},
    clock::Clock,
    deployment::Deployment,
    protocol::{
        phase::Phase,
        run::{RunCommand, RunEvent, Start},
        setup::Setup,
    },
    results::record::Record,
};
use edgecut_graph::{TensorData, units::Micros};
use edgecut_plan::Stop;

/// How often to run, and how.
#[derive(Clone, Copy)]
pub struct ExecuteOptions<'a> {
    /// Runs that count; others come before them, which warm caches: one, or as many as the agents ask for. The first of them
    /// gives the outputs.
    pub repeat: u64,
    /// Maximum number of inputs in flight; 1 measures latency, more measure throughput.
    pub in_flight: u32,
    /// What one run is expected to take: an agent silent for much longer is given up.
    pub expected: Micros,
    /// Called with what the run does.
    pub progress: &'a (dyn Fn(RunProgress<'_>) + Sync),
    /// Once it is requested, no more runs begin, and the record has those that are finished.
    pub stop: Stop,
}

/// How soon a stop is noticed while nothing runs.
const STOP_DELAY: Duration = Duration::from_millis(50);

/// An inference in flight.
struct Open {
    begin: Instant,
    started: Option<Micros>,
    arrived: Option<Micros>,
    /// Servers that have finished with it.
    finished: usize,
}

/// The agents of a deployment, in the order of its setups.
///
/// # Errors
/// If one of them was not reached.
pub(crate) fn agents_of(deployment: &Deployment, fleet: &Fleet) -> Result<Vec<Agent>, RunError> {
    let agent = |setup: &Setup| {
        let reached = fleet.agent(&setup.server).ok_or_else(|| RunError::NoAgent(setup.server.clone()))?;
        reached.cloned().map_err(RunError::Agent)
    };
    deployment.setups.iter().map(agent).collect()
}

/// Runs a deployment on its agents (in the order of its setups).
///
/// # Errors
/// If an agent refuses, fails or is lost: the error names it. Nothing stays loaded anywhere.
pub async fn execute(
    deployment: &Deployment,
    agents: &[Agent],
    inputs: &[TensorData],
    parameters: &BTreeMap<SmolStr, TensorData>,
    options: &ExecuteOptions<'_>,
) -> Result<Record, RunError> {
    let here = Clock::start();
    let connected = async {
        let exchanges =
            agents.iter().map(|agent| async { Ok((agent.name().clone(), agent.clock_offset(here).await?)) });
        let clocks: Vec<_> = futures::future::try_join_all(exchanges).await.map_err(RunError::Agent)?;
        let participants = Participants::connected(deployment, agents, inputs, parameters, options.progress).await?;
        Ok::<_, RunError>((clocks, participants))
    };
    let (clocks, mut participants) = tokio::select! {
        connected = connected => connected?,
        () = requested(options.stop) => return Err(RunError::Stopped),
    };
    let mut record = Record {
        sink_values: Vec::new(),
        latencies: Vec::new(),
        arrivals: Vec::new(),
        measured: BTreeMap::new(),
        clocks: clocks.into_iter().collect(),
    };
    match participants.run(options, &mut record).await {
        Err(cause) if !record.latencies.is_empty() => {
            record.keep_finished(participants.warm_ups);
            Err(RunError::Interrupted { cause: Box::new(cause), finished: Box::new(record), wanted: options.repeat })
        }
        Ok(()) if record.latencies.is_empty() && options.stop.is_requested() => Err(RunError::Stopped),
        outcome => outcome.map(|()| record),
    }
}

/// Waits until a stop is requested.
async fn requested(stop: Stop) {
    while !stop.is_requested() {
        tokio::time::sleep(STOP_DELAY).await;
    }
}

impl Participants<'_> {
    /// Runs to warm up, then as often as asked.
    async fn run(&mut self, options: &ExecuteOptions<'_>, record: &mut Record) -> Result<(), RunError> {
        let deadline = deadline(options.expected);
        let mut outputs: BTreeMap<u32, TensorData> = BTreeMap::new();
        let wanted =
            self.deployment.setups.iter().filter_map(|s| s.sink.as_ref()).map(|s| s.values.len()).sum::<usize>();
        let (mut open, mut next, mut first_digest) = (BTreeMap::<u64, Open>::new(), 0, None);
        // The runs are steps of as many sequences as are in flight, in turn; the first one of each moves its states into place.
        let is_sequence = self.deployment.setups.iter().any(|setup| !setup.states.is_empty());
        (options.progress)(RunProgress::WarmingUp);
        loop {
            let most = if next <= self.warm_ups { 1 } else { options.in_flight as usize };
            if next < self.warm_ups + options.repeat && open.len() < most && !options.stop.is_requested() {
                open.insert(next, Open { begin: Instant::now(), started: None, arrived: None, finished: 0 });
                let sequences = is_sequence.then_some(options.in_flight);
                self.broadcast(&RunCommand::Start(start(next, self.warm_ups, sequences))).await;
                next += 1;
                continue;
            }
            if open.is_empty() {
                break;
            }
            let waiting = || {
                let runs: Vec<String> = open.keys().map(u64::to_string).collect();
                format!("the result of run {}", runs.join(", "))
            };
            // Whatever else comes meanwhile, each run ends in time, with as many as are in flight before it.
            let oldest = open.values().map(|run| run.begin.elapsed()).max().unwrap_or_default();
            let left = deadline.saturating_mul(options.in_flight.max(1)).saturating_sub(oldest).min(deadline);
            let (index, event) = self.next(waiting, left).await.map_err(|error| match error {
                RunError::Stuck { waiting, after } => RunError::Stuck { waiting, after: after.max(oldest) },
                error => error,
            })?;
            let server = self.name(index).clone();
            let on_ours = |at: Micros| record.to_client(&server, at);
            match event {
                RunEvent::Started { inference, at } => {
                    if let Some(run) = open.get_mut(&inference) {
                        run.started = Some(on_ours(at));
                    }
                }
                RunEvent::Arrived { inference, at, digest } => {
                    if !is_sequence && *first_digest.get_or_insert(digest) != digest {
                        return Err(RunError::Different { inference });
                    }
                    if let Some(run) = open.get_mut(&inference) {
                        run.arrived = Some(on_ours(at));
                    }
                }
                RunEvent::Output { index, data } => {
                    outputs.insert(index, data);
                    if outputs.len() == wanted {
                        record.sink_values = outputs.values().cloned().collect();
                    }
                }
                RunEvent::Measured(measured) => {
                    let Some(run) = open.get_mut(&measured.inference) else { continue };
                    run.finished += 1;
                    if measured.inference >= self.warm_ups {
                        record.measured.entry(server).or_default().push(measured);
                    }
                }
                RunEvent::Queued(_) | RunEvent::Admitted | RunEvent::Loaded { .. } | RunEvent::Connected => {}
            }
            let is_over = |number: &u64, run: &mut Open| {
                run.arrived.is_some()
                    && run.finished == self.deployment.setups.len()
                    && (*number > 0 || outputs.len() == wanted)
            };
            for (number, run) in open.extract_if(.., is_over) {
                if let (Some(started), Some(arrived), true) = (run.started, run.arrived, number >= self.warm_ups) {
                    record.latencies.push(arrived - started);
                    record.arrivals.push(arrived);
                    let done = record.latencies.len() as u64;
                    (options.progress)(RunProgress::Finished { done, of: options.repeat });
                }
            }
        }
        Ok(())
    }
}

/// The start of inference `number`, of a model with states the next step of one of `sequences` in turn. Those that come before the first
/// one in flight with others, the warm-up runs and one more, are of the first sequence.
fn start(number: u64, warm_ups: u64, sequences: Option<u32>) -> Start {
    let first = Start { inference: number, phase: Phase::default(), sequence: 0, continues: false };
    let Some(sequences) = sequences else { return first };
    let (turn, sequences) = (number.saturating_sub(warm_ups), u64::from(sequences.max(1)));
    let continues = turn >= sequences || (number > 0 && turn.is_multiple_of(sequences));
    Start { sequence: (turn % sequences) as u32, continues, ..first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_take_turns_and_the_first_one_warms_up() {
        for (sequences, expected) in [
            (1, [(0, false), (0, true), (0, true), (0, true), (0, true), (0, true)]),
            (2, [(0, false), (0, true), (0, true), (1, false), (0, true), (1, true)]),
            (3, [(0, false), (0, true), (0, true), (1, false), (2, false), (0, true)]),
        ] {
            let found =
                (0..6).map(|number| start(number, 2, Some(sequences))).map(|start| (start.sequence, start.continues));
            assert_eq!(found.collect::<Vec<_>>(), expected, "{sequences}");
        }
    }
}
