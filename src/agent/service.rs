//! The host behind gRPC: every call is handed to it, and its answers are cut into messages.

use std::{pin::Pin, sync::Arc, time::Duration};

use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::{
    error::HostError,
    host::Host,
    message::CommandReader,
    task::TaskReader,
    transfer,
    wire::{
        AbsorbChunk, AbsorbReply, ClockReply, ClockRequest, DescribeReply, DescribeRequest, ProbeRequest, ProbeSample,
        ProfileEvent, ProfileRequest, RunEvent, RunRequest, TransferChunk, TransferReply, agent_server::Agent,
    },
};

/// The service's side of a host.
pub struct Service {
    host: Arc<Host>,
}

/// Answers that come one after the other.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How many messages may wait for the network.
const QUEUE: usize = 4;

impl Service {
    pub fn new(host: Arc<Host>) -> Service {
        Service { host }
    }
}

fn answers<T: Send + 'static>(receiver: mpsc::Receiver<Result<T, Status>>) -> Response<Answers<T>> {
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

#[tonic::async_trait]
impl Agent for Service {
    type ProbeStream = Answers<ProbeSample>;
    type ProfileStream = Answers<ProfileEvent>;
    type RunStream = Answers<RunEvent>;
    type AbsorbStream = Answers<AbsorbReply>;

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeReply>, Status> {
        Ok(Response::new(self.host.describe().into()))
    }

    async fn clock(&self, _: Request<ClockRequest>) -> Result<Response<ClockReply>, Status> {
        Ok(Response::new(ClockReply { now_us: self.host.now().0 }))
    }

    async fn probe(&self, request: Request<ProbeRequest>) -> Result<Response<Self::ProbeStream>, Status> {
        let ProbeRequest { peer, largest_bytes, budget_us } = request.into_inner();
        let peer = peer.ok_or_else(|| HostError::Request("a probe needs a peer".to_string()))?.into();
        let budget = Duration::try_from_secs_f64(budget_us / 1e6)
            .map_err(|_| HostError::Request(format!("{budget_us} us is no budget")))?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (samples, mut taken) = mpsc::channel(QUEUE);
        let host = self.host.clone();
        tokio::spawn(async move {
            let probing = tokio::spawn(async move { host.probe(&peer, largest_bytes, budget, samples).await });
            while let Some(sample) = taken.recv().await {
                let sample = ProbeSample { bytes: sample.bytes.0, round_trip_us: sample.round_trip.0 };
                if sender.send(Ok(sample)).await.is_err() {
                    return;
                }
            }
            tell_outcome(probing.await, &sender).await;
        });
        Ok(answers(receiver))
    }

    async fn absorb(&self, request: Request<Streaming<AbsorbChunk>>) -> Result<Response<Self::AbsorbStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (replies, mut given) = mpsc::channel(QUEUE);
        let (host, stream) = (self.host.clone(), request.into_inner());
        tokio::spawn(async move {
            let absorbing = tokio::spawn(async move { host.absorb(stream, replies).await });
            while let Some(reply) = given.recv().await {
                if sender.send(Ok(reply)).await.is_err() {
                    return;
                }
            }
            tell_outcome(absorbing.await, &sender).await;
        });
        Ok(answers(receiver))
    }

    async fn profile(
        &self,
        request: Request<Streaming<ProfileRequest>>,
    ) -> Result<Response<Self::ProfileStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (events, mut happened) = mpsc::channel(QUEUE);
        let mut messages = request.into_inner();
        let host = self.host.clone();
        tokio::spawn(async move {
            let asked = async {
                let mut reader = TaskReader::default();
                while let Some(message) = messages.message().await? {
                    if let Some(complete) = reader.read(message)? {
                        return Ok(complete);
                    }
                }
                Err(Status::from(HostError::Abandoned))
            };
            let (task, contents) = match asked.await {
                Ok(complete) => complete,
                Err(status) => {
                    // A client that is gone does not need to know.
                    let _ = sender.send(Err(status)).await;
                    return;
                }
            };
            let measuring = tokio::spawn(host.profile(task, contents, events));
            while let Some(event) = happened.recv().await {
                if sender.send(Ok(event.into())).await.is_err() {
                    return;
                }
            }
            tell_outcome(measuring.await, &sender).await;
        });
        Ok(answers(receiver))
    }

    async fn run(&self, request: Request<Streaming<RunRequest>>) -> Result<Response<Self::RunStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (commands, taken) = mpsc::channel(QUEUE);
        let (events, mut happened) = mpsc::channel(QUEUE);
        let wrong = sender.clone();
        let mut messages = request.into_inner();
        // Ends, and with it the run, when the client has said all or is gone.
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
                        // If the client is gone already, nobody needs to know.
                        let _ = wrong.send(Err(error.into())).await;
                        return;
                    }
                }
            }
        });
        let host = self.host.clone();
        tokio::spawn(async move {
            let running = tokio::spawn(host.run(taken, events));
            while let Some(event) = happened.recv().await {
                for message in event.into_wire() {
                    if sender.send(Ok(message)).await.is_err() {
                        return;
                    }
                }
            }
            tell_outcome(running.await, &sender).await;
        });
        Ok(answers(receiver))
    }

    async fn transfer(&self, request: Request<Streaming<TransferChunk>>) -> Result<Response<TransferReply>, Status> {
        let mut stream = request.into_inner();
        let head = stream.message().await?.and_then(|first| first.head);
        let head = head.ok_or_else(|| HostError::Request("a transfer begins with its session".to_string()))?;
        let session = self.host.session(&head.session)?;
        transfer::receive(&session, &SmolStr::new(&head.from), stream).await?;
        Ok(Response::new(TransferReply {}))
    }
}

/// Ends the answers with what went wrong, if anything did.
async fn tell_outcome<T>(
    outcome: Result<Result<(), HostError>, tokio::task::JoinError>,
    answers: &mpsc::Sender<Result<T, Status>>,
) {
    let status = match outcome {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.into(),
        Err(panic) => HostError::Request(format!("the agent failed internally: {panic}")).into(),
    };
    // A client that is gone does not need to know.
    let _ = answers.send(Err(status)).await;
}
