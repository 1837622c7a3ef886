//! An agent in another process: the client's side of the service, with a deadline on every call.

use std::{future::Future, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming, transport::Channel};

use super::{
    chunks::LARGEST_MESSAGE,
    client::{Events, RunHandle},
    connect::connect,
    error::AgentError,
    message::{Command, EventReader},
    probe::ProbeSample,
    security::Identity,
    setup::{Peer, Setup},
    task::{Contents, ProfileEvent, ProfileTask},
    wire::{ClockRequest, DescribeRequest, PROTOCOL, ProbeRequest, RunEvent, agent_client::AgentClient},
};
use crate::{
    cluster::Description,
    units::{Bytes, Micros},
};

/// How long a short answer may take.
const SHORT: Duration = Duration::from_secs(10);

/// How long a link may be silent while it is probed: as long as the slowest transfer may take, and a little more.
const PROBE_SILENCE: Duration = Duration::from_secs(75);

/// How long an agent may be silent while it profiles, beside the time that it may spend on measuring: loading one
/// operator and taking the fewest samples of it.
const PROFILE_SILENCE: Duration = Duration::from_secs(120);

/// A connection to an agent.
#[derive(Debug, Clone)]
pub struct RemoteAgent {
    name: SmolStr,
    client: AgentClient<Channel>,
}

