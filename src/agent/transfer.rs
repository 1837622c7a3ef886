//! Tensors from agent to agent: the sending side of a link, and the receiving one.
//!
//! A link is one stream that lasts as long as the session. One tensor at a time goes over it, in the order in
//! which they were made, while the devices go on computing.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::{sync::mpsc, task::JoinError};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Response, Status};

use super::{
    board::Departure,
    chunks::{Assembled, Assembler, LARGEST_MESSAGE, chunks},
    connect::connect,
    error::{HostError, cause},
    measured::TransferTime,
    security::Identity,
    session::Session,
    setup::{Peer, ValueId},
    wire::{TransferChunk, TransferHead, TransferReply, agent_client::AgentClient},
};

/// Opens the link to `peer` and sends what comes through the returned queue until the session ends. A failure is the
/// session's.
///
/// # Errors
/// If the peer does not answer.
pub async fn open_link(
    session: &Arc<Session>,
    peer: &Peer,
    identity: Option<&Identity>,
) -> Result<mpsc::UnboundedSender<Departure>, HostError> {
    let channel = connect(peer, identity)
        .await
        .map_err(|e| HostError::Link { peer: peer.server.clone(), cause: e.to_string() })?;
    let client = AgentClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
    let (queue, departures) = mpsc::unbounded_channel();
    let (session, peer) = (session.clone(), peer.server.clone());
    tokio::spawn(async move {
        let ended = session.end.ordered();
        tokio::select! {
            outcome = send_all(&session, &peer, client, departures) => {
                if let Err(error) = outcome {
                    session.fail(error);
                }
            }
            () = ended => {}
        }
    });
    Ok(queue)
}

async fn send_all(
    session: &Arc<Session>,
    peer: &SmolStr,
    mut client: AgentClient<tonic::transport::Channel>,
    mut departures: mpsc::UnboundedReceiver<Departure>,
) -> Result<(), HostError> {
    // One message waits while one is being sent: the stream never runs dry, and little is copied ahead.
    let (pieces, outgoing) = mpsc::channel(1);
    let mut call = tokio::spawn(async move { client.transfer(ReceiverStream::new(outgoing)).await });
    let head = TransferHead { session: session.setup.session.clone(), from: session.setup.server.to_string() };
    let head = TransferChunk { head: Some(head), ..TransferChunk::default() };
    if pieces.send(head).await.is_err() {
        return Err(early_end(peer, call.await));
    }
    loop {
        let departure = tokio::select! {
            departure = departures.recv() => departure,
            reply = &mut call => return Err(early_end(peer, reply)),
        };
        let Some(departure) = departure else { return Ok(()) };
        let (inference, value) = (departure.inference, session.setup.sends[departure.send].value);
        let start = session.clock.now();
        for data in chunks(departure.data.bytes()) {
            if pieces.send(TransferChunk { head: None, inference, value: value.0, data }).await.is_err() {
                return Err(early_end(peer, call.await));
            }
        }
        let time = TransferTime { value, to: peer.clone(), ready: departure.ready, start, end: session.clock.now() };
        session.sent(&departure, time);
    }
}

/// Why a link ended that should not have.
fn early_end(peer: &SmolStr, reply: Result<Result<Response<TransferReply>, Status>, JoinError>) -> HostError {
    match reply {
        Ok(Ok(_)) => HostError::Link { peer: peer.clone(), cause: "it has ended the run".to_string() },
        Ok(Err(status)) => link_error(peer, &status),
        Err(ended) => HostError::Link { peer: peer.clone(), cause: ended.to_string() },
    }
}

fn link_error(peer: &SmolStr, status: &Status) -> HostError {
    let cause = std::error::Error::source(status).map_or(status.message().to_string(), cause);
    HostError::Link { peer: peer.clone(), cause }
}

/// Takes in what `from` sends for `session` until either ends.
///
/// # Errors
/// If the stream breaks, or brings what the session does not expect. The session fails with it.
pub async fn receive<S>(session: &Arc<Session>, from: &SmolStr, stream: S) -> Result<(), HostError>
where
    S: futures::Stream<Item = Result<TransferChunk, Status>> + Unpin,
{
    let ended = session.end.ordered();
    tokio::select! {
        outcome = receive_all(session, from, stream) => outcome,
        () = ended => Ok(()),
    }
}

async fn receive_all<S>(session: &Arc<Session>, from: &SmolStr, mut stream: S) -> Result<(), HostError>
where
    S: futures::Stream<Item = Result<TransferChunk, Status>> + Unpin,
{
    let mut tensors = Assembler::default();
    while let Some(chunk) = stream.next().await {
        let outcome = match chunk {
            Ok(chunk) => take_in(session, &mut tensors, chunk),
            Err(status) => Err(link_error(from, &status)),
        };
        if let Err(error) = outcome {
            let told = HostError::Request(error.to_string());
            session.fail(error);
            return Err(told);
        }
    }
    Ok(())
}

fn take_in(session: &Session, tensors: &mut Assembler<(u64, ValueId)>, chunk: TransferChunk) -> Result<(), HostError> {
    let TransferChunk { inference, value, data, .. } = chunk;
    let (value, key) = (ValueId(value), (inference, ValueId(value)));
    if !tensors.has_begun(&key) {
        session.arriving(inference, value)?;
    }
    let known = session.setup.value(value);
    let ty = &known.ok_or_else(|| HostError::Request(format!("value {} is not in the setup", value.0)))?.ty;
    if let Assembled::Whole(data) = tensors.push(key, ty, &data)? {
        session.arrived(inference, value, data)?;
    }
    Ok(())
}
