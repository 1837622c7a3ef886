//! Measuring a link: real transfers between two agents, timed until their acknowledgement.
//!
//! A transfer is timed from the thread that computes on one side to the one that computes on the other, after a rest as
//! long as a short operator: what waking threads up, putting into messages and taking out of them costs is part of it,
//! as it is in a run.

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
    chunks::{Assembled, Assembler, LARGEST_MESSAGE, chunks},
    connect::connect,
    error::{HostError, cause},
    host::Host,
    setup::Peer,
    wire::{AbsorbChunk, AbsorbReply, agent_client::AgentClient},
};
use crate::{
    cluster::{FitError, LinkCost},
    graph::{DType, TensorData, TensorType},
    statistics::{median, quantile},
    units::{Bytes, Micros},
};

/// The smallest and the largest transfer that are timed, nothing apart; sizes grow fourfold. Smaller ones say nothing of
/// the rate: queues and token buckets let a few packets through at once.
const SMALLEST: u64 = 1 << 15;
pub const LARGEST: u64 = 8 << 20;

/// The largest transfer that a peer takes in.
const LARGEST_ABSORBED: u64 = 64 << 20;

/// How long both sides rest before each transfer.
const REST: Duration = Duration::from_millis(1);

/// No transfer takes longer, or the link is given up.
const TRANSFER_DEADLINE: Duration = Duration::from_secs(60);

/// One timed transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeSample {
    pub bytes: Bytes,
    /// From the first byte leaving to the acknowledgement arriving.
    pub round_trip: Micros,
}

/// What the samples say of the link, and how well they agree with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeFit {
    pub cost: LinkCost,
    /// Median of |predicted − measured| / measured.
    pub error: f64,
    pub largest: Bytes,
    pub samples: usize,
}

impl ProbeFit {
    /// Fits a + b·bytes to what one way takes: the round trip without the acknowledgement, which takes half as long as
    /// the round trip of nothing.
    ///
    /// # Errors
    /// If there are not two sizes beside nothing.
    pub fn of(samples: &[ProbeSample]) -> Result<ProbeFit, FitError> {
        let (empty, mut filled): (Vec<&ProbeSample>, Vec<&ProbeSample>) = samples.iter().partition(|s| s.bytes.0 == 0);
        let nothing: Vec<Micros> = empty.iter().map(|s| s.round_trip).collect();
        let back = Micros(median(&nothing).0 / 2.0);
        // Of each size, the quarter that something else held up the most is not the link's.
        filled.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.round_trip.0.total_cmp(&b.round_trip.0)));
        let kept = filled.chunk_by(|a, b| a.bytes == b.bytes).flat_map(|alike| &alike[..(alike.len() * 3).div_ceil(4)]);
        let one_way = |s: &ProbeSample| (s.round_trip - back).max(Micros(0.5 * s.round_trip.0));
        let points: Vec<_> = kept.map(|s| (s.bytes, one_way(s))).collect();
        let cost = LinkCost::fit(&points)?;
        let deviation = |(bytes, time): &(Bytes, Micros)| (cost.time(*bytes).0 - time.0).abs() / time.0;
        let mut deviations: Vec<f64> = points.iter().map(deviation).collect();
        deviations.sort_unstable_by(f64::total_cmp);
        let error = quantile(&deviations, 0.5).unwrap_or_default();
        let largest = samples.iter().map(|s| s.bytes).max().unwrap_or_default();
        Ok(ProbeFit { cost, error, largest, samples: samples.len() })
    }
}

impl Host {
    /// Times transfers to `peer`: of nothing and of sizes from 32 KiB to `largest`, several of each, fewer of the large
    /// ones. Once `budget` is spent only as much is added as a line needs.
    ///
    /// # Errors
    /// If the peer does not answer, or a transfer takes too long.
    pub async fn probe(
        &self,
        peer: &Peer,
        largest: u64,
        budget: Duration,
        samples: mpsc::Sender<ProbeSample>,
    ) -> Result<(), HostError> {
        let failed = |cause: String| HostError::Link { peer: peer.server.clone(), cause };
        let channel = connect(peer, self.identity.as_ref()).await.map_err(|e| failed(e.to_string()))?;
        let mut client = AgentClient::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        let (pieces, outgoing) = mpsc::channel(1);
        let status = |status: Status| failed(std::error::Error::source(&status).map_or(status.to_string(), cause));
        let call = timeout(TRANSFER_DEADLINE, client.absorb(ReceiverStream::new(outgoing))).await;
        let mut replies = call.map_err(|_| failed("it does not answer".to_string()))?.map_err(status)?.into_inner();

        let (departures, mut departing) = mpsc::unbounded_channel::<Buffer>();
        let (arrivals, arrived) = mpsc::channel(1);
        let timing = computing(move || time_transfers(largest, budget, &departures, arrived, &samples));
        let timing = timing.map_err(|error| failed(error.to_string()))?;
        while let Some(data) = departing.recv().await {
            let bytes = data.len() as u64;
            let exchange = async {
                for data in chunks(&data) {
                    if pieces.send(AbsorbChunk { bytes, data }).await.is_err() {
                        break;
                    }
                }
                replies.message().await
            };
            let reply = timeout(TRANSFER_DEADLINE, exchange).await;
            let reply = reply.map_err(|_| failed(format!("no {} within a minute", Bytes(bytes))))?;
            reply.map_err(status)?.ok_or_else(|| failed("it ended the probe".to_string()))?;
            if arrivals.send(()).await.is_err() {
                break;
            }
        }
        timing.await.map_err(|_| failed("what times it has ended".to_string()))?
    }

