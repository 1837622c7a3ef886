//! Tensors between agents during a run: the sending and the receiving side of a link.
//!
//! A link is one stream for the lifetime of the session. It carries one tensor at a time, in the order in which they were
//! produced, while the devices compute.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::{sync::mpsc, task::JoinError};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Response, Status};

use super::{error::HostError, metrics::Metrics, run_state::PendingSend, session::Session};
use crate::{
    clock::Clock,
    protocol::{
        Identity,
        chunks::{Assembled, Assembler, MAX_MESSAGE_SIZE, chunks},
        connect::{Expected, connect},
        encoding::{decode, encode, encoded_type},
        error::root_cause,
        frame::Frame,
        inference_trace::TransferTime,
        message::{TransferReply, TransferRequest, agent_client::AgentClient},
        peer::Peer,
        recorded,
        setup::{Outgoing, Setup, ValueId},
    },
    shutdown::Shutdown,
};
use edgecut_graph::units::Bytes as ByteCount;

/// Opens the link to `peer`. Values put into the returned queue are sent until the session ends; a failure fails the
/// session.
///
/// # Errors
/// If the peer does not answer.
pub(super) async fn open_link(
    session: &Arc<Session>,
    peer: &Peer,
    identity: Option<&Identity>,
) -> Result<mpsc::UnboundedSender<PendingSend>, HostError> {
    let channel = connect(peer, identity, Expected::Peer)
        .await
        .map_err(|e| HostError::Link { peer: peer.server.clone(), cause: e.to_string() })?;
    let client = AgentClient::new(channel).max_decoding_message_size(MAX_MESSAGE_SIZE);
    let (queue, sends) = mpsc::unbounded_channel();
    let (session, peer) = (session.clone(), peer.server.clone());
    tokio::spawn(async move {
        let ended = session.end.requested();
        tokio::select! {
            outcome = send_all(&session, &peer, client, sends) => {
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
    mut sends: mpsc::UnboundedReceiver<PendingSend>,
) -> Result<(), HostError> {
    // One chunk is queued while another is sent: enough to keep the stream busy without copying far ahead.
    let (queue, outgoing) = mpsc::channel(1);
    let mut call = tokio::spawn(async move { client.transfer(ReceiverStream::new(outgoing)).await });
    let head = TransferRequest::Session { session: session.setup.session.clone(), from: session.setup.server.clone() };
    if queue.send(head.into()).await.is_err() {
        return Err(unexpected_end(peer, call.await));
    }
    loop {
        let send = tokio::select! {
            send = sends.recv() => send,
            reply = &mut call => return Err(unexpected_end(peer, reply)),
        };
        let Some(send) = send else { return Ok(()) };
        let Outgoing { value, format, .. } = session.setup.sends[send.send];
        let (inference, start) = (send.inference, session.clock.now());
        let content = encode(format, &send.data);
        let bytes = ByteCount(content.len() as u64);
        for payload in chunks(&content) {
            let header = TransferRequest::Value { inference, value, format };
            if queue.send(Frame { header, payload }).await.is_err() {
                return Err(unexpected_end(peer, call.await));
            }
        }
        let time = TransferTime { value, to: peer.clone(), ready: send.ready, start, end: session.clock.now(), bytes };
        session.finish_send(&send, time);
    }
}

/// Why a link ended before its session.
fn unexpected_end(
    peer: &SmolStr,
    reply: Result<Result<Response<Frame<TransferReply>>, Status>, JoinError>,
) -> HostError {
    match reply {
        Ok(Ok(_)) => HostError::PeerEnded { peer: peer.clone() },
        Ok(Err(status)) => link_error(peer, &status),
        Err(ended) => HostError::Link { peer: peer.clone(), cause: ended.to_string() },
    }
}

fn link_error(peer: &SmolStr, status: &Status) -> HostError {
    let cause = std::error::Error::source(status).map_or(status.message().to_string(), root_cause);
    HostError::Link { peer: peer.clone(), cause }
}

/// Receives what `from` sends for `session` until either ends.
///
/// # Errors
/// If the stream breaks, or carries values that the session does not expect. The session fails too.
pub(super) async fn receive<S>(session: &Arc<Session>, from: &SmolStr, stream: S) -> Result<(), HostError>
where
    S: futures::Stream<Item = Result<Frame<TransferRequest>, Status>> + Unpin,
{
    let ended = session.end.requested();
    tokio::select! {
        outcome = receive_all(session, from, stream) => outcome,
        () = ended => Ok(()),
    }
}

async fn receive_all<S>(session: &Arc<Session>, from: &SmolStr, mut stream: S) -> Result<(), HostError>
where
    S: futures::Stream<Item = Result<Frame<TransferRequest>, Status>> + Unpin,
{
    let mut tensors = Assembler::default();
    while let Some(chunk) = stream.next().await {
        let outcome = match chunk {
            Ok(chunk) => receive_chunk(session, &mut tensors, chunk),
            Err(status) => Err(link_error(from, &status)),
        };
        if let Err(error) = outcome {
            let reply = HostError::Request(error.to_string());
            session.fail(error);
            return Err(reply);
        }
    }
    Ok(())
}

/// Receives the messages in `bytes` for a run of `setup`, as [`recorded`] writes them, until one is refused; returns how many
/// values were complete. Nothing is computed.
pub fn receive_recorded(setup: Setup, bytes: &[u8]) -> usize {
    let end = Shutdown::new();
    let (session, _reports) = Session::new(Arc::new(setup), Clock::start(), end, false, Arc::new(Metrics::new()));
    let mut tensors = Assembler::default();
    let complete = recorded::messages(bytes).map_while(|chunk: Frame<TransferRequest>| {
        let TransferRequest::Value { inference, value, .. } = chunk.header else { return None };
        let received = receive_chunk(&session, &mut tensors, chunk).ok();
        received.map(|()| usize::from(!tensors.has_begun(&(inference, value))))
    });
    complete.sum()
}

fn receive_chunk(
    session: &Session,
    tensors: &mut Assembler<(u64, ValueId)>,
    chunk: Frame<TransferRequest>,
) -> Result<(), HostError> {
    let Frame { header, payload } = chunk;
    let TransferRequest::Value { inference, value, format } = header else {
        return Err(HostError::Request("a link has one session".to_string()));
    };
    session.count_received(payload.len());
    let key = (inference, value);
    if !tensors.has_begun(&key) {
        session.begin_receive(inference, value)?;
    }
    let known = session.setup.value(value);
    let ty = &known.ok_or_else(|| HostError::Request(format!("value {} is not in the setup", value.0)))?.ty;
    if let Assembled::Complete(content) = tensors.push(key, &encoded_type(format, ty)?, &payload)? {
        session.finish_receive(inference, value, decode(format, ty, content)?)?;
    }
    Ok(())
}
