//! An agent as its user sees it: embedded in this process or in another one, with the same methods.

use std::{future::Future, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::mpsc;

use super::{
    clock::{Clock, ClockOffset},
    error::{AgentError, HostError},
    host::{Host, HostOptions},
    message::{Command, Event},
    probe::ProbeSample,
    remote::RemoteAgent,
    security::Identity,
    setup::{Peer, Setup},
    shutdown::Shutdown,
    task::{Contents, ProfileEvent, ProfileTask},
};
use crate::{
    cluster::{Description, Place, Server},
    units::Micros,
};

/// How many exchanges the clock offset is estimated from.
const CLOCK_EXCHANGES: usize = 16;

/// The agent of one server.
#[derive(Clone)]
pub enum Agent {
    /// In this process: called directly.
    Embedded(Arc<Host>),
    /// In another process.
    Remote(RemoteAgent),
}

/// Where the events of a run go.
pub type Events = mpsc::Sender<Result<Event, AgentError>>;

/// The client's ends of a run on one agent. Dropping either unloads what was loaded there.
pub struct RunHandle {
    pub commands: mpsc::Sender<Command>,
    /// The last one says what went wrong, if anything did.
    pub events: mpsc::Receiver<Result<Event, AgentError>>,
}

impl Agent {
    /// The agent of `server`: starts an embedded one, or connects.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn of(server: &Server, identity: Option<&Identity>) -> Result<Agent, AgentError> {
        match Peer::of(server) {
            Some(peer) => Ok(Agent::Remote(RemoteAgent::connect(&peer, identity).await?)),
            None => {
                let options = HostOptions {
                    name: server.name.clone(),
                    threads: server.threads,
                    memory: server.memory,
                    identity: None,
                };
                let absent = |e: std::io::Error| AgentError::Absent {
                    agent: server.name.clone(),
                    address: server.place.to_string(),
                    cause: e.to_string(),
                };
                Ok(Agent::Embedded(Host::start(options, Shutdown::new()).map_err(absent)?))
            }
        }
    }

    pub fn name(&self) -> &SmolStr {
        match self {
            Agent::Embedded(host) => host.name(),
            Agent::Remote(agent) => agent.name(),
        }
    }

    /// # Errors
    /// If the agent does not answer, or is of another version.
    pub async fn describe(&self) -> Result<Description, AgentError> {
        match self {
            Agent::Embedded(host) => Ok(host.describe()),
            Agent::Remote(agent) => agent.describe().await,
        }
    }

    /// How far the agent's clock is from `here`.
    ///
    /// # Errors
    /// If the agent does not answer.
    pub async fn clock_offset(&self, here: Clock) -> Result<ClockOffset, AgentError> {
        let mut exchanges = Vec::with_capacity(CLOCK_EXCHANGES);
        for _ in 0..CLOCK_EXCHANGES {
            let sent = here.now();
            let there = match self {
                Agent::Embedded(host) => host.now(),
                Agent::Remote(agent) => agent.now().await?,
            };
            exchanges.push((sent, there, here.now()));
        }
        let nothing = ClockOffset { offset: Micros::ZERO, uncertainty: Micros(f64::INFINITY) };
        Ok(ClockOffset::estimate(&exchanges).unwrap_or(nothing))
    }

    /// Times transfers from this agent to `peer`.
    ///
    /// # Errors
    /// If this agent does not answer, or `peer` does not answer it.
    pub async fn probe(&self, peer: &Peer, largest: u64, budget: Duration) -> Result<Vec<ProbeSample>, AgentError> {
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

    /// Measures what `task` asks for; results come as they are measured, the last one may say what went wrong.
    /// Dropping the receiver ends the measuring.
    pub fn profile(&self, task: ProfileTask, contents: Contents) -> mpsc::Receiver<Result<ProfileEvent, AgentError>> {
        match self {
            Agent::Remote(agent) => agent.profile(task, contents),
            Agent::Embedded(host) => {
                let (happened, events) = mpsc::channel(16);
                let (forward, received) = mpsc::channel(16);
                let measuring = host.clone().profile(task, contents, happened);
                forward_all(host.name().clone(), measuring, events, forward);
                received
            }
        }
    }

    /// Begins a run with a setup that passed [`Setup::check`]: see [`Command`] for what follows.
    pub fn run(&self, setup: Arc<Setup>) -> RunHandle {
        match self {
            Agent::Remote(agent) => {
                let handle = agent.run(setup.clone());
                // The queue is empty and its other end has just been made.
                let _ = handle.commands.try_send(Command::Setup(setup));
                handle
            }
            Agent::Embedded(host) => {
                let (commands, taken) = mpsc::channel(4);
                let (happened, events) = mpsc::channel(16);
                let (forward, received) = mpsc::channel(16);
                let _ = commands.try_send(Command::Setup(setup));
                forward_all(host.name().clone(), host.clone().run(taken, happened), events, forward);
                RunHandle { commands, events: received }
            }
        }
    }
}

/// Lets an embedded agent work, hands on what it tells, and ends with what went wrong.
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
        // Whoever dropped the other end does not need to know.
        let _ = forward.send(Err(error)).await;
    });
}

impl Peer {
    /// How others reach a server; `None` for an embedded one.
    pub fn of(server: &Server) -> Option<Peer> {
        match &server.place {
            Place::Embedded => None,
            Place::Remote { address, tls_name } => {
                Some(Peer { server: server.name.clone(), address: address.clone(), tls_name: tls_name.clone() })
            }
        }
    }
}
