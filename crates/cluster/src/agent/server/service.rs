//! The gRPC service: passes calls to the [`Host`] and its results back as messages.

use std::{pin::Pin, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    error::HostError,
    host::Host,
    job_log::{Client, JobLog},
    transfer,
};
use crate::agent::protocol::{
    profile::TaskReader,
    run::CommandReader,
    wire::{
        AbsorbChunk, AbsorbReply, ClockReply, ClockRequest, DescribeReply, DescribeRequest, ProbeRequest, ProbeSample,
        ProfileEvent, ProfileRequest, RunEvent, RunRequest, TransferChunk, TransferReply, agent_server::Agent,
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

impl Service {
    pub fn new(host: Arc<Host>) -> Service {
        Service { host }
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
        let ProbeRequest { peer, largest_bytes, budget_us } = request.into_inner();
        let peer = peer.ok_or_else(|| HostError::Request("a probe requires a peer".to_string()))?.into();
        let budget = Duration::try_from_secs_f64(budget_us / 1e6)
            .map_err(|_| HostError::Request(format!("{budget_us} us is not a valid budget")))?;
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let (samples, mut received) = mpsc::channel(QUEUE_LENGTH);
        let host = self.host.clone();
        tokio::spawn(async move {
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
        let (host, stream) = (self.host.clone(), request.into_inner());
        tokio::spawn(async move {
            let log = JobLog::begin("measurement of the link from a peer", client);
            let absorbing = tokio::spawn(async move { host.absorb(stream, replies).await });
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
        let mut messages = request.into_inner();
        let host = self.host.clone();
        tokio::spawn(async move {
            let request = async {
                let mut reader = TaskReader::default();
                while let Some(message) = messages.message().await? {
                    if let Some(complete) = reader.read(message).map_err(HostError::from)? {
                        return Ok(complete);
                    }
                }
                Err(Status::from(HostError::ClientGone))
            };
            let (task, contents) = match request.await {
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
        let mut messages = request.into_inner();
        // Dropping `commands` ends the run: when the client closes its stream, or is gone.
        tokio::spawn(async move {
            let mut reader = CommandReader::default();
            while let Some(Ok(message)) = messages.next().await {
                match reader.read(message) {
                    Ok(None) => {}
                    Ok(Some(command)) => {
                        if commands.send(command).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        // The receiver is dropped when the client is gone.
                        let _ = errors.send(Err(HostError::from(error).into())).await;
                        return;
                    }
                }
            }
        });
        let host = self.host.clone();
        tokio::spawn(async move {
            let log = JobLog::begin("run", client);
            let running = tokio::spawn(host.run(command_receiver, events));
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
        let head = stream.message().await?.and_then(|first| first.head);
        let head = head.ok_or_else(|| HostError::Request("a transfer must begin with its session".to_string()))?;
        let session = self.host.session(&head.session)?;
        transfer::receive(&session, &SmolStr::new(&head.from), stream).await?;
        Ok(Response::new(TransferReply {}))
    }
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
