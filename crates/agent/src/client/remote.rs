//! An agent in another process: the gRPC client, with a timeout on every call.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use smol_str::SmolStr;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming, transport::Channel};

use super::{
    error::AgentError,
    run_handle::{EventSender, RunHandle},
};
use crate::{
    Description,
    protocol::{
        Identity,
        chunks::MAX_MESSAGE_SIZE,
        connect::{ConnectError, Expected, connect},
        constants::Messages,
        frame::Frame,
        message::{
            ClockReply, ClockRequest, DescribeReply, DescribeRequest, PROTOCOL, ProbeRequest, ProfileReply, RunReply,
            RunRequest, agent_client::AgentClient, is_compatible,
        },
        named_tensors::NamedTensors,
        peer::Peer,
        probe::ProbeSample,
        profile::{ProfileEvent, ProfileTask},
        received::Received,
        run::RunCommand,
        run_messages::EventReader,
        setup::Setup,
    },
};
use edgecut_graph::units::{Bytes, Micros};

/// Timeout of a call that returns at once.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time between two samples of a probe: more than the timeout of one transfer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(75);

/// Longest time between two results of a profile, in addition to the sampling budget: loading one operator and taking the
/// minimum number of samples.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(120);

/// How often an agent is told that its devices are still wanted while nothing else is said.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How long to wait for a killed agent to serve again, and the interval between attempts.
const RESTART_TIME: Duration = Duration::from_secs(15);
const RESTART_POLL: Duration = Duration::from_millis(50);

/// The largest reply to a run that is accepted. A trace of an inference has some 70 bytes for each group.
const MAX_REPLY_SIZE: usize = 32 << 20;

/// Number of failed calls after which an agent counts as gone.
const MAX_FAILED_CALLS: usize = 4;

/// A connection to an agent.
#[derive(Debug, Clone)]
pub struct RemoteAgent {
    name: SmolStr,
    address: String,
    /// The name that the agent has itself, once it was asked.
    own_name: Arc<OnceLock<String>>,
    /// What its process computed when it was last killed, as far as it was asked.
    crash: Arc<Mutex<Option<String>>>,
    client: AgentClient<Channel>,
    /// How long to wait for devices.
    wait: Option<Micros>,
}

impl RemoteAgent {
    /// Connects to the agent of server `peer.server`.
    ///
    /// # Errors
    /// If no agent answers at the address, or it is not the one.
    pub async fn connect(
        peer: &Peer,
        identity: Option<&Identity>,
        wait: Option<Micros>,
    ) -> Result<RemoteAgent, AgentError> {
        RemoteAgent::reach(peer, identity, wait, Expected::Peer).await
    }

    /// Connects to an agent whose name is not known yet: only to ask for it.
    ///
    /// # Errors
    /// As [`RemoteAgent::connect`].
    pub(super) async fn connect_unnamed(peer: &Peer, identity: Option<&Identity>) -> Result<RemoteAgent, AgentError> {
        RemoteAgent::reach(peer, identity, None, Expected::AnyAgent).await
    }

    async fn reach(
        peer: &Peer,
        identity: Option<&Identity>,
        wait: Option<Micros>,
        expected: Expected,
    ) -> Result<RemoteAgent, AgentError> {
        let unreachable = |cause: String| AgentError::Unreachable {
            agent: peer.server.clone(),
            address: peer.address.clone(),
            cause,
        };
        let channel = connect(peer, identity, expected).await.map_err(|error| match error {
            ConnectError::NotThePeer(cause) => {
                AgentError::NotThePeer { agent: peer.server.clone(), address: peer.address.clone(), cause }
            }
            error => {
                let cause = error.to_string();
                let hint = if cause.contains("refused") {
                    " (is `edgecut agent` running there?)"
                } else if cause.contains("BadSignature") || cause.contains("UnknownIssuer") {
                    " (was its certificate signed by the `ca` of the cluster file?)"
                } else {
                    ""
                };
                unreachable(cause + hint)
            }
        })?;
        let agent = RemoteAgent {
            name: peer.server.clone(),
            address: peer.address.clone(),
            own_name: Arc::default(),
            crash: Arc::default(),
            wait,
            client: AgentClient::new(channel).max_decoding_message_size(MAX_MESSAGE_SIZE),
        };
        // Only a reply shows that the other side speaks this protocol and accepts the certificate.
        match agent.now().await {
            Ok(_) => Ok(agent),
            Err(AgentError::Disconnected { cause, .. }) => Err(unreachable(match identity {
                None => format!("{cause} (does it require TLS? the cluster file has no [tls])"),
                Some(_) if cause.contains("CertificateRevoked") => {
                    "our certificate is revoked: `edgecut cluster init` issues another one".to_string()
                }
                Some(_) => format!(
                    "{cause} (does it use TLS, and did its certificate authority of clients sign our certificate?)"
                ),
            })),
            Err(error) => Err(error),
        }
    }

    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    /// What all clients know it by: its own name, and its address, which each may write in its own way.
    pub(super) fn lease_order(&self) -> (&str, &str) {
        (self.own_name.get().map_or("", String::as_str), &self.address)
    }

