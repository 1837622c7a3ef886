//! The bytes of a model, and files: weights inside, or in a file of their own.

use std::{
    collections::HashMap,
    io::{BufWriter, Write},
};

use edgecut_graph::TensorData;
use prost::Message;

use super::{
    error::ExportError,
    exported::{Exported, Weight},
};
use crate::{
    proto::{StringStringEntryProto, TensorProto},
    tensor::dtype,
};

/// The most bytes of a protocol buffer.
const MOST_BYTES: u64 = i32::MAX as u64;

/// Weights of at least this many bytes go to the file of external data; below it, the entry that refers to them is not
/// much smaller.
const EXTERNAL_BYTES: usize = 1024;

/// Offsets of weights in external data are multiples of this, the size of a page, so that they can be mapped.
const ALIGNMENT: u64 = 4096;

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// The name of the file of a weight that a runtime gets in memory, which it does not read.
const IN_MEMORY: &str = "in-memory";

impl Exported {
    /// Whether the model with its weights inside is too large for a protocol buffer.
    pub fn needs_external_data(&self) -> bool {
        self.model.encoded_len() as u64 > MOST_BYTES
    }

    /// The model, weights inside.
    ///
    /// # Errors
    /// If it has more than 2 GiB, which no protocol buffer can have.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ExportError> {
        let bytes = self.model.encoded_len() as u64;
        if bytes > MOST_BYTES {
            return Err(ExportError::TooLarge { bytes });
        }
        Ok(self.model.encode_to_vec())
    }

    /// The model without its weights, and those: for a runtime that takes them from memory. Small ones stay in the model,
    /// where they decide what is computed.
    pub fn into_bytes_and_weights(self) -> (Vec<u8>, Vec<Weight>) {
        let mut model = self.model;
        let mut weights = Vec::new();
        let mut readers: HashMap<String, Vec<String>> = HashMap::new();
        for operator in model.graph.iter().flat_map(|graph| &graph.node) {
            for input in &operator.input {
                readers.entry(input.clone()).or_default().extend(operator.op_type.clone());
            }
        }
        for tensor in model.graph.iter_mut().flat_map(|graph| &mut graph.initializer) {
            let dtype = tensor.data_type.and_then(|number| dtype(number.into()).ok());
            let (Some(dtype), Some(name)) = (dtype, tensor.name.clone()) else { continue };
            let Some(bytes) = tensor.raw_data.take_if(|data| data.len() >= EXTERNAL_BYTES) else { continue };
            let shape: Vec<u64> = tensor.dims.iter().map(|n| u64::try_from(*n).unwrap_or(0)).collect();
            match TensorData::new(dtype, shape, bytes.clone()) {
                Ok(content) => {
                    refer(tensor, IN_MEMORY, 0, bytes.len());
                    let readers = readers.remove(&name).unwrap_or_default();
                    weights.push(Weight { name, content, readers });
                }
                Err(_) => tensor.raw_data = Some(bytes),
            }
        }
        (model.encode_to_vec(), weights)
    }

    /// The model without its weights, which go to `weights`, one after the other and never copied: the content of the file `data`
    /// of the model's folder, which the model refers to.
    ///
    /// # Errors
    /// Those of `weights`.
    pub fn with_external_data(&self, data: &str, weights: impl Write) -> std::io::Result<Vec<u8>> {
        let mut model = self.model.clone();
        let (mut file, mut at) = (BufWriter::new(weights), 0);
        for tensor in model.graph.iter_mut().flat_map(|graph| &mut graph.initializer) {
            write_weight(&mut file, tensor, data, &mut at)?;
        }
        file.flush()?;
        Ok(model.encode_to_vec())
    }
}

/// Moves the content of a weight to `file`, whose length is `at`.
fn write_weight(file: &mut impl Write, tensor: &mut TensorProto, location: &str, at: &mut u64) -> std::io::Result<()> {
    let Some(data) = tensor.raw_data.take_if(|data| data.len() >= EXTERNAL_BYTES) else { return Ok(()) };
    let offset = at.next_multiple_of(ALIGNMENT);
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), offset - *at), file)?;
    file.write_all(&data)?;
    *at = offset + data.len() as u64;
    refer(tensor, location, offset, data.len());
    Ok(())
}

/// Makes the content of `tensor` the `length` bytes at `offset` of the file `location`.
fn refer(tensor: &mut TensorProto, location: &str, offset: u64, length: usize) {
    let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.to_string()), value: Some(value) };
    tensor.data_location = Some(EXTERNAL);
    tensor.external_data = vec![
        entry("location", location.to_string()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_aligned_and_small_ones_stay_inside() {
        let weight = |bytes: usize| TensorProto { raw_data: Some(vec![7; bytes].into()), ..Default::default() };
        let (mut file, mut at) = (Vec::new(), 0);
        let mut all = [weight(5000), weight(8), weight(1024)];
        for tensor in &mut all {
            write_weight(&mut file, tensor, "m.data", &mut at).unwrap();
        }
        assert_eq!(file.len(), 8192 + 1024);
        assert!(all[1].raw_data.is_some() && all[1].external_data.is_empty());
        assert_eq!(all[2].external_data[1].value.as_deref(), Some("8192"));
        assert_eq!(file[8192..], [7; 1024]);
    }
}
