//! Measurement of a link: transfers between two agents, timed until their acknowledgement.
//!
//! A transfer is timed between compute threads on both sides, in the state in which a run makes one: the sender has computed
//! for some milliseconds and written the data last, the receiver is idle. It thus includes thread wake-up and message
//! handling with cold caches, as a transfer during a run does.

use std::{
    io, thread,
    time::{Duration, Instant},
};

use bytes::Bytes as Buffer;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::Status;

use super::{
    client_id::ClientId,
    device_user::DeviceUser,
    error::HostError,
    host::Host,
    job_log::Client,
    measurement_lock::{MeasurementLock, Sharing},
};
use crate::protocol::{
    chunks::{Assembled, Assembler, MAX_MESSAGE_SIZE, chunks},
    connect::{Expected, connect},
    error::root_cause,
    frame::Frame,
    message::{AbsorbReply, AbsorbRequest, agent_client::AgentClient},
    peer::Peer,
    probe::{MAX_PROBE_SIZE, ProbeSample},
};
use edgecut_graph::{DType, TensorData, TensorType, units::Bytes};
use edgecut_profile::CacheFlush;

/// The smallest transfer that is timed, apart from empty ones; sizes grow fourfold. Smaller transfers do not reveal the
/// rate: queues and token buckets pass short bursts at once.
const MIN_PROBE_SIZE: Bytes = Bytes(1 << 15);

/// The largest transfer that a peer accepts.
const MAX_ABSORB_SIZE: Bytes = Bytes(64 << 20);

/// How long the sender computes before each transfer.
const COMPUTE: Duration = Duration::from_millis(3);

/// What it reads meanwhile, more than the private caches of a core hold.
const WORKING_SET: Bytes = Bytes(8 << 20);

/// Longest time for one transfer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);

impl Host {
    /// Times transfers to `peer`: empty ones and sizes from 32 KiB to `largest`, several of each, fewer of large ones. Once
    /// `budget` is spent, only what a linear fit needs is added.
    ///
    /// # Errors
    /// If the processor of either side is busy, the peer does not answer, or a transfer takes too long.
    pub async fn probe(
        &self,
        peer: &Peer,
        largest: Bytes,
        budget: Duration,
        samples: mpsc::Sender<ProbeSample>,
    ) -> Result<(), HostError> {
        self.probe_for(None, peer, largest, budget, samples).await
    }

    /// The same for a client in another process.
    ///
    /// # Errors
    /// The same.
    pub(super) async fn probe_for(
        &self,
        client: Option<Client>,
        peer: &Peer,
        largest: Bytes,
        budget: Duration,
        samples: mpsc::Sender<ProbeSample>,
    ) -> Result<(), HostError> {
        let user = DeviceUser::new("measurement of a link", client);
        let _lease = self.processor().lease(user, Sharing::Exclusive, self.limits().lease_wait, async |_| {}).await?;
        let _lock = self.shared_lock().await?;
        let failed = |cause: String| HostError::Link { peer: peer.server.clone(), cause };
        let channel = connect(peer, self.identity(), Expected::Peer).await.map_err(|e| failed(e.to_string()))?;
        let mut client = AgentClient::new(channel).max_decoding_message_size(MAX_MESSAGE_SIZE);
        let (queue, outgoing) = mpsc::channel(1);
        let status = |status: Status| {
            failed(std::error::Error::source(&status).map_or(status.message().to_string(), root_cause))
        };
        let call = timeout(TRANSFER_TIMEOUT, client.absorb(ReceiverStream::new(outgoing))).await;
        let mut replies = call.map_err(|_| failed("no answer".to_string()))?.map_err(status)?.into_inner();

        let (requests, mut requested) = mpsc::unbounded_channel::<Buffer>();
        let (acknowledgements, acknowledged) = mpsc::channel(1);
        let timing = spawn_compute_thread(move || time_transfers(largest, budget, &requests, acknowledged, &samples));
        let timing = timing.map_err(|error| failed(error.to_string()))?;
        while let Some(data) = requested.recv().await {
            let bytes = Bytes(data.len() as u64);
            let exchange = async {
                for payload in chunks(&data) {
                    if queue.send(Frame { header: AbsorbRequest { bytes }, payload }).await.is_err() {
                        break;
                    }
                }
                replies.message().await
            };
            let reply = timeout(TRANSFER_TIMEOUT, exchange).await;
            let seconds = TRANSFER_TIMEOUT.as_secs();
            let reply = reply.map_err(|_| failed(format!("{bytes} were not transferred in {seconds} s")))?;
            reply.map_err(status)?.ok_or_else(|| failed("it ended the probe".to_string()))?;
            if acknowledgements.send(()).await.is_err() {
                break;
            }
        }
        timing.await.map_err(|_| failed("the timing thread has ended".to_string()))?
    }

    /// Waits until nothing but links is measured on this machine.
    async fn shared_lock(&self) -> Result<MeasurementLock, HostError> {
        let busy = |holder| {
            let user = format!("a profile that {holder} makes");
            HostError::Busy { device: self.processor().description().name.clone(), user }
        };
        MeasurementLock::soon(Sharing::Shared).await.map_err(busy)
    }

