//! Measuring a link: real transfers between two agents, timed until their acknowledgement.

use std::time::Duration;

use bytes::Bytes as Buffer;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
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
    graph::{DType, TensorType},
    units::{Bytes, Micros},
};

/// The smallest and the largest transfer that are timed; sizes grow fourfold.
const SMALLEST: u64 = 1 << 10;
pub const LARGEST: u64 = 16 << 20;

/// The largest transfer that a peer takes in.
const LARGEST_ABSORBED: u64 = 64 << 20;

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
    /// Fits a + b·bytes to the round trips. The acknowledgement is a message like any other, so half of the
    /// constant part is the latency of one way.
    ///
    /// # Errors
    /// If there are not two sizes.
    pub fn of(samples: &[ProbeSample]) -> Result<ProbeFit, FitError> {
        let points: Vec<_> = samples.iter().map(|s| (s.bytes, s.round_trip)).collect();
        let round_trip = LinkCost::fit(&points)?;
        let deviation = |s: &ProbeSample| (round_trip.time(s.bytes).0 - s.round_trip.0).abs() / s.round_trip.0;
        let mut deviations: Vec<f64> = samples.iter().map(deviation).collect();
        deviations.sort_unstable_by(f64::total_cmp);
        let cost = LinkCost { latency: Micros(round_trip.latency.0 / 2.0), rate: round_trip.rate };
        let largest = samples.iter().map(|s| s.bytes).max().unwrap_or_default();
        Ok(ProbeFit { cost, error: deviations[deviations.len() / 2], largest, samples: samples.len() })
    }
}

impl Host {
    /// Times transfers to `peer`: sizes from 1 KiB to `largest`, several of each, fewer of the large ones. Once
    /// `budget` is spent only as much is added as a line needs.
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

        let begin = Instant::now();
        let mut sizes = 0;
        let mut size = SMALLEST;
        while size <= largest.clamp(4 * SMALLEST, LARGEST) {
            let data = Buffer::from(vec![0x5a; size as usize]);
            let repeats = if size <= 1 << 16 { 24 } else { 8 };
            for repeat in 0..repeats + 1 {
                if repeat > 1 && begin.elapsed() > budget {
                    break;
                }
                let start = Instant::now();
                let exchange = async {
                    for data in chunks(&data) {
                        if pieces.send(AbsorbChunk { bytes: size, data }).await.is_err() {
                            break;
                        }
                    }
                    replies.message().await
                };
                let reply = timeout(TRANSFER_DEADLINE, exchange).await;
                let reply = reply.map_err(|_| failed(format!("no {} within a minute", Bytes(size))))?;
                reply.map_err(status)?.ok_or_else(|| failed("it ended the probe".to_string()))?;
                let round_trip = start.elapsed().into();
                // The first of each size opens windows and takes memory; it is not counted.
                if repeat > 0 && samples.send(ProbeSample { bytes: Bytes(size), round_trip }).await.is_err() {
                    return Err(HostError::Abandoned);
                }
            }
            (sizes, size) = (sizes + 1, size * 4);
            if sizes >= 2 && begin.elapsed() > budget {
                break;
            }
        }
        Ok(())
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
        while let Some(chunk) = stream.next().await {
            let Ok(AbsorbChunk { bytes, data }) = chunk else { return Err(HostError::Abandoned) };
            if bytes > LARGEST_ABSORBED {
                return Err(HostError::Request(format!("{} is too much for a probe", Bytes(bytes))));
            }
            if let Assembled::Whole(_) = transfer.push((), &TensorType::of(DType::U8, &[bytes]), &data)?
                && replies.send(AbsorbReply {}).await.is_err()
            {
                return Err(HostError::Abandoned);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_constant_part_is_one_way() {
        let sample = |kib: u64| ProbeSample { bytes: Bytes(kib << 10), round_trip: Micros(300.0 + kib as f64 * 8.0) };
        let fit = ProbeFit::of(&[sample(1), sample(16), sample(256)]).unwrap();
        assert!((fit.cost.latency.0 - 150.0).abs() < 1e-6 && (fit.cost.rate.0 - 128.0).abs() < 1e-6, "{fit:?}");
        assert!(fit.error < 1e-9 && fit.largest == Bytes(256 << 10) && fit.samples == 3);
        assert!(ProbeFit::of(&[sample(1)]).is_err());
    }
}
