//! The gRPC service: passes calls to the [`Host`] and its results back as messages.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use prost::Message as _;
use smol_str::SmolStr;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::{
    authorization::{authorize, check_sender},
    client_id::ClientId,
    connection_info::ConnectionInfo,
    error::HostError,
    host::Host,
    job_log::{Client, JobLog},
    metrics::JobKind,
    run::RemoteClient,
    transfer,
};
use crate::{
    clock::since_1970,
    limits::Limits,
    protocol::{
        probe::ProbeSample as Sample,
        profile::TaskReader,
        role::Role,
        run::{self, CommandReader, RunCommand},
        wire::{
            AbsorbChunk, AbsorbReply, ClockReply, ClockRequest, DescribeReply, DescribeRequest, ProbeRequest,
            ProbeSample, ProfileEvent, ProfileRequest, RunEvent, RunRequest, TransferChunk, TransferReply, Wanted,
            agent_server::Agent, profile_event, profile_request, run_event, run_request::Request as Message,
        },
    },
};
use edgecut_graph::units::{Bytes, Micros, counted};

/// The gRPC service of one host.
pub(super) struct Service {
    host: Arc<Host>,
}

/// A stream of replies.
type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Messages that may be queued for the network.
const QUEUE_LENGTH: usize = 4;

/// How often a client that waits for the agent counts as heard.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The size from which a document is parsed on a thread of its own: others wait for the runtime's threads meanwhile.
const LONG_DOCUMENT: usize = 256 << 10;

impl Service {
    pub fn new(host: Arc<Host>) -> Service {
        Service { host }
    }

    /// Checks that the client of `request` has this role.
    fn authorize<T>(&self, request: &Request<T>, needed: Role) -> Result<(), HostError> {
        let authorized = authorize(request.extensions().get(), self.host.identity(), needed);
        authorized.inspect_err(|error| Client::of(request).log_refusal(error))
    }
}

/// The next message of a client that has announced it.
///
/// # Errors
/// If none comes in time, or the stream ends.
async fn announced<T>(messages: &mut Streaming<T>, limit: Duration) -> Result<T, Status> {
    let message = timeout(limit, messages.message()).await.map_err(|_| HostError::Silent(limit))??;
    message.ok_or_else(|| HostError::ClientGone.into())
}

/// Has `reader` read a message whose parsing may take long, if it `is_long` on a thread that may.
async fn read<R, M, T>(
    mut reader: R,
    message: M,
    is_long: bool,
    read: impl FnOnce(&mut R, M) -> T + Send + 'static,
) -> Result<(R, T), HostError>
where
    R: Send + 'static,
    M: Send + 'static,
    T: Send + 'static,
{
    let reading = move || {
        let outcome = read(&mut reader, message);
        (reader, outcome)
    };
    match is_long {
        false => Ok(reading()),
        true => tokio::task::spawn_blocking(reading)
            .await
            .map_err(|panic| HostError::Request(format!("the agent failed internally: {panic}"))),
    }
}

fn reply_stream<T: Send + 'static>(receiver: mpsc::Receiver<Result<T, Status>>) -> Response<ReplyStream<T>> {
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

#[tonic::async_trait]
impl Agent for Service {
    type ProbeStream = ReplyStream<ProbeSample>;
    type ProfileStream = ReplyStream<ProfileEvent>;
    type RunStream = ReplyStream<RunEvent>;
    type AbsorbStream = ReplyStream<AbsorbReply>;

    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<DescribeReply>, Status> {
        self.authorize(&request, Role::Operator)?;
        Ok(Response::new(self.host.describe().into()))
    }