    /// The remote side of a probe: receives transfers as in a run, and acknowledges each.
    ///
    /// # Errors
    /// If the processor is busy, the stream breaks, or a transfer is too large.
    pub(super) async fn absorb<S>(
        &self,
        mut stream: S,
        replies: mpsc::Sender<AbsorbReply>,
        client_id: ClientId,
        client: Option<Client>,
    ) -> Result<(), HostError>
    where
        S: futures::Stream<Item = Result<Frame<AbsorbRequest>, Status>> + Unpin,
    {
        // The processor does not wait for a peer that has not begun.
        let silent = self.limits().message_time;
        let next = async |stream: &mut S| timeout(silent, stream.next()).await.map_err(|_| HostError::Silent(silent));
        let Some(mut chunk) = next(&mut stream).await? else { return Ok(()) };
        let _job = self.begin_job(client_id)?;
        let user = DeviceUser::new("measurement of the link from a peer", client);
        let _lease = self.processor().lease(user, Sharing::Exclusive, self.limits().lease_wait, async |_| {}).await?;
        let _lock = self.shared_lock().await?;
        let mut transfer = Assembler::default();
        let (tensors, mut received) = mpsc::channel::<TensorData>(1);
        let acknowledging = spawn_compute_thread(move || {
            while received.blocking_recv().is_some() {
                if replies.blocking_send(AbsorbReply {}).is_err() {
                    return;
                }
            }
        });
        acknowledging.map_err(|error| HostError::Request(format!("cannot start a thread: {error}")))?;
        let absorbing = async {
            loop {
                let Ok(Frame { header: AbsorbRequest { bytes }, payload }) = chunk else {
                    return Err(HostError::ClientGone);
                };
                if bytes > MAX_ABSORB_SIZE {
                    let what = format!("a probe of {bytes} exceeds the limit of {MAX_ABSORB_SIZE}");
                    return Err(HostError::Request(what));
                }
                if let Assembled::Complete(tensor) =
                    transfer.push((), &TensorType::of(DType::U8, &[bytes.0]), &payload)?
                    && tensors.send(tensor).await.is_err()
                {
                    return Err(HostError::ClientGone);
                }
                match next(&mut stream).await? {
                    Some(more) => chunk = more,
                    None => return Ok(()),
                }
            }
        };
        let most = self.limits().probe_time;
        let late = |_| HostError::Request(format!("a probe of more than {} s", most.as_secs_f64()));
        timeout(most, absorbing).await.map_err(late)?
    }
}

/// Runs `work` on a thread of ordinary priority, like those that compute; tokio's threads have a higher one.
fn spawn_compute_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    // The receiver may have been dropped.
    thread::Builder::new().name("probe".into()).spawn(move || drop(done.send(work())))?;
    Ok(result)
}

/// Requests one transfer after the other and times each until it is acknowledged. Blocks its thread.
fn time_transfers(
    largest: Bytes,
    budget: Duration,
    requests: &mpsc::UnboundedSender<Buffer>,
    mut acknowledged: mpsc::Receiver<()>,
    samples: &mpsc::Sender<ProbeSample>,
) -> Result<(), HostError> {
    let (begin, caches) = (Instant::now(), CacheFlush::new(WORKING_SET));
    let sizes = std::iter::successors(Some(MIN_PROBE_SIZE.0), |size| Some(size * 4));
    let largest = largest.0.clamp(4 * MIN_PROBE_SIZE.0, MAX_PROBE_SIZE.0);
    for (index, size) in std::iter::once(0).chain(sizes.take_while(|size| *size <= largest)).enumerate() {
        if index > 2 && begin.elapsed() > budget {
            break;
        }
        let repeats = if size <= 1 << 16 { 24 } else { 8 };
        for repeat in 0..repeats + 1 {
            if repeat > 1 && begin.elapsed() > budget {
                break;
            }
            let computed = Instant::now();
            while computed.elapsed() < COMPUTE {
                caches.flush();
            }
            let data = Buffer::from(vec![0x5a; size as usize]);
            let start = Instant::now();
            if requests.send(data).is_err() || acknowledged.blocking_recv().is_none() {
                // The sending side has failed and reports why.
                return Ok(());
            }
            let round_trip = start.elapsed().into();
            // The first of each size opens windows and allocates memory; it is a warm-up.
            if repeat > 0 && samples.blocking_send(ProbeSample { bytes: Bytes(size), round_trip }).is_err() {
                return Err(HostError::ClientGone);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::Limits, server::host::HostOptions, shutdown::Shutdown};

    #[tokio::test]
    async fn a_link_is_not_measured_while_a_processor_is_in_use() {
        let limits = Limits { lease_wait: Duration::from_millis(50), ..Limits::default() };
        let options = HostOptions { name: "a".into(), threads: Some(1), limits, ..HostOptions::default() };
        let host = Host::start(options, Shutdown::new()).unwrap();
        let user = DeviceUser::new("profile", None);
        let lease = host.processor().lease(user, Sharing::Exclusive, Duration::ZERO, async |_| {}).await.unwrap();
        let absorb = async || {
            let (replies, _received) = mpsc::channel(1);
            let chunk = Frame::from(AbsorbRequest { bytes: Bytes(0) });
            host.absorb(futures::stream::iter([Ok(chunk)]), replies, ClientId::Address(None), None).await
        };
        let refused = absorb().await.map_err(|error| error.to_string());
        assert_eq!(refused, Err("device cpu is busy with another profile".to_string()));
        drop(lease);
        assert!(absorb().await.is_ok());
    }
}
