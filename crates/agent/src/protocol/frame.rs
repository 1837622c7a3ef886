//! A message on the wire: a header, typed by serde and written in MessagePack, and the bytes that it announces.
//!
//! | bytes | contents |
//! |---|---|
//! | 4 | length of the header, little-endian |
//! | length | the header, with the names of its fields: a reader ignores those that it does not know |
//! | the rest | the payload: a chunk of a tensor or of a document |

use std::marker::PhantomData;

use bytes::{Buf, BufMut, Bytes, TryGetError};
use serde::{Serialize, de::DeserializeOwned};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// One gRPC message.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<H> {
    pub header: H,
    /// Empty for most headers.
    pub payload: Bytes,
}

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("invalid message: {0}")]
    Short(#[from] TryGetError),
    #[error("invalid message: a header of {found} bytes in {left}")]
    Length { found: usize, left: usize },
    #[error("invalid message: {0}")]
    Header(#[from] rmp_serde::decode::Error),
}

/// Headers are less deep, also those of later versions: unknown fields are skipped by recursion.
const MAX_DEPTH: usize = 32;

impl<H> From<H> for Frame<H> {
    fn from(header: H) -> Frame<H> {
        Frame { header, payload: Bytes::new() }
    }
}

impl<H: Serialize> Frame<H> {
    /// Writes the frame at the end of `to`.
    ///
    /// # Errors
    /// If the header cannot be written as MessagePack.
    pub(crate) fn write(self, to: &mut impl BufMut) -> Result<(), rmp_serde::encode::Error> {
        let header = rmp_serde::to_vec_named(&self.header)?;
        to.put_u32_le(header.len() as u32);
        to.put_slice(&header);
        to.put(self.payload);
        Ok(())
    }
}

impl<H: DeserializeOwned> Frame<H> {
    /// Reads the frame that is all of `from`. The payload shares its memory where `from` is in one piece.
    ///
    /// # Errors
    /// If it is too short, or its header is not of this type.
    pub(crate) fn read(mut from: impl Buf) -> Result<Frame<H>, FrameError> {
        let found = from.try_get_u32_le()? as usize;
        if found > from.remaining() {
            return Err(FrameError::Length { found, left: from.remaining() });
        }
        let header = from.copy_to_bytes(found);
        let mut reader = rmp_serde::Deserializer::from_read_ref(&header[..]);
        reader.set_max_depth(MAX_DEPTH);
        let header = H::deserialize(&mut reader)?;
        Ok(Frame { header, payload: from.copy_to_bytes(from.remaining()) })
    }
}

/// Frames of a call: headers `S` are sent, headers `R` received.
#[derive(Debug)]
pub struct FrameCodec<S, R>(PhantomData<(S, R)>);

impl<S, R> Default for FrameCodec<S, R> {
    fn default() -> FrameCodec<S, R> {
        FrameCodec(PhantomData)
    }
}

/// Writes frames, or reads them.
#[derive(Debug)]
pub struct FrameCoder<H>(PhantomData<H>);

impl<S, R> Codec for FrameCodec<S, R>
where
    S: Serialize + Send + 'static,
    R: DeserializeOwned + Send + 'static,
{
    type Encode = Frame<S>;
    type Decode = Frame<R>;
    type Encoder = FrameCoder<S>;
    type Decoder = FrameCoder<R>;

    fn encoder(&mut self) -> FrameCoder<S> {
        FrameCoder(PhantomData)
    }

    fn decoder(&mut self) -> FrameCoder<R> {
        FrameCoder(PhantomData)
    }
}

impl<H: Serialize> Encoder for FrameCoder<H> {
    type Item = Frame<H>;
    type Error = Status;

    fn encode(&mut self, frame: Frame<H>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.reserve(frame.payload.len());
        frame.write(to).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<H: DeserializeOwned> Decoder for FrameCoder<H> {
    type Item = Frame<H>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Frame<H>>, Status> {
        Frame::read(from).map(Some).map_err(|error| Status::invalid_argument(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Old {
        a: u32,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct New {
        a: u32,
        #[serde(default)]
        b: Option<f64>,
    }

    fn written<H: Serialize>(frame: Frame<H>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn frames_survive_a_round_trip_and_a_field_more_or_less() {
        let payload = Bytes::from_static(b"payload");
        let new = |b| Frame { header: New { a: 7, b }, payload: payload.clone() };
        let old = || Frame { header: Old { a: 7 }, payload: payload.clone() };
        assert_eq!(Frame::<New>::read(&written(new(Some(f64::INFINITY)))[..]).unwrap(), new(Some(f64::INFINITY)));
        assert_eq!(Frame::<Old>::read(&written(new(Some(0.5)))[..]).unwrap(), old());
        assert_eq!(Frame::<New>::read(&written(old())[..]).unwrap(), new(None));
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let whole = written(Frame::from(Old { a: 7 }));
        for length in 0..whole.len() {
            assert!(Frame::<Old>::read(&whole[..length]).is_err(), "{length} bytes of {}", whole.len());
        }
        // {"x": [[[…
        let mut nested = [&[0x81, 0xa1, b'x'][..], &[0x91; 1 << 20]].concat();
        nested.splice(0..0, (nested.len() as u32).to_le_bytes());
        for wrong in [&b"\xff\xff\xff\xff"[..], b"\x01\0\0\0\xc0", &nested] {
            assert!(Frame::<Old>::read(wrong).is_err());
        }
    }
}
