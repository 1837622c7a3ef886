//! The gRPC service: passes calls to the [`Host`] and its results back as messages.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Code, Extensions, Request, Response, Status, Streaming};

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
        frame::Frame,
        message::{
            AbsorbReply, AbsorbRequest, ClockReply, ClockRequest, DescribeReply, DescribeRequest, PROTOCOL,
            ProbeRequest, ProfileReply, ProfileRequest, RunReply, RunRequest, TransferReply, TransferRequest,
            agent_server::Agent,
        },
        probe::ProbeSample,
        profile_messages::TaskReader,
        role::Role,
        run::{RunCommand, RunEvent},
        run_messages::CommandReader,
    },
};
use edgecut_graph::units::counted;

/// The gRPC service of one host.
pub(super) struct Service {
    host: Arc<Host>,
}

/// A stream of replies.
type ReplyStream<H> = Pin<Box<dyn Stream<Item = Result<Frame<H>, Status>> + Send>>;

/// One reply.
type Reply<H> = Result<Response<Frame<H>>, Status>;

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

fn reply_stream<H: Send + 'static>(receiver: mpsc::Receiver<Result<Frame<H>, Status>>) -> Response<ReplyStream<H>> {
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

#[tonic::async_trait]
impl Agent for Service {
    type ProbeStream = ReplyStream<ProbeSample>;
    type ProfileStream = ReplyStream<ProfileReply>;
    type RunStream = ReplyStream<RunReply>;
    type AbsorbStream = ReplyStream<AbsorbReply>;

    async fn describe(&self, request: Request<Frame<DescribeRequest>>) -> Reply<DescribeReply> {
        self.authorize(&request, Role::Operator)?;
        let description = serde_json::to_vec(&self.host.describe()).map_err(|e| Status::internal(e.to_string()))?;
        let header = DescribeReply { protocol: PROTOCOL };
        Ok(Response::new(Frame { header, payload: description.into() }))
    }

    async fn clock(&self, request: Request<Frame<ClockRequest>>) -> Reply<ClockReply> {
        self.authorize(&request, Role::Operator)?;
        let reply = ClockReply { now: self.host.now(), since_1970: since_1970() };
        Ok(Response::new(reply.into()))
    }

