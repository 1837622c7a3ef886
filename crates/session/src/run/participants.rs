//! The agents of a run: leased, loaded and connected, with one queue of events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::{sync::mpsc, time::timeout};

use super::{
    error::{MAX_WARM_UPS, RunError},
    run_progress::RunProgress,
};
use edgecut_agent::{
    MAX_TIME,
    client::{Agent, AgentError},
    clock::Clock,
    deployment::Deployment,
    protocol::{
        phase::Phase,
        run::{RunCommand, RunEvent},
        setup::{Partition, Setup},
    },
};
use edgecut_graph::{DeviceName, TensorData, units::Micros};

/// Time limit of a lease. Agents end a wait for devices themselves, before this.
const LEASE_DEADLINE: Duration = MAX_TIME.saturating_add(Duration::from_secs(60));

/// Time limit of loading, which may pack hundreds of megabytes on a slow processor.
const LOAD_DEADLINE: Duration = Duration::from_secs(600);

/// Minimum time limit of a run, however short its expected time is.
const RUN_DEADLINE: Duration = Duration::from_secs(60);

/// Time limit of a run relative to its expected time, in addition to [`RUN_DEADLINE`].
const DEADLINE_FACTOR: f64 = 50.0;

/// How long to wait for a more specific error after a failure. The peers of an agent that died often notice first.
const ERROR_GRACE_PERIOD: Duration = Duration::from_millis(500);

/// How long an agent may take to answer after a link between agents failed. An agent that does not answer is the cause.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The runs on all servers, with one queue of events.
pub(super) struct Participants<'a> {
    pub deployment: &'a Deployment,
    agents: &'a [Agent],
    /// Command channels, by agent; `None` until the run begins on the agent.
    commands: Vec<Option<mpsc::Sender<RunCommand>>>,
    events: mpsc::Receiver<(usize, Result<RunEvent, AgentError>)>,
    /// Progress of each agent.
    progress: Vec<Progress>,
    /// Number of warm-up runs.
    pub warm_ups: u64,
    /// What the process of each agent had computed when it was last killed before this run.
    crashes: Vec<Option<String>>,
}

/// What an agent has reported before its first inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Nothing,
    Admitted,
    Loaded,
    Connected,
}

