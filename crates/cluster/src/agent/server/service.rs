//! The gRPC service: passes calls to the [`Host`] and its results back as messages.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use prost::Message;
use smol_str::SmolStr;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::{
    accept::ConnectionInfo,
    error::HostError,
    host::Host,
    job_log::{Client, JobLog},
    jobs::Holder,
    run::RemoteClient,
    transfer,
};
use crate::agent::{
    limits::Limits,
    protocol::{
        profile::TaskReader,
        run::{CommandReader, RunCommand},
        wire::{
            AbsorbChunk, AbsorbReply, ClockReply, ClockRequest, DescribeReply, DescribeRequest, ProbeRequest,
            ProbeSample, ProfileEvent, ProfileRequest, RunEvent, RunRequest, TransferChunk, TransferReply,
            agent_server::Agent,
        },
    },
};
use edgecut_graph::units::Bytes;

/// The gRPC service of one host.
pub(super) struct Service {
    host: Arc<Host>,
}

/// A stream of replies.
type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Messages that may be queued for the network.
const QUEUE_LENGTH: usize = 4;

/// The size from which a document is parsed on a thread of its own: others wait for the runtime's threads meanwhile.
const LONG_DOCUMENT: usize = 256 << 10;

impl Service {
    pub fn new(host: Arc<Host>) -> Service {
        Service { host }
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

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeReply>, Status> {
        Ok(Response::new(self.host.describe().into()))
    }

    async fn clock(&self, _: Request<ClockRequest>) -> Result<Response<ClockReply>, Status> {
        Ok(Response::new(ClockReply { now_us: self.host.now().0 }))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<Self::ProbeStream>, Status> {
        let client = Client::of(&request);
        let (_, extensions, request) = request.into_parts();
        let ProbeRequest { peer, largest_bytes, budget_us } = request;
        let peer = peer.ok_or_else(|| HostError::Request("a probe requires a peer".to_string()))?.into();
        let budget = Duration::try_from_secs_f64(budget_us / 1e6)
            .map_err(|_| HostError::Request(format!("{budget_us} us is not a valid budget")))?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (samples, mut received) = mpsc::channel(QUEUE_LENGTH);
        let (host, job) = (self.host.clone(), self.host.jobs().begin(holder(&extensions))?);
        tokio::spawn(async move {
            let _job = job;
            let log = JobLog::begin("measurement of a link", client);
            let probing = tokio::spawn(async move { host.probe(&peer, Bytes(largest_bytes), budget, samples).await });
            while let Some(sample) = received.recv().await {
                let sample = ProbeSample { bytes: sample.bytes.0, round_trip_us: sample.round_trip.0 };
                if sender.send(Ok(sample)).await.is_err() {
                    return;
                }
            }
            send_outcome(probing.await, &sender, log).await;
        });
        Ok(reply_stream(receiver))
    }

    async fn absorb(&self, request: Request<Streaming<AbsorbChunk>>) -> Result<Response<Self::AbsorbStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (replies, mut received) = mpsc::channel(QUEUE_LENGTH);
        let client = Client::of(&request);
        let (_, extensions, stream) = request.into_parts();
        let (host, holder) = (self.host.clone(), holder(&extensions));
        tokio::spawn(async move {
            let log = JobLog::begin("measurement of the link from a peer", client);
            let absorbing = tokio::spawn(async move { host.absorb(stream, replies, holder).await });
            while let Some(reply) = received.recv().await {
                if sender.send(Ok(reply)).await.is_err() {
                    return;
                }
            }
            send_outcome(absorbing.await, &sender, log).await;
        });
        Ok(reply_stream(receiver))
    }

    async fn profile(
        &self,
        request: Request<Streaming<ProfileRequest>>,
    ) -> Result<Response<Self::ProfileStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (events, mut results) = mpsc::channel(QUEUE_LENGTH);
        let client = Client::of(&request);
        let (_, extensions, mut messages) = request.into_parts();
        let (host, holder) = (self.host.clone(), holder(&extensions));
        tokio::spawn(async move {
            let received = host.received().begin();
            let request = async {
                let mut reader = TaskReader::new(host.limits().document);
                loop {
                    let message = announced(&mut messages, host.limits().message_time).await?;
                    received.add(message.encoded_len())?;
                    let is_long = reader.buffered() >= LONG_DOCUMENT;
                    let (again, complete) = read(reader, message, is_long, TaskReader::read).await?;
                    reader = again;
                    if let Some(complete) = complete.map_err(HostError::from)? {
                        return Ok::<_, Status>(complete);
                    }
                }
            };
            let complete = request.await.and_then(|complete| Ok((complete, host.jobs().begin(holder)?)));
            let ((task, contents), _job) = match complete {
                Ok(complete) => complete,
                Err(status) => {
                    // The receiver is dropped when the client is gone.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let what = format!("profile on {}, {}", task.device, counted(task.graph.operators().len(), "operator"));
            let log = JobLog::begin(what, client);
            let measuring = tokio::spawn(host.profile(task, contents, events));
            while let Some(event) = results.recv().await {
                if sender.send(Ok(event.into())).await.is_err() {
                    return;
                }
            }
            send_outcome(measuring.await, &sender, log).await;
        });
        Ok(reply_stream(receiver))
    }

    async fn run(&self, request: Request<Streaming<RunRequest>>) -> Result<Response<Self::RunStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (commands, command_receiver) = mpsc::channel(QUEUE_LENGTH);
        let (events, mut results) = mpsc::channel(QUEUE_LENGTH);
        let errors = sender.clone();
        let client = Client::of(&request);
        let (_, extensions, messages) = request.into_parts();
        let host = self.host.clone();
        let remote = Arc::new(RemoteClient::new(host.received().begin(), holder(&extensions)));
        let (limits, heard) = (host.limits().clone(), remote.clone());
        // Dropping `commands` ends the run: when the client closes its stream, or is gone.
        tokio::spawn(async move {
            if let Err(error) = read_commands(messages, &limits, &heard, &commands).await {
                // The receiver is dropped when the client is gone.
                let _ = errors.send(Err(error.into())).await;
            }
        });
        tokio::spawn(async move {
            let log = JobLog::begin("run", client);
            let running = tokio::spawn(host.run_remote(command_receiver, events, remote));
            while let Some(event) = results.recv().await {
                for message in event.into_wire() {
                    if sender.send(Ok(message)).await.is_err() {
                        return;
                    }
                }
            }
            send_outcome(running.await, &sender, log).await;
        });
        Ok(reply_stream(receiver))
    }

    async fn transfer(&self, request: Request<Streaming<TransferChunk>>) -> Result<Response<TransferReply>, Status> {
        let mut stream = request.into_inner();
        let first = announced(&mut stream, self.host.limits().message_time).await?;
        let head =
            first.head.ok_or_else(|| HostError::Request("a transfer must begin with its session".to_string()))?;
        let session = self.host.session(&head.session)?;
        transfer::receive(&session, &SmolStr::new(&head.from), stream).await?;
        Ok(Response::new(TransferReply {}))
    }
}

/// Passes the commands of a run's client on, until it closes its side.
///
/// # Errors
/// If its messages are no commands, too many bytes, or the setup takes too long.
async fn read_commands(
    mut messages: Streaming<RunRequest>,
    limits: &Limits,
    remote: &RemoteClient,
    commands: &mpsc::Sender<RunCommand>,
) -> Result<(), HostError> {
    let mut reader = CommandReader::new(limits.document);
    let mut is_set_up = false;
    loop {
        let message = match is_set_up {
            true => messages.message().await,
            false => timeout(limits.message_time, messages.message())
                .await
                .map_err(|_| HostError::Silent(limits.message_time))?,
        };
        let Ok(Some(message)) = message else { return Ok(()) };
        remote.heard.fetch_add(1, Ordering::Relaxed);
        remote.received.add(message.encoded_len())?;
        let is_long = reader.buffered() >= LONG_DOCUMENT;
        let (again, command) = read(reader, message, is_long, CommandReader::read).await?;
        reader = again;
        if let Some(command) = command? {
            is_set_up = true;
            if commands.send(command).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Who sent a request.
fn holder(extensions: &Extensions) -> Holder {
    extensions.get::<ConnectionInfo>().map_or(Holder::Address(None), |connection| connection.holder)
}

/// `1 operator`, `2 operators`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
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
