//! Driving the agents through a run, and collecting what they measure.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use smol_str::SmolStr;
use tokio::{sync::mpsc, time::timeout};

use super::{deploy::Deployment, progress::RunProgress, record::Record};
use crate::agent::{
    Agent, AgentError, Fleet, MAX_TIME, MemoryShortfall,
    clock::Clock,
    protocol::{
        run::{RunCommand, RunEvent},
        setup::{Partition, Setup},
    },
};
use edgecut_graph::{DeviceName, TensorData, units::Micros};
use edgecut_plan::Stop;

/// How often to run, and how.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
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

/// Why a run did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("no agent for server {0}")]
    NoAgent(SmolStr),
    #[error("still waiting for {waiting} after {} s", .after.as_secs())]
    Stuck { waiting: String, after: Duration },
    #[error("run {inference} gave other outputs than the first one")]
    Different { inference: u64 },
    /// Some runs that count were finished before.
    #[error("{cause}; {} of {wanted} runs were finished", .finished.latencies.len())]
    Interrupted { cause: Box<RunError>, finished: Box<Record>, wanted: u64 },
    #[error("it was stopped before a run that counts was finished")]
    Stopped,
    #[error("agent {agent} asks for {runs} warm-up runs; at most {MOST_WARM_UPS} are made")]
    WarmUps { agent: SmolStr, runs: u64 },
}

impl RunError {
    /// Whether an agent failed or was lost, so that another run may go well or badly.
    pub fn is_of_agent(&self) -> bool {
        match self {
            RunError::Agent(AgentError::Memory { .. }) => false,
            RunError::Agent(_) | RunError::NoAgent(_) | RunError::Stuck { .. } => true,
            RunError::Interrupted { cause, .. } => cause.is_of_agent(),
            RunError::Different { .. } | RunError::WarmUps { .. } | RunError::Stopped => false,
        }
    }

    /// The agent that failed or was lost, if one did.
    pub fn agent(&self) -> Option<&SmolStr> {
        match self {
            RunError::Agent(error) => Some(error.agent()),
            RunError::NoAgent(server) => Some(server),
            RunError::Interrupted { cause, .. } => cause.agent(),
            RunError::Stuck { .. } | RunError::Different { .. } | RunError::WarmUps { .. } | RunError::Stopped => None,
        }
    }

    /// The agent that has too little memory for its part, what it says, and what it lacks, if that is why.
    pub fn memory(&self) -> Option<(&SmolStr, &str, Option<&MemoryShortfall>)> {
        match self {
            RunError::Agent(AgentError::Memory { agent, message, shortfall }) => {
                Some((agent, message, shortfall.as_ref()))
            }
            RunError::Interrupted { cause, .. } => cause.memory(),
            _ => None,
        }
    }
}

/// How soon a stop is noticed while nothing runs.
const STOP_DELAY: Duration = Duration::from_millis(50);

/// Most warm-up runs, whatever agents ask for.
const MOST_WARM_UPS: u64 = 64;

/// Agents end a wait for devices themselves, before this.
const LEASE_DEADLINE: Duration = MAX_TIME.saturating_add(Duration::from_secs(60));

/// Loading may pack hundreds of megabytes on a slow processor.
const LOAD_DEADLINE: Duration = Duration::from_secs(600);

/// What a run may take however short it is expected to be.
const RUN_DEADLINE: Duration = Duration::from_secs(60);

/// How many times longer than expected a run may take.
const PATIENCE: f64 = 50.0;

/// How long to wait for a better explanation once something failed: the peers of an agent that died often notice first.
const AFTERMATH: Duration = Duration::from_millis(500);

/// How long an agent may take to answer once a link between agents failed: one that is silent has caused that.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The runs on all servers, with one queue for their events.
struct Players<'a> {
    deployment: &'a Deployment,
    agents: &'a [Agent],
    /// Of the agents that the run has begun on.
    commands: Vec<Option<mpsc::Sender<RunCommand>>>,
    events: mpsc::Receiver<(usize, Result<RunEvent, AgentError>)>,
    /// Progress of each agent.
    progress: Vec<Progress>,
    /// Runs that do not count.
    warm_ups: u64,
    /// Of each agent, what its process had computed when it was last killed before this run.
    crashes: Vec<Option<String>>,
}

