//! One agent, embedded in this process or remote, with the same methods.

use std::{future::Future, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::mpsc;

use super::{error::AgentError, remote::RemoteAgent, run_handle::RunHandle};
use crate::{
    Description, Server,
    clock::{Clock, ClockOffset, since_1970},
    protocol::{
        Identity,
        named_tensors::NamedTensors,
        peer::Peer,
        probe::ProbeSample,
        profile::{ProfileEvent, ProfileTask},
        run::RunCommand,
        setup::Setup,
    },
    server::{Host, HostError, HostOptions},
    shutdown::Shutdown,
};
use edgecut_graph::units::{Bytes, Micros};

/// Number of exchanges from which the clock offset is estimated.
const CLOCK_EXCHANGES: usize = 16;

/// The agent of one server.
#[derive(Clone)]
pub enum Agent {
    /// In this process, called directly.
    Embedded(Arc<Host>),
    /// In another process, called over gRPC.
    Remote(Box<RemoteAgent>),
}

impl Agent {
    /// Starts an embedded agent, or connects to the remote one of `server`, which is asked to let this client wait for
    /// devices for `wait`.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn of(server: &Server, identity: Option<&Identity>, wait: Option<Micros>) -> Result<Agent, AgentError> {
        match Peer::of(server) {
            Some(peer) => Ok(Agent::Remote(Box::new(RemoteAgent::connect(&peer, identity, wait).await?))),
            None => {
                let options = HostOptions {
                    name: server.name.clone(),
                    threads: server.threads,
                    memory: server.memory,
                    engine: server.embedded.with(server.engine),
                    ..HostOptions::default()
                };
                let unreachable = |e: std::io::Error| AgentError::Unreachable {
                    agent: server.name.clone(),
                    address: server.endpoint.to_string(),
                    cause: e.to_string(),
                };
                Ok(Agent::Embedded(Host::start(options, Shutdown::new()).map_err(unreachable)?))
            }
        }
    }

    /// Its own name, and its address: in this order all clients lease the agents of a cluster.
    pub fn lease_order(&self) -> (&str, &str) {
        match self {
            Agent::Embedded(_) => ("", ""),
            Agent::Remote(agent) => agent.lease_order(),
        }
    }

    pub fn name(&self) -> &SmolStr {
        match self {
            Agent::Embedded(host) => host.name(),
            Agent::Remote(agent) => agent.name(),
        }
    }

    /// What the server reports of itself.
    ///
    /// # Errors
    /// If the agent does not answer, or speaks another protocol version.
    pub async fn describe(&self) -> Result<Description, AgentError> {
        match self {
            Agent::Embedded(host) => Ok(host.describe()),
            Agent::Remote(agent) => agent.describe().await,
        }
    }

    /// What the agent's process computed when it was last killed, as far as is known here.
    pub fn known_crash(&self) -> Option<String> {
        match self {
            Agent::Embedded(_) => None,
            Agent::Remote(agent) => agent.known_crash(),
        }
    }

    /// `error` with what the agent was computing, if its process was killed after the crash `known`.
    pub async fn explained(&self, error: AgentError, known: Option<String>) -> AgentError {
        match self {
            Agent::Embedded(_) => error,
            Agent::Remote(agent) => agent.explained(error, known).await,
        }
    }

    /// The offset of the agent's clock from `local`.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn clock_offset(&self, local: Clock) -> Result<ClockOffset, AgentError> {
        let mut exchanges = Vec::with_capacity(CLOCK_EXCHANGES);
        for _ in 0..CLOCK_EXCHANGES {
            let sent = local.now();
            let remote = match self {
                Agent::Embedded(host) => host.now(),
                Agent::Remote(agent) => agent.now().await?,
            };
            exchanges.push((sent, remote, local.now()));
        }
        let unknown = ClockOffset { offset: Micros::ZERO, uncertainty: Micros(f64::INFINITY) };
        Ok(ClockOffset::estimate(&exchanges).unwrap_or(unknown))
    }

    /// The offset of the calendar clock of the agent's machine from the one here; `None` if the agent is embedded.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn calendar_offset(&self) -> Result<Option<ClockOffset>, AgentError> {
        let Agent::Remote(agent) = self else { return Ok(None) };
        let mut exchanges = Vec::with_capacity(CLOCK_EXCHANGES);
        for _ in 0..CLOCK_EXCHANGES {
            let sent = since_1970();
            let remote = agent.since_1970().await?;
            exchanges.push((sent, remote, since_1970()));
        }
        Ok(ClockOffset::estimate(&exchanges))
    }

    /// Times transfers from this agent to `peer`, of sizes up to `largest`.
    ///
    /// # Errors
    /// If this agent does not answer, or `peer` does not answer it.
    pub(super) async fn probe(
        &self,
        peer: &Peer,
        largest: Bytes,
        budget: Duration,
    ) -> Result<Vec<ProbeSample>, AgentError> {
        match self {
            Agent::Remote(agent) => agent.probe(peer, largest, budget).await,
            Agent::Embedded(host) => {
                let (sender, mut receiver) = mpsc::channel(4);
                let probing = host.probe(peer, largest, budget, sender);
                let mut samples = Vec::new();
                let collecting = async {
                    while let Some(sample) = receiver.recv().await {
                        samples.push(sample);
                    }
                };
                let (outcome, ()) = tokio::join!(probing, collecting);
                let refused = |e| AgentError::Refused { agent: host.name().clone(), message: format!("{e}") };
                outcome.map(|()| samples).map_err(refused)
            }
        }
    }

    /// Measures what `task` requests. Results are streamed; an error, if any, is the last. Dropping the receiver stops the
    /// measurements.
    pub fn profile(
        &self,
        task: ProfileTask,
        contents: NamedTensors,
    ) -> mpsc::Receiver<Result<ProfileEvent, AgentError>> {
        match self {
            Agent::Remote(agent) => agent.profile(task, contents),
            Agent::Embedded(host) => {
                let (sender, events) = mpsc::channel(16);
                let (forward, received) = mpsc::channel(16);
                let measuring = host.clone().profile(task, contents, sender);
                forward_all(host.name().clone(), measuring, events, forward);
                received
            }
        }
    }

    /// Begins a run with a setup that passed [`Setup::check`]; [`RunCommand`] documents what follows.
    pub fn run(&self, setup: Arc<Setup>) -> RunHandle {
        match self {
            Agent::Remote(agent) => {
                let setup = Arc::new(Setup { wait: agent.wait(), ..Arc::unwrap_or_clone(setup) });
                let handle = agent.run(setup.clone());
                // The queue is new: it is neither full nor closed.
                let _ = handle.commands.try_send(RunCommand::Setup(setup));
                handle
            }
            Agent::Embedded(host) => {
                let (commands, received_commands) = mpsc::channel(4);
                let (sender, events) = mpsc::channel(16);
                let (forward, received) = mpsc::channel(16);
                let _ = commands.try_send(RunCommand::Setup(setup));
                forward_all(host.name().clone(), host.clone().run(received_commands, sender), events, forward);
                RunHandle { commands, events: received }
            }
        }
    }
}

/// Runs `work` of an embedded agent, forwards its events, and then its error, if any.
fn forward_all<T: Send + 'static>(
    name: SmolStr,
    work: impl Future<Output = Result<(), HostError>> + Send + 'static,
    mut events: mpsc::Receiver<T>,
    forward: mpsc::Sender<Result<T, AgentError>>,
) {
    tokio::spawn(async move {
        let working = tokio::spawn(work);
        while let Some(event) = events.recv().await {
            if forward.send(Ok(event)).await.is_err() {
                return;
            }
        }
        let error = match working.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => AgentError::from_host(name, &error),
            Err(panic) => AgentError::Refused { agent: name, message: format!("failed internally: {panic}") },
        };
        // The receiver may have been dropped.
        let _ = forward.send(Err(error)).await;
    });
}