impl RemoteAgent {
    /// Connects to the agent of server `peer.server`.
    ///
    /// # Errors
    /// If nobody answers at the address, or not in a way that this side trusts.
    pub async fn connect(peer: &Peer, identity: Option<&Identity>) -> Result<RemoteAgent, AgentError> {
        let absent =
            |cause: String| AgentError::Absent { agent: peer.server.clone(), address: peer.address.clone(), cause };
        let channel = connect(peer, identity).await.map_err(|error| {
            let cause = error.to_string();
            let hint = if cause.contains("refused") { " (is `edgecut agent` running there?)" } else { "" };
            absent(cause + hint)
        })?;
        let agent = RemoteAgent {
            name: peer.server.clone(),
            client: AgentClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE),
        };
        // Only an answer shows that the other side speaks this protocol, and accepts our certificate.
        match agent.now().await {
            Ok(_) => Ok(agent),
            Err(AgentError::Lost { cause, .. }) => Err(absent(match identity {
                None => format!("{cause} (does it demand TLS? the cluster file has no [tls])"),
                Some(_) => format!("{cause} (does it use TLS, and did its --client-ca sign our certificate?)"),
            })),
            Err(error) => Err(error),
        }
    }

    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    /// Waits for the answer to a call, for so long.
    async fn answer<T>(
        &self,
        doing: &str,
        after: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AgentError> {
        match tokio::time::timeout(after, call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(AgentError::from_status(&self.name, doing, &status)),
            Err(_) => Err(AgentError::Late { agent: self.name.clone(), doing: doing.to_string(), after }),
        }
    }

    pub async fn describe(&self) -> Result<Description, AgentError> {
        let mut client = self.client.clone();
        let reply = self.answer("describing itself", SHORT, client.describe(DescribeRequest {})).await?;
        if reply.protocol != PROTOCOL {
            let (agent, found) = (self.name.clone(), reply.protocol);
            return Err(AgentError::Protocol { agent, found, expected: PROTOCOL });
        }
        Ok(reply.into())
    }

    /// The time on the agent's clock.
    pub async fn now(&self) -> Result<Micros, AgentError> {
        let mut client = self.client.clone();
        Ok(Micros(self.answer("telling its time", SHORT, client.clock(ClockRequest {})).await?.now_us))
    }

    /// Times transfers from this agent to `peer`.
    pub async fn probe(&self, peer: &Peer, largest: u64, budget: Duration) -> Result<Vec<ProbeSample>, AgentError> {
        let doing = format!("probing its link to {}", peer.server);
        let mut client = self.client.clone();
        let request = ProbeRequest {
            peer: Some(peer.clone().into()),
            largest_bytes: largest,
            budget_us: budget.as_secs_f64() * 1e6,
        };
        let mut stream = self.answer(&doing, SHORT, client.probe(request)).await?;
        let mut samples = Vec::new();
        while let Some(sample) = self.next(&doing, PROBE_SILENCE, &mut stream).await? {
            samples.push(ProbeSample { bytes: Bytes(sample.bytes), round_trip: Micros(sample.round_trip_us) });
        }
        Ok(samples)
    }

    /// The next message of a stream, which may be silent for so long.
    async fn next<T>(
        &self,
        doing: &str,
        silence: Duration,
        stream: &mut Streaming<T>,
    ) -> Result<Option<T>, AgentError> {
        match tokio::time::timeout(silence, stream.message()).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(status)) => Err(AgentError::from_status(&self.name, doing, &status)),
            Err(_) => Err(AgentError::Late { agent: self.name.clone(), doing: doing.to_string(), after: silence }),
        }
    }

    /// Measures what `task` asks for.
    pub fn profile(&self, task: ProfileTask, contents: Contents) -> mpsc::Receiver<Result<ProfileEvent, AgentError>> {
        let (happened, events) = mpsc::channel(16);
        let agent = self.clone();
        tokio::spawn(async move {
            if let Err(error) = agent.carry_profile(task, contents, &happened).await {
                // The receiver was dropped: nobody waits for the outcome.
                let _ = happened.send(Err(error)).await;
            }
        });
        events
    }

    async fn carry_profile(
        &self,
        task: ProfileTask,
        contents: Contents,
        happened: &mpsc::Sender<Result<ProfileEvent, AgentError>>,
    ) -> Result<(), AgentError> {
        let doing = "profiling";
        let silence = PROFILE_SILENCE + Duration::try_from_secs_f64(task.sampling.budget.0 / 1e6).unwrap_or_default();
        let refused = |e: serde_json::Error| AgentError::Refused { agent: self.name.clone(), message: e.to_string() };
        let pieces = task.into_wire(contents).map_err(refused)?;
        let (messages, outgoing) = mpsc::channel(2);
        let mut client = self.client.clone();
        tokio::spawn(async move {
            for piece in pieces {
                if messages.send(piece).await.is_err() {
                    return;
                }
            }
        });
        let mut stream = self.answer(doing, SHORT, client.profile(ReceiverStream::new(outgoing))).await?;
        loop {
            let message = tokio::select! {
                message = self.next(doing, silence, &mut stream) => message?,
                // The receiver was dropped, and the stream with it: the agent stops.
                () = happened.closed() => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            if let Some(event) = ProfileEvent::from_wire(message)
                && happened.send(Ok(event)).await.is_err()
            {
                return Ok(());
            }
        }
    }

    /// Begins a run. What goes wrong is told through the handle.
    pub fn run(&self, setup: Arc<Setup>) -> RunHandle {
        let (commands, taken) = mpsc::channel(4);
        let (happened, events) = mpsc::channel(16);
        let agent = self.clone();
        let reader = EventReader::new(&setup);
        tokio::spawn(async move {
            if let Err(error) = agent.carry(taken, reader, &happened).await {
                // The handle was dropped: nobody waits for the outcome.
                let _ = happened.send(Err(error)).await;
            }
        });
        RunHandle { commands, events }
    }

    /// Carries commands there and events back until either side ends.
    async fn carry(
        &self,
        mut commands: mpsc::Receiver<Command>,
        mut reader: EventReader,
        happened: &Events,
    ) -> Result<(), AgentError> {
        let doing = "running its part";
        let refused = |message: String| AgentError::Refused { agent: self.name.clone(), message };
        let (messages, outgoing) = mpsc::channel(2);
        let mut client = self.client.clone();
        let (name, telling) = (self.name.clone(), happened.clone());
        tokio::spawn(async move {
            while let Some(command) = commands.recv().await {
                let pieces = match command.into_wire() {
                    Ok(pieces) => pieces,
                    Err(e) => {
                        let _ = telling.send(Err(AgentError::Refused { agent: name, message: e.to_string() })).await;
                        return;
                    }
                };
                for piece in pieces {
                    if messages.send(piece).await.is_err() {
                        return;
                    }
                }
            }
        });
        let mut stream: Streaming<RunEvent> =
            self.answer(doing, SHORT, client.run(ReceiverStream::new(outgoing))).await?;
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                // The handle was dropped, and the stream with it: the agent unloads.
                () = happened.closed() => return Ok(()),
            };
            let Some(message) = message.map_err(|status| AgentError::from_status(&self.name, doing, &status))? else {
                return Ok(());
            };
            if let Some(event) = reader.read(message).map_err(|e| refused(e.to_string()))?
                && happened.send(Ok(event)).await.is_err()
            {
                return Ok(());
            }
        }
    }
}