/// What an agent has reported on the way to its first inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Nothing,
    Admitted,
    Loaded,
    Connected,
}

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
pub fn agents_of(deployment: &Deployment, fleet: &Fleet) -> Result<Vec<Agent>, RunError> {
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
    options: &RunOptions<'_>,
) -> Result<Record, RunError> {
    let here = Clock::start();
    let connected = async {
        let exchanges =
            agents.iter().map(|agent| async { Ok((agent.name().clone(), agent.clock_offset(here).await?)) });
        let clocks: Vec<_> = futures::future::try_join_all(exchanges).await.map_err(RunError::Agent)?;
        let mut players = Players::lease(deployment, agents, options).await?;
        players.report_loading(options.progress);
        players.send_contents(inputs, parameters).await?;
        players.all(Progress::Loaded, LOAD_DEADLINE, options).await?;
        players.say_all(&RunCommand::Connect).await;
        players.all(Progress::Connected, RUN_DEADLINE, options).await?;
        Ok::<_, RunError>((clocks, players))
    };
    let (clocks, mut players) = tokio::select! {
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
    match players.run(options, &mut record).await {
        Err(cause) if !record.latencies.is_empty() => {
            record.keep_finished(players.warm_ups);
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

impl<'a> Players<'a> {
    /// Leases all devices, one agent after the other in an order that all clients have in common: two clients never have
    /// what the other one waits for. What was leased is free again if this fails.
    async fn lease(
        deployment: &'a Deployment,
        agents: &'a [Agent],
        options: &RunOptions<'_>,
    ) -> Result<Players<'a>, RunError> {
        let (together, events) = mpsc::channel(16);
        let (commands, progress) = (vec![None; agents.len()], vec![Progress::Nothing; agents.len()]);
        let crashes = agents.iter().map(Agent::known_crash).collect();
        let mut players = Players { deployment, agents, commands, events, progress, warm_ups: 1, crashes };
        let mut order: Vec<usize> = (0..agents.len()).collect();
        order.sort_by_key(|index| agents[*index].lease_order());
        for index in order {
            let (agent, together) = (&agents[index], together.clone());
            let mut run = agent.run(Arc::new(deployment.setups[index].clone()));
            players.commands[index] = Some(run.commands);
            let name = agent.name().clone();
            tokio::spawn(async move {
                while let Some(event) = run.events.recv().await {
                    let is_last = event.is_err();
                    if together.send((index, event)).await.is_err() || is_last {
                        return;
                    }
                }
                let (doing, cause) = ("running its part".to_string(), "it ended the run".to_string());
                let lost = AgentError::Disconnected { agent: name, doing, cause };
                // The receiver is dropped if the run is over.
                let _ = together.send((index, Err(lost))).await;
            });
            while players.progress[index] < Progress::Admitted {
                let waiting = || format!("{} to lease its devices", agent.name());
                // Agents that were leased before are loading.
                match players.next(waiting, LEASE_DEADLINE).await? {
                    (of, RunEvent::Queued(queued)) => {
                        (options.progress)(RunProgress::Queued { server: players.name(of), queued: &queued });
                    }
                    (of, event) => players.note(of, &event)?,
                }
            }
        }
        Ok(players)
    }

    fn name(&self, index: usize) -> &SmolStr {
        &self.deployment.setups[index].server
    }

    /// Says something to one agent. If it is gone, its next event says so.
    async fn say(&self, index: usize, command: RunCommand) {
        if let Some(commands) = &self.commands[index] {
            let _ = commands.send(command).await;
        }
    }

    async fn say_all(&self, command: &RunCommand) {
        futures::future::join_all((0..self.commands.len()).map(|index| self.say(index, command.clone()))).await;
    }

    /// Sends one tensor to an agent.
    async fn send(&self, index: usize, command: RunCommand) -> Result<(), RunError> {
        let sent = timeout(LOAD_DEADLINE, self.say(index, command)).await;
        sent.map_err(|_| RunError::Stuck {
            waiting: format!("{} to take a tensor", self.name(index)),
            after: LOAD_DEADLINE,
        })
    }

    /// Sends parameters and inputs to those who need them, to all at the same time.
    async fn send_contents(
        &self,
        inputs: &[TensorData],
        parameters: &BTreeMap<SmolStr, TensorData>,
    ) -> Result<(), RunError> {
        let sending = self.deployment.setups.iter().enumerate().map(|(index, setup)| async move {
            for (number, streamed) in (0u32..).zip(&setup.streamed) {
                if let Some(data) = parameters.get(&streamed.name) {
                    self.send(index, RunCommand::Parameter { index: number, data: data.clone() }).await?;
                }
            }
            if setup.source.is_some() {
                for (number, data) in (0u32..).zip(inputs) {
                    self.send(index, RunCommand::Input { index: number, data: data.clone() }).await?;
                }
            }
            Ok(())
        });
        futures::future::try_join_all(sending).await.map(drop)
    }

    /// The next event of any agent.
    async fn next(&mut self, waiting: impl Fn() -> String, deadline: Duration) -> Result<(usize, RunEvent), RunError> {
        let stuck = || RunError::Stuck { waiting: waiting(), after: deadline };
        match timeout(deadline, self.events.recv()).await {
            Ok(Some((index, Ok(event)))) => Ok((index, event)),
            Ok(Some((_, Err(error)))) => Err(RunError::Agent(self.explain(error).await)),
            Ok(None) | Err(_) => Err(stuck()),
        }
    }

    /// Waits until the progress of every agent is at least `goal`.
    async fn all(&mut self, goal: Progress, deadline: Duration, options: &RunOptions<'_>) -> Result<(), RunError> {
        loop {
            let late = self.deployment.setups.iter().zip(&self.progress).filter(|(_, progress)| **progress < goal);
            let names: Vec<&str> = late.map(|(setup, _)| setup.server.as_str()).collect();
            if names.is_empty() {
                return Ok(());
            }
            let waiting = format!("{} to be {}", names.join(", "), format!("{goal:?}").to_lowercase());
            let (index, event) = self.next(|| waiting.clone(), deadline).await?;
            self.note(index, &event)?;
            if goal == Progress::Loaded {
                self.report_loading(options.progress);
            }
        }
    }

    /// Reports which devices are not loaded yet.
    fn report_loading(&self, progress: &dyn Fn(RunProgress<'_>)) {
        let devices = |setup: &Setup| {
            let name =
                |partition: &Partition| DeviceName::new(setup.server.clone(), partition.device.clone()).to_string();
            setup.partitions.iter().map(name).collect::<Vec<_>>()
        };
        let late =
            self.deployment.setups.iter().zip(&self.progress).filter(|(_, progress)| **progress < Progress::Loaded);
        let left: Vec<String> = late.flat_map(|(setup, _)| devices(setup)).collect();
        let of = self.deployment.setups.iter().map(|setup| setup.partitions.len()).sum();
        progress(RunProgress::Loading { left: &left, of });
    }

    /// Takes note of the progress that `event` of an agent tells.
    fn note(&mut self, index: usize, event: &RunEvent) -> Result<(), RunError> {
        let progress = match event {
            RunEvent::Admitted => Progress::Admitted,
            RunEvent::Loaded { warm_up_runs, .. } => {
                if *warm_up_runs > MOST_WARM_UPS {
                    return Err(RunError::WarmUps { agent: self.name(index).clone(), runs: *warm_up_runs });
                }
                self.warm_ups = self.warm_ups.max(*warm_up_runs);
                Progress::Loaded
            }
            RunEvent::Connected => Progress::Connected,
            _ => Progress::Nothing,
        };
        self.progress[index] = self.progress[index].max(progress);
        Ok(())
    }

    /// The error that says most of those that come within a moment.
    async fn explain(&mut self, first: AgentError) -> AgentError {
        let mut nearest = first;
        let listening = async {
            while nearest.causal_rank() > 0 {
                match self.events.recv().await {
                    Some((_, Err(error))) if error.causal_rank() < nearest.causal_rank() => nearest = error,
                    Some(_) => {}
                    None => break,
                }
            }
        };
        // What has not been heard by then is not waited for.
        let _ = timeout(AFTERMATH, listening).await;
        let nearest = match nearest {
            // Any agent but the one that is silent may be the first to report a link that broke.
            AgentError::Peer { .. } => self.silent().await.unwrap_or(nearest),
            nearest => nearest,
        };
        let of_agent = self.agents.iter().zip(&self.crashes).find(|(agent, _)| agent.name() == nearest.agent());
        match of_agent {
            Some((agent, known)) => agent.explained(nearest, known.clone()).await,
            None => nearest,
        }
    }

    /// That an agent does not answer, if one does not.
    async fn silent(&self) -> Option<AgentError> {
        let asking = self.agents.iter().map(|agent| async move {
            let doing = "running its part".to_string();
            let late = AgentError::Timeout { agent: agent.name().clone(), doing, after: ANSWER_TIME };
            timeout(ANSWER_TIME, agent.clock_offset(Clock::start())).await.map_or(Some(late), Result::err)
        });
        futures::future::join_all(asking).await.into_iter().flatten().next()
    }

    /// Runs to warm up, then as often as asked.
    async fn run(&mut self, options: &RunOptions<'_>, record: &mut Record) -> Result<(), RunError> {
        let expected = Micros(options.expected.0 * PATIENCE).to_duration().unwrap_or_default();
        let deadline = RUN_DEADLINE + expected;
        let mut outputs: BTreeMap<u32, TensorData> = BTreeMap::new();
        let wanted =
            self.deployment.setups.iter().filter_map(|s| s.sink.as_ref()).map(|s| s.values.len()).sum::<usize>();
        let (mut open, mut next, mut first_digest) = (BTreeMap::<u64, Open>::new(), 0, None);
        (options.progress)(RunProgress::WarmingUp);
        loop {
            let most = if next <= self.warm_ups { 1 } else { options.in_flight as usize };
            if next < self.warm_ups + options.repeat && open.len() < most && !options.stop.is_requested() {
                open.insert(next, Open { begin: Instant::now(), started: None, arrived: None, finished: 0 });
                self.say_all(&RunCommand::Start(next)).await;
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
                    if *first_digest.get_or_insert(digest) != digest {
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
                run.arrived.is_some() && run.finished == self.commands.len() && (*number > 0 || outputs.len() == wanted)
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