    /// The far end of a probe: takes transfers in as a run's are, and acknowledges each.
    ///
    /// # Errors
    /// If the stream breaks or a transfer is larger than a probe's can be.
    pub async fn absorb<S>(&self, mut stream: S, replies: mpsc::Sender<AbsorbReply>) -> Result<(), HostError>
    where
        S: futures::Stream<Item = Result<AbsorbChunk, Status>> + Unpin,
    {
        let mut transfer = Assembler::default();
        let (wholes, mut taken) = mpsc::channel::<TensorData>(1);
        let taking = computing(move || {
            while taken.blocking_recv().is_some() {
                if replies.blocking_send(AbsorbReply {}).is_err() {
                    return;
                }
            }
        });
        taking.map_err(|error| HostError::Request(format!("no thread can be started: {error}")))?;
        while let Some(chunk) = stream.next().await {
            let Ok(AbsorbChunk { bytes, data }) = chunk else { return Err(HostError::Abandoned) };
            if bytes > LARGEST_ABSORBED {
                return Err(HostError::Request(format!("{} is too much for a probe", Bytes(bytes))));
            }
            if let Assembled::Whole(whole) = transfer.push((), &TensorType::of(DType::U8, &[bytes]), &data)?
                && wholes.send(whole).await.is_err()
            {
                return Err(HostError::Abandoned);
            }
        }
        Ok(())
    }
}

/// Does `work` on a thread like those that compute, of ordinary priority, which tokio's are not.
fn computing<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    // Nobody may be waiting for the result.
    thread::Builder::new().name("probe".into()).spawn(move || drop(done.send(work())))?;
    Ok(result)
}

/// Asks for transfers one after the other and times each until it is acknowledged. Blocks its thread.
fn time_transfers(
    largest: u64,
    budget: Duration,
    departures: &mpsc::UnboundedSender<Buffer>,
    mut arrived: mpsc::Receiver<()>,
    samples: &mpsc::Sender<ProbeSample>,
) -> Result<(), HostError> {
    let begin = Instant::now();
    let filled = std::iter::successors(Some(SMALLEST), |size| Some(size * 4));
    let largest = largest.clamp(4 * SMALLEST, LARGEST);
    for (tried, size) in std::iter::once(0).chain(filled.take_while(|size| *size <= largest)).enumerate() {
        if tried > 2 && begin.elapsed() > budget {
            break;
        }
        let data = Buffer::from(vec![0x5a; size as usize]);
        let repeats = if size <= 1 << 16 { 24 } else { 8 };
        for repeat in 0..repeats + 1 {
            if repeat > 1 && begin.elapsed() > budget {
                break;
            }
            thread::sleep(REST);
            let start = Instant::now();
            if departures.send(data.clone()).is_err() || arrived.blocking_recv().is_none() {
                // Whoever sends them has failed and says why.
                return Ok(());
            }
            let round_trip = start.elapsed().into();
            // The first of each size opens windows and takes memory; it is not counted.
            if repeat > 0 && samples.blocking_send(ProbeSample { bytes: Bytes(size), round_trip }).is_err() {
                return Err(HostError::Abandoned);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgement_is_not_of_the_way_there() {
        let sample = |kib: u64| ProbeSample { bytes: Bytes(kib << 10), round_trip: Micros(300.0 + kib as f64 * 8.0) };
        let held_up = ProbeSample { round_trip: Micros(1e6), ..sample(16) };
        let samples = [sample(0), sample(1), sample(16), sample(16), sample(16), held_up, sample(256)];
        let fit = ProbeFit::of(&samples).unwrap();
        assert!((fit.cost.latency.0 - 150.0).abs() < 1e-6 && (fit.cost.rate.0 - 128.0).abs() < 1e-6, "{fit:?}");
        assert!(fit.error < 1e-9 && fit.largest == Bytes(256 << 10) && fit.samples == 7);
        assert!(ProbeFit::of(&[sample(0), sample(1)]).is_err());
    }
}