    pub(super) fn wait(&self) -> Option<Micros> {
        self.wait
    }

    /// What was received, as it may be used.
    fn checked<T: Received>(&self, received: T) -> Result<T, AgentError> {
        received.checked().map_err(|error| self.refused(error))
    }

    /// The error for what is no valid request or reply.
    fn refused(&self, why: impl fmt::Display) -> AgentError {
        AgentError::Refused { agent: self.name.clone(), message: why.to_string() }
    }

    /// Awaits the reply to a call, up to a timeout.
    async fn call<T>(
        &self,
        doing: &str,
        after: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AgentError> {
        match tokio::time::timeout(after, call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(AgentError::from_status(&self.name, doing, &status)),
            Err(_) => Err(AgentError::Timeout { agent: self.name.clone(), doing: doing.to_string(), after }),
        }
    }

    pub async fn describe(&self) -> Result<Description, AgentError> {
        let mut client = self.client.clone();
        let request = client.describe(Frame::from(DescribeRequest {}));
        let reply = self.call("describing itself", CALL_TIMEOUT, request).await?;
        let Frame { header: DescribeReply { protocol }, payload } = reply;
        if !is_compatible(protocol) {
            let agent = self.name.clone();
            return Err(AgentError::ProtocolVersion { agent, found: protocol, expected: PROTOCOL });
        }
        let description: Description = serde_json::from_slice(&payload).map_err(|error| self.refused(error))?;
        let description = self.checked(description)?;
        // All replies have the same name.
        let _ = self.own_name.set(description.name.to_string());
        self.crash.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&description.crash);
        Ok(description)
    }