    async fn clock(&self, request: Request<ClockRequest>) -> Result<Response<ClockReply>, Status> {
        self.authorize(&request, Role::Operator)?;
        Ok(Response::new(ClockReply { now_us: self.host.now().0, unix_us: Some(since_1970().0) }))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<Self::ProbeStream>, Status> {
        self.authorize(&request, Role::Operator)?;
        let client = Client::of(&request);
        let (_, extensions, request) = request.into_parts();
        let ProbeRequest { peer, largest_bytes, budget_us } = request;
        let peer = peer.ok_or_else(|| HostError::Request("a probe requires a peer".to_string()))?.into();
        let budget = Micros(budget_us)
            .to_duration()
            .ok_or_else(|| HostError::Request(format!("{budget_us} us is not a valid budget")))?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (samples, received) = mpsc::channel(QUEUE_LENGTH);
        let begun = self.host.begin_job(client_id(&extensions)).inspect_err(|error| client.log_refusal(error));
        let (host, job) = (self.host.clone(), begun?);
        let metrics = host.metrics().clone();
        let of = client.clone();
        tokio::spawn(async move {
            let log = JobLog::begin(JobKind::Link, "measurement of a link", client, &metrics);
            let probing = tokio::spawn(async move {
                let _job = job;
                host.probe_for(Some(of), &peer, Bytes(largest_bytes), budget, samples).await
            });
            let message = |sample: Sample| {
                let sample = ProbeSample { bytes: sample.bytes.0, round_trip_us: sample.round_trip.0 };
                Box::new(std::iter::once(sample)) as Box<dyn Iterator<Item = _> + Send>
            };
            if forward(received, &sender, message).await {
                send_outcome(probing.await, &sender, log).await;
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn absorb(&self, request: Request<Streaming<AbsorbChunk>>) -> Result<Response<Self::AbsorbStream>, Status> {
        self.authorize(&request, Role::Agent)?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (replies, received) = mpsc::channel(QUEUE_LENGTH);
        let client = Client::of(&request);
        let (_, extensions, stream) = request.into_parts();
        let (host, client_id) = (self.host.clone(), client_id(&extensions));
        let metrics = host.metrics().clone();
        tokio::spawn(async move {
            let log = JobLog::begin(JobKind::Link, "measurement of the link from a peer", client.clone(), &metrics);
            let absorbing = async move { host.absorb(stream, replies, client_id, Some(client)).await };
            let absorbing = tokio::spawn(absorbing);
            match forward(received, &sender, |reply| Box::new(std::iter::once(reply))).await {
                true => send_outcome(absorbing.await, &sender, log).await,
                // The measurement is over when the peer leaves.
                false => log.end(None),
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn profile(
        &self,
        request: Request<Streaming<ProfileRequest>>,
    ) -> Result<Response<Self::ProfileStream>, Status> {
        self.authorize(&request, Role::Operator)?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (events, results) = mpsc::channel(QUEUE_LENGTH);
        let client = Client::of(&request);
        let (_, extensions, mut messages) = request.into_parts();
        let (host, client_id) = (self.host.clone(), client_id(&extensions));
        use profile_request::Request::{Constants, Task};
        tokio::spawn(async move {
            let received = host.received().begin();
            let request = async {
                let mut reader = TaskReader::new(host.limits().document, Box::new(host.weights().of(client_id)));
                loop {
                    let message = announced(&mut messages, host.limits().message_time).await?;
                    match &message.request {
                        Some(Task(_) | Constants(_)) => received.add_document(message.encoded_len())?,
                        _ => received.add(message.encoded_len())?,
                    }
                    let is_long = reader.buffered() + message.encoded_len() >= LONG_DOCUMENT;
                    let (again, complete) = read(reader, message, is_long, TaskReader::read).await?;
                    reader = again;
                    let complete = complete.map_err(HostError::from)?;
                    if let Some(constants) = reader.take_wanted() {
                        let wanted = profile_event::Event::Wanted(Wanted { constants });
                        // The receiver is dropped when the client is gone.
                        let _ = sender.send(Ok(ProfileEvent { event: Some(wanted) })).await;
                    }
                    if let Some(complete) = complete {
                        return Ok::<_, Status>(complete);
                    }
                }
            };
            let complete = request.await.and_then(|complete| Ok((complete, host.begin_job(client_id)?)));
            let ((task, contents), job) = match complete {
                Ok(complete) => complete,
                Err(status) => {
                    JobLog::begin(JobKind::Profile, "profile", client, host.metrics()).end(Some(&status.message()));
                    // The receiver is dropped when the client is gone.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let what = format!("profile on {}, {}", task.device, counted(task.graph.operators().len(), "operator"));
            let of = client.clone();
            let log = JobLog::begin(JobKind::Profile, what, client, host.metrics());
            let measuring = tokio::spawn(async move {
                let _held = (job, received);
                host.profile_for(Some(of), task, contents, events).await
            });
            if forward(results, &sender, |event| Box::new(std::iter::once(event.into()))).await {
                send_outcome(measuring.await, &sender, log).await;
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn run(&self, request: Request<Streaming<RunRequest>>) -> Result<Response<Self::RunStream>, Status> {
        self.authorize(&request, Role::Operator)?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (commands, command_receiver) = mpsc::channel(QUEUE_LENGTH);
        let (events, results) = mpsc::channel(QUEUE_LENGTH);
        let errors = sender.clone();
        // Why its messages are no run.
        let refused = Arc::new(OnceLock::new());
        let refusal = refused.clone();
        let client = Client::of(&request);
        let (_, extensions, messages) = request.into_parts();
        let host = self.host.clone();
        let remote = Arc::new(RemoteClient::new(host.received().begin(), client_id(&extensions), client.clone()));
        let (limits, heard) = (host.limits().clone(), remote.clone());
        let held = host.weights().of(client_id(&extensions));
        // Dropping `commands` ends the run: when the client closes its stream, or is gone.
        tokio::spawn(async move {
            let reader = CommandReader::new(limits.document, Box::new(held));
            if let Err(error) = read_commands(messages, reader, &limits, &heard, &commands, &errors).await {
                // Once: no other task sets it.
                let _ = refusal.set(error.to_string());
                // The receiver is dropped when the client is gone.
                let _ = errors.send(Err(error.into())).await;
            }
        });
        tokio::spawn(async move {
            let log = JobLog::begin(JobKind::Run, "run", client, host.metrics());
            let running = tokio::spawn(host.run_remote(command_receiver, events, remote));
            let is_client_there = forward(results, &sender, run::RunEvent::into_wire).await;
            match (refused.get(), is_client_there) {
                (Some(why), _) => log.end(Some(why)),
                (None, true) => send_outcome(running.await, &sender, log).await,
                // A run is over when its client leaves.
                (None, false) => log.end(None),
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn transfer(&self, request: Request<Streaming<TransferChunk>>) -> Result<Response<TransferReply>, Status> {
        self.authorize(&request, Role::Agent)?;
        let client = Client::of(&request);
        let (_, extensions, mut stream) = request.into_parts();
        let first = announced(&mut stream, self.host.limits().message_time).await?;
        let head =
            first.head.ok_or_else(|| HostError::Request("a transfer must begin with its session".to_string()))?;
        let refused = |error: &HostError| client.log_refusal(error);
        let session = self.host.session(&head.session).inspect_err(refused)?;
        let sender = session.setup.senders.iter().find(|sender| sender.server == head.from);
        check_sender(extensions.get(), sender).inspect_err(refused)?;
        transfer::receive(&session, &SmolStr::new(&head.from), stream).await?;
        Ok(Response::new(TransferReply {}))
    }
}

/// Passes events on as messages, until they end or the client is gone: then `events` is dropped, which ends the job. Returns
/// whether the client is still there.
async fn forward<E, M>(
    mut events: mpsc::Receiver<E>,
    replies: &mpsc::Sender<Result<M, Status>>,
    messages: impl Fn(E) -> Box<dyn Iterator<Item = M> + Send>,
) -> bool {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = replies.closed() => return false,
        };
        let Some(event) = event else { return true };
        for message in messages(event) {
            if replies.send(Ok(message)).await.is_err() {
                return false;
            }
        }
    }
}

/// Size of the part of a document or a tensor in `message`; 0 of other messages.
fn content(message: &RunRequest) -> usize {
    match &message.request {
        Some(Message::Setup(piece) | Message::Constants(piece)) => piece.data.len(),
        Some(Message::Parameter(piece) | Message::Input(piece) | Message::Constant(piece)) => piece.data.len(),
        _ => 0,
    }
}

/// Passes the commands of a run's client on, until it closes its side, and asks for constants in `replies`.
///
/// # Errors
/// If its messages are no commands, too many bytes, or the setup takes too long.
async fn read_commands(
    mut messages: Streaming<RunRequest>,
    mut reader: CommandReader,
    limits: &Limits,
    remote: &RemoteClient,
    commands: &mpsc::Sender<RunCommand>,
    replies: &mpsc::Sender<Result<RunEvent, Status>>,
) -> Result<(), HostError> {
    let mut is_set_up = false;
    loop {
        let message = async {
            match is_set_up {
                true => Ok(messages.message().await),
                false => timeout(limits.message_time, messages.message()).await,
            }
        };
        let message = tokio::select! {
            message = message => message.map_err(|_| HostError::Silent(limits.message_time))?,
            // The run has ended.
            () = commands.closed() => return Ok(()),
        };
        let Ok(Some(message)) = message else { return Ok(()) };
        remote.heard.fetch_add(1, Ordering::Relaxed);
        let content = content(&message);
        if !is_set_up && content == 0 {
            return Err(HostError::Request("a run must begin with its setup".to_string()));
        }
        match &message.request {
            Some(Message::Setup(_) | Message::Constants(_)) => remote.received.add_document(content)?,
            _ => remote.received.add(content)?,
        }
        let is_long = reader.buffered() + message.encoded_len() >= LONG_DOCUMENT;
        let (again, command) = read(reader, message, is_long, CommandReader::read).await?;
        reader = again;
        let command = command?;
        if let Some(constants) = reader.take_wanted() {
            let wanted = run_event::Event::Wanted(Wanted { constants });
            // The receiver is dropped when the client is gone.
            let _ = replies.send(Ok(RunEvent { event: Some(wanted) })).await;
        }
        let Some(command) = command else { continue };
        is_set_up = true;
        // While the run has no use for the next command the client is not silent: its messages are not read.
        let sending = commands.send(command);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                sent = &mut sending => match sent {
                    Ok(()) => break,
                    Err(_) => return Ok(()),
                },
                () = tokio::time::sleep(HEARTBEAT) => drop(remote.heard.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Who sent a request.
fn client_id(extensions: &Extensions) -> ClientId {
    extensions.get::<ConnectionInfo>().map_or(ClientId::Address(None), |connection| connection.client_id)
}

/// Ends a reply stream with the error of `outcome`, if any, and logs it.
async fn send_outcome<T>(
    outcome: Result<Result<(), HostError>, tokio::task::JoinError>,
    replies: &mpsc::Sender<Result<T, Status>>,
    log: JobLog,
) {
    let error = match outcome {
        Ok(Ok(())) => return log.end(None),
        Ok(Err(error)) => error,
        Err(panic) => HostError::Request(format!("the agent failed internally: {panic}")),
    };
    log.end(Some(&error));
    // The receiver is dropped when the client is gone.
    let _ = replies.send(Err(error.into())).await;
}