impl<'a> Participants<'a> {
    /// Leases all devices, one agent after the other, in an order that all clients share. So two clients never wait for
    /// each other. If this fails, the leases are released.
    pub async fn lease(
        deployment: &'a Deployment,
        agents: &'a [Agent],
        progress: &(dyn Fn(RunProgress<'_>) + Sync),
    ) -> Result<Participants<'a>, RunError> {
        // Room for all that runs in flight report: inputs are sent while nothing takes it.
        let outputs = deployment.setups.iter().filter_map(|setup| setup.sink.as_ref()).map(|sink| sink.values.len());
        let of_a_run = outputs.sum::<usize>() + 3 * agents.len();
        let in_flight = deployment.setups.iter().map(|setup| setup.in_flight as usize).max().unwrap_or(1);
        let (together, events) = mpsc::channel(16 + of_a_run.saturating_mul(in_flight));
        let (commands, reached) = (vec![None; agents.len()], vec![Progress::Nothing; agents.len()]);
        let crashes = agents.iter().map(Agent::known_crash).collect();
        let mut participants =
            Participants { deployment, agents, commands, events, progress: reached, warm_ups: 1, crashes };
        let mut order: Vec<usize> = (0..agents.len()).collect();
        order.sort_by_key(|index| agents[*index].lease_order());
        for index in order {
            let (agent, together) = (&agents[index], together.clone());
            let mut run = agent.run(Arc::new(deployment.setups[index].clone()));
            participants.commands[index] = Some(run.commands);
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
                // The receiver is dropped when the run ends.
                let _ = together.send((index, Err(lost))).await;
            });
            while participants.progress[index] < Progress::Admitted {
                let waiting = || format!("{} to lease its devices", agent.name());
                // Agents that are already leased load meanwhile.
                match participants.next(waiting, LEASE_DEADLINE).await? {
                    (of, RunEvent::Queued(queued)) => {
                        progress(RunProgress::Queued { server: participants.name(of), queued: &queued });
                    }
                    (of, event) => participants.note(of, &event)?,
                }
            }
        }
        Ok(participants)
    }

    pub fn name(&self, index: usize) -> &SmolStr {
        &self.deployment.setups[index].server
    }

    /// Sends a command to one agent. If the agent is gone, its next event is an error.
    async fn command(&self, index: usize, command: RunCommand) {
        if let Some(commands) = &self.commands[index] {
            let _ = commands.send(command).await;
        }
    }

    /// Sends a command to all agents.
    pub async fn broadcast(&self, command: &RunCommand) {
        futures::future::join_all((0..self.commands.len()).map(|index| self.command(index, command.clone()))).await;
    }

    /// Sends one tensor to an agent.
    async fn send(&self, index: usize, command: RunCommand) -> Result<(), RunError> {
        let sent = timeout(LOAD_DEADLINE, self.command(index, command)).await;
        sent.map_err(|_| RunError::Stuck {
            waiting: format!("{} to take a tensor", self.name(index)),
            after: LOAD_DEADLINE,
        })
    }

    /// Sends parameters and the inputs of an inference of `phase` to the agents that need them, in parallel.
    pub async fn send_contents(
        &self,
        phase: Phase,
        inputs: &[TensorData],
        parameters: &BTreeMap<SmolStr, TensorData>,
    ) -> Result<(), RunError> {
        let sending = self.deployment.setups.iter().enumerate().map(|(index, setup)| async move {
            for (number, streamed) in (0u32..).zip(&setup.streamed) {
                if let Some(data) = parameters.get(&streamed.name) {
                    self.send(index, RunCommand::Parameter { index: number, data: data.clone() }).await?;
                }
            }
            if let Some(source) = &setup.source {
                for ((number, _), data) in setup.values_in(source, phase).into_iter().zip(inputs) {
                    self.send(index, RunCommand::Input { index: number, data: data.clone() }).await?;
                }
            }
            Ok(())
        });
        futures::future::try_join_all(sending).await.map(drop)
    }

    /// The next event of any agent.
    pub async fn next(
        &mut self,
        waiting: impl Fn() -> String,
        deadline: Duration,
    ) -> Result<(usize, RunEvent), RunError> {
        match self.received(deadline).await {
            Some((index, Ok(event))) => Ok((index, event)),
            Some((_, Err(error))) => Err(RunError::Agent(self.explain(error).await)),
            None => Err(RunError::Stuck { waiting: waiting(), after: deadline }),
        }
    }

    /// What the next agent reports; `None` if none does within `deadline`. Nothing is lost if this is dropped.
    pub async fn received(&mut self, deadline: Duration) -> Option<(usize, Result<RunEvent, AgentError>)> {
        timeout(deadline, self.events.recv()).await.ok().flatten()
    }

    /// Waits until the progress of every agent is at least `goal`.
    pub async fn all(
        &mut self,
        goal: Progress,
        deadline: Duration,
        progress: &(dyn Fn(RunProgress<'_>) + Sync),
    ) -> Result<(), RunError> {
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
                self.report_loading(progress);
            }
        }
    }

    /// Reports which devices are not loaded yet.
    pub fn report_loading(&self, progress: &dyn Fn(RunProgress<'_>)) {
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

    /// Records the progress that `event` of an agent reports.
    fn note(&mut self, index: usize, event: &RunEvent) -> Result<(), RunError> {
        let progress = match event {
            RunEvent::Admitted => Progress::Admitted,
            RunEvent::Loaded { warm_up_runs, .. } => {
                if *warm_up_runs > MAX_WARM_UPS {
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

    /// The most specific of the errors that arrive within [`ERROR_GRACE_PERIOD`].
    pub async fn explain(&mut self, first: AgentError) -> AgentError {
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
        // Later errors are ignored.
        let _ = timeout(ERROR_GRACE_PERIOD, listening).await;
        let nearest = match nearest {
            // Any agent but the silent one may be the first to report a broken link.
            AgentError::Peer { .. } => self.silent().await.unwrap_or(nearest),
            nearest => nearest,
        };
        let of_agent = self.agents.iter().zip(&self.crashes).find(|(agent, _)| agent.name() == nearest.agent());
        match of_agent {
            Some((agent, known)) => agent.explained(nearest, known.clone()).await,
            None => nearest,
        }
    }

    /// The error of an agent that does not answer, if there is one.
    async fn silent(&self) -> Option<AgentError> {
        let asking = self.agents.iter().map(|agent| async move {
            let doing = "running its part".to_string();
            let late = AgentError::Timeout { agent: agent.name().clone(), doing, after: ANSWER_TIME };
            timeout(ANSWER_TIME, agent.clock_offset(Clock::start())).await.map_or(Some(late), Result::err)
        });
        futures::future::join_all(asking).await.into_iter().flatten().next()
    }

    /// Leases the agents, loads the deployment on them and connects them. `inputs` may be empty, and sent later.
    pub async fn connected(
        deployment: &'a Deployment,
        agents: &'a [Agent],
        inputs: &[TensorData],
        parameters: &BTreeMap<SmolStr, TensorData>,
        progress: &(dyn Fn(RunProgress<'_>) + Sync),
    ) -> Result<Participants<'a>, RunError> {
        let mut participants = Participants::lease(deployment, agents, progress).await?;
        participants.report_loading(progress);
        participants.send_contents(Phase::default(), inputs, parameters).await?;
        participants.all(Progress::Loaded, LOAD_DEADLINE, progress).await?;
        participants.broadcast(&RunCommand::Connect).await;
        participants.all(Progress::Connected, RUN_DEADLINE, progress).await?;
        Ok(participants)
    }
}

/// The time limit of a run that is expected to take `expected`.
pub(super) fn deadline(expected: Micros) -> Duration {
    RUN_DEADLINE + Micros(expected.0 * DEADLINE_FACTOR).to_duration().unwrap_or_default()
}