    /// What its process computed when it was last killed, as far as is known.
    pub fn known_crash(&self) -> Option<String> {
        self.crash.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `error` with what the agent was computing, if its process was killed after the crash `known`.
    pub async fn explained(&self, error: AgentError, known: Option<String>) -> AgentError {
        let AgentError::Disconnected { agent, doing, cause } = error else { return error };
        let asked = async {
            let mut unreachable = 0;
            // Connections to an agent that starts again wait; those to one that is gone are refused.
            while unreachable < MAX_FAILED_CALLS {
                match self.describe().await {
                    Ok(description) => return description.crash,
                    Err(_) => unreachable += 1,
                }
                tokio::time::sleep(RESTART_POLL).await;
            }
            None
        };
        let crash = tokio::time::timeout(RESTART_TIME, asked).await.ok().flatten();
        let cause = match crash {
            Some(crash) if known.as_ref() != Some(&crash) => format!("its process was {crash}; it has restarted"),
            _ => cause,
        };
        AgentError::Disconnected { agent, doing, cause }
    }

    /// The time on the agent's clock.
    pub async fn now(&self) -> Result<Micros, AgentError> {
        self.checked(self.clock().await?.now)
    }

    /// The time on the calendar clock of the agent's machine, since 1970.
    pub async fn since_1970(&self) -> Result<Micros, AgentError> {
        self.checked(self.clock().await?.since_1970)
    }

    async fn clock(&self) -> Result<ClockReply, AgentError> {
        let mut client = self.client.clone();
        let request = client.clock(Frame::from(ClockRequest {}));
        Ok(self.call("reporting its clock", CALL_TIMEOUT, request).await?.header)
    }

    /// Times transfers from this agent to `peer`.
    pub async fn probe(&self, peer: &Peer, largest: Bytes, budget: Duration) -> Result<Vec<ProbeSample>, AgentError> {
        let doing = format!("probing its link to {}", peer.server);
        let mut client = self.client.clone();
        let request = ProbeRequest { peer: peer.clone(), largest, budget: budget.into() };
        let mut stream = self.call(&doing, CALL_TIMEOUT, client.probe(Frame::from(request))).await?;
        let mut samples = Vec::new();
        while let Some(sample) = self.next(&doing, PROBE_TIMEOUT, &mut stream).await? {
            samples.push(self.checked(sample.header)?);
        }
        Ok(samples)
    }

    /// The next message of a stream, up to a timeout.
    async fn next<T>(
        &self,
        doing: &str,
        timeout: Duration,
        stream: &mut Streaming<T>,
    ) -> Result<Option<T>, AgentError> {
        match tokio::time::timeout(timeout, stream.message()).await {
            Ok(Ok(message)) => Ok(message),
            Ok(Err(status)) => Err(AgentError::from_status(&self.name, doing, &status)),
            Err(_) => Err(AgentError::Timeout { agent: self.name.clone(), doing: doing.to_string(), after: timeout }),
        }
    }

    /// See [`Agent::profile`](super::Agent::profile).
    pub fn profile(
        &self,
        task: ProfileTask,
        contents: NamedTensors,
    ) -> mpsc::Receiver<Result<ProfileEvent, AgentError>> {
        let (sender, events) = mpsc::channel(16);
        let (agent, known) = (self.clone(), self.known_crash());
        tokio::spawn(async move {
            if let Err(error) = agent.stream_profile(task, contents, &sender).await {
                // The receiver may have been dropped.
                let _ = sender.send(Err(agent.explained(error, known).await)).await;
            }
        });
        events
    }

    async fn stream_profile(
        &self,
        task: ProfileTask,
        contents: NamedTensors,
        events: &mpsc::Sender<Result<ProfileEvent, AgentError>>,
    ) -> Result<(), AgentError> {
        let doing = "profiling";
        let wait = self.wait.and_then(Micros::to_duration).unwrap_or_default();
        let budget = task.sampling.budget.to_duration().unwrap_or_default();
        let timeout = PROFILE_TIMEOUT.saturating_add(wait).saturating_add(budget);
        let task = ProfileTask { wait: self.wait, ..task };
        let pieces = task.into_messages(contents).map_err(|error| self.refused(error))?;
        let (messages, outgoing) = mpsc::channel(2);
        let (mut answer, mut answered) = Answer::channel();
        let mut client = self.client.clone();
        tokio::spawn(async move { answered.send(pieces, &messages).await });
        let mut stream = self.call(doing, CALL_TIMEOUT, client.profile(ReceiverStream::new(outgoing))).await?;
        loop {
            let message = tokio::select! {
                message = self.next(doing, timeout, &mut stream) => message?,
                // The receiver was dropped. Dropping the stream stops the agent.
                () = events.closed() => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            let event = match message.header {
                ProfileReply::Wanted(wanted) => {
                    answer.give(wanted);
                    continue;
                }
                ProfileReply::Event(event) => self.checked(event)?,
            };
            if events.send(Ok(event)).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Begins a run; errors are reported through the handle.
    pub fn run(&self, setup: Arc<Setup>) -> RunHandle {
        let (commands, received_commands) = mpsc::channel(4);
        let (sender, events) = mpsc::channel(16);
        let agent = self.clone();
        let reader = EventReader::new(&setup);
        tokio::spawn(async move {
            if let Err(error) = agent.stream_run(received_commands, reader, &sender).await {
                // The handle may have been dropped.
                let _ = sender.send(Err(error)).await;
            }
        });
        RunHandle { commands, events }
    }

    /// Forwards commands and events until either side ends.
    async fn stream_run(
        &self,
        mut commands: mpsc::Receiver<RunCommand>,
        mut reader: EventReader,
        events: &EventSender,
    ) -> Result<(), AgentError> {
        let doing = "running its part";
        let (messages, outgoing) = mpsc::channel(2);
        let mut client = self.client.clone().max_decoding_message_size(MAX_REPLY_SIZE);
        let (agent, errors) = (self.clone(), events.clone());
        let (mut answer, mut answered) = Answer::channel();
        tokio::spawn(async move {
            loop {
                let command = tokio::select! {
                    command = commands.recv() => command,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        if messages.send(RunRequest::KeepAlive.into()).await.is_err() {
                            return;
                        }
                        continue;
                    }
                };
                let Some(command) = command else { return };
                let pieces = match command.into_messages() {
                    Ok(pieces) => pieces,
                    Err(e) => {
                        let _ = errors.send(Err(agent.refused(e))).await;
                        return;
                    }
                };
                if answered.send(pieces, &messages).await.is_none() {
                    return;
                }
            }
        });
        let mut stream = self.call(doing, CALL_TIMEOUT, client.run(ReceiverStream::new(outgoing))).await?;
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                // The handle was dropped. Dropping the stream unloads the run.
                () = events.closed() => return Ok(()),
            };
            let message = message.map_err(|status| AgentError::from_status(&self.name, doing, &status))?;
            let Some(mut message) = message else { return Ok(()) };
            if let RunReply::Wanted(wanted) = &mut message.header {
                answer.give(std::mem::take(wanted));
            }
            if let Some(event) = reader.read(message).map_err(|error| self.refused(error))?
                && events.send(Ok(event)).await.is_err()
            {
                return Ok(());
            }
        }
    }
}

/// Gives what sends a request the agent's answer to it: the constants that it wants.
struct Answer(Option<oneshot::Sender<Vec<u32>>>);

/// Receives that answer.
struct Answered(Option<oneshot::Receiver<Vec<u32>>>);

impl Answer {
    fn channel() -> (Answer, Answered) {
        let (sender, receiver) = oneshot::channel();
        (Answer(Some(sender)), Answered(Some(receiver)))
    }

    /// Gives the answer; any further one is ignored.
    fn give(&mut self, wanted: Vec<u32>) {
        // Without a receiver nothing is sent any longer.
        let _ = self.0.take().map(|sender| sender.send(wanted));
    }
}

impl Answered {
    /// Sends the messages of a request, from its constants those that the agent wants. `None` if the call has ended.
    async fn send<H>(&mut self, mut messages: Messages<H>, to: &mpsc::Sender<Frame<H>>) -> Option<()>
    where
        H: Clone + Send + 'static,
    {
        for piece in messages.head.by_ref() {
            to.send(piece).await.ok()?;
        }
        let wanted = match self.0.take_if(|_| messages.is_answered) {
            Some(answer) => Some(answer.await.ok()?),
            None => None,
        };
        for piece in messages.rest(wanted) {
            to.send(piece).await.ok()?;
        }
        Some(())
    }
}