    async fn probe(&self, request: Request<Frame<ProbeRequest>>) -> Result<Response<Self::ProbeStream>, Status> {
        self.authorize(&request, Role::Operator)?;
        let client = Client::of(&request);
        let (_, extensions, request) = request.into_parts();
        let ProbeRequest { peer, largest, budget } = request.header;
        let invalid = || HostError::Request(format!("{} us is not a valid budget", budget.0));
        let budget = budget.to_duration().ok_or_else(invalid)?;
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
                host.probe_for(Some(of), &peer, largest, budget, samples).await
            });
            if forward(received, &sender, |sample| std::iter::once(sample.into())).await {
                send_outcome(probing.await, &sender, log).await;
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn absorb(
        &self,
        request: Request<Streaming<Frame<AbsorbRequest>>>,
    ) -> Result<Response<Self::AbsorbStream>, Status> {
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
            match forward(received, &sender, |reply: AbsorbReply| std::iter::once(reply.into())).await {
                true => send_outcome(absorbing.await, &sender, log).await,
                // The measurement is over when the peer leaves.
                false => log.end(None),
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn profile(
        &self,
        request: Request<Streaming<Frame<ProfileRequest>>>,
    ) -> Result<Response<Self::ProfileStream>, Status> {
        self.authorize(&request, Role::Operator)?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (events, results) = mpsc::channel(QUEUE_LENGTH);
        let client = Client::of(&request);
        let (_, extensions, mut messages) = request.into_parts();
        let (host, client_id) = (self.host.clone(), client_id(&extensions));
        tokio::spawn(async move {
            let received = host.received().begin();
            let request = async {
                let mut reader = TaskReader::new(host.limits().document, Box::new(host.weights().of(client_id)));
                loop {
                    let message = announced(&mut messages, host.limits().message_time).await?;
                    let size = message.payload.len();
                    match message.header {
                        ProfileRequest::Task { .. } | ProfileRequest::Constants { .. } => {
                            received.add_document(size)?
                        }
                        ProfileRequest::Constant { .. } | ProfileRequest::Content { .. } => received.add(size)?,
                    }
                    let is_long = reader.buffered() + size >= LONG_DOCUMENT;
                    let (again, complete) = read(reader, message, is_long, TaskReader::read).await?;
                    reader = again;
                    let complete = complete.map_err(HostError::from)?;
                    if let Some(wanted) = reader.take_wanted() {
                        // The receiver is dropped when the client is gone.
                        let _ = sender.send(Ok(ProfileReply::Wanted(wanted).into())).await;
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
            if forward(results, &sender, |event| std::iter::once(ProfileReply::Event(event).into())).await {
                send_outcome(measuring.await, &sender, log).await;
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn run(&self, request: Request<Streaming<Frame<RunRequest>>>) -> Result<Response<Self::RunStream>, Status> {
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
            let is_client_there = forward(results, &sender, RunEvent::into_messages).await;
            match (refused.get(), is_client_there) {
                (Some(why), _) => log.end(Some(why)),
                (None, true) => send_outcome(running.await, &sender, log).await,
                // A run is over when its client leaves.
                (None, false) => log.end(None),
            }
        });
        Ok(reply_stream(receiver))
    }

    async fn transfer(&self, request: Request<Streaming<Frame<TransferRequest>>>) -> Reply<TransferReply> {
        self.authorize(&request, Role::Agent)?;
        let client = Client::of(&request);
        let (_, extensions, mut stream) = request.into_parts();
        let first = announced(&mut stream, self.host.limits().message_time).await?;
        let TransferRequest::Session { session, from } = first.header else {
            return Err(HostError::Request("a transfer must begin with its session".to_string()).into());
        };
        let refused = |error: &HostError| client.log_refusal(error);
        let session = self.host.session(&session).inspect_err(refused)?;
        let sender = session.setup.senders.iter().find(|sender| sender.server == from);
        check_sender(extensions.get(), sender).inspect_err(refused)?;
        transfer::receive(&session, &from, stream).await?;
        Ok(Response::new(TransferReply {}.into()))
    }
}

/// Passes events on as messages, until they end or the client is gone: then `events` is dropped, which ends the job. Returns
/// whether the client is still there.
async fn forward<E, H, M: Iterator<Item = Frame<H>>>(
    mut events: mpsc::Receiver<E>,
    replies: &mpsc::Sender<Result<Frame<H>, Status>>,
    messages: impl Fn(E) -> M,
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

/// Passes the commands of a run's client on, until it closes its side, and asks for constants in `replies`.
///
/// # Errors
/// If its messages are no commands, too many bytes, or the setup takes too long.
async fn read_commands(
    mut messages: Streaming<Frame<RunRequest>>,
    mut reader: CommandReader,
    limits: &Limits,
    remote: &RemoteClient,
    commands: &mpsc::Sender<RunCommand>,
    replies: &mpsc::Sender<Result<Frame<RunReply>, Status>>,
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
        let message = match message {
            Ok(Some(message)) => message,
            // What was sent is no message.
            Err(status) if status.code() == Code::InvalidArgument => {
                return Err(HostError::Request(status.message().to_string()));
            }
            Ok(None) | Err(_) => return Ok(()),
        };
        remote.heard.fetch_add(1, Ordering::Relaxed);
        let size = message.payload.len();
        if !is_set_up && (size == 0 || !message.header.has_payload()) {
            return Err(HostError::Request("a run must begin with its setup".to_string()));
        }
        if size > 0 && !message.header.has_payload() {
            return Err(HostError::Request("a command without content has some".to_string()));
        }
        match message.header {
            RunRequest::Setup { .. } | RunRequest::Constants { .. } => remote.received.add_document(size)?,
            _ => remote.received.add(size)?,
        }
        let is_long = reader.buffered() + size >= LONG_DOCUMENT;
        let (again, command) = read(reader, message, is_long, CommandReader::read).await?;
        reader = again;
        let command = command?;
        if let Some(wanted) = reader.take_wanted() {
            // The receiver is dropped when the client is gone.
            let _ = replies.send(Ok(RunReply::Wanted(wanted).into())).await;
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
