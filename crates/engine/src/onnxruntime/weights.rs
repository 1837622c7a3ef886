//! Weights of a session in a file without a name, mapped into memory: ONNX Runtime refers to them as long as the session
//! lives, but reads most of them only to pack them. The pages of those go back to the system, which reads them again from
//! the file if they are needed after all.

use std::io;

use edgecut_graph::TensorData;
use edgecut_onnx::Weight;
use edgecut_values::stored::StoredFile;

use super::shared_weights::{SharedWeights, WeightKey};

/// Weights of fewer bytes together stay where they are: a file would not free much.
const MIN_BYTES: u64 = 1 << 20;

/// Kinds whose constant matrices and kernels ONNX Runtime packs.
const PACKING: [&str; 4] = ["Conv", "Gemm", "MatMul", "MatMulNBits"];

/// Kinds that read their constant tables as they are.
const LOOKUPS: [&str; 2] = ["Gather", "GatherBlockQuantized"];

/// The weights of a session.
pub(super) struct Weights {
    pub list: Vec<Weight>,
    /// Bytes of those that ONNX Runtime packs.
    pub packed: u64,
    /// Bytes of the others, which it uses as they are.
    pub unpacked: u64,
    /// Where the contents are, if not in memory.
    files: Vec<StoredFile>,
    /// What no earlier session has, if weights are shared, and how many of the files are its.
    new: Vec<(WeightKey, TensorData)>,
    new_files: usize,
}

impl Weights {
    /// Moves the contents to a file. Where none can be written, they stay in memory. Contents that an earlier session of the `shared`
    /// weights has are those of that session, and are not counted.
    pub fn store(list: Vec<Weight>, shared: Option<&SharedWeights>) -> Weights {
        let Some(shared) = shared else { return Weights::store_new(list) };
        let (mut known, mut new, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for weight in list {
            let key = WeightKey::of(&weight.content);
            match shared.find(&key) {
                Some(content) => known.push(Weight { content, ..weight }),
                None => {
                    new.push(weight);
                    keys.push(key);
                }
            }
        }
        let mut weights = Weights::store_new(new);
        weights.new = keys.into_iter().zip(weights.list.iter().map(|weight| weight.content.clone())).collect();
        weights.new_files = weights.files.len();
        weights.files.extend(shared.files());
        weights.list.extend(known);
        weights
    }

    /// Lets later sessions use the contents, once there is a session that holds them.
    pub fn share(&mut self, shared: &SharedWeights) {
        self.new.drain(..).for_each(|(key, content)| shared.keep(key, content));
        self.files.iter().take(self.new_files).for_each(|file| shared.keep_file(file.clone()));
        self.new_files = 0;
    }

    fn store_new(list: Vec<Weight>) -> Weights {
        let size = |weight: &Weight| weight.content.bytes().len() as u64;
        let all: u64 = list.iter().map(size).sum();
        let packed: u64 = list.iter().filter(|weight| is_packed(weight)).map(size).sum();
        let mut weights =
            Weights { list, packed, unpacked: all - packed, files: Vec::new(), new: Vec::new(), new_files: 0 };
        let mut in_memory = Vec::new();
        for weight in &mut weights.list {
            match StoredFile::of(weight.content.bytes()) {
                Some(file) if weights.files.contains(&file) => {}
                Some(file) => weights.files.push(file),
                None => in_memory.push(weight),
            }
        }
        if in_memory.iter().map(|weight| size(weight)).sum::<u64>() >= MIN_BYTES
            && let Ok((file, contents)) = write(&in_memory)
        {
            weights.files.push(file);
            for (weight, content) in in_memory.into_iter().zip(contents) {
                weight.content = content;
            }
        }
        weights
    }

    /// Whether there is a table whose copy would take much.
    pub fn has_large_table(&self) -> bool {
        self.list.iter().any(|weight| is_table(weight) && weight.content.bytes().len() as u64 >= MIN_BYTES)
    }

    /// Gives the pages back to the system. Call it when the session has packed what it packs.
    pub fn release(&self) {
        self.files.iter().for_each(StoredFile::release);
    }
}

/// Whether ONNX Runtime packs it, and reads nothing else of it.
fn is_packed(weight: &Weight) -> bool {
    weight.readers.iter().all(|kind| PACKING.contains(&kind.as_str()))
}

/// Whether it is a table that is only read by index, as embeddings are.
pub(super) fn is_table(weight: &Weight) -> bool {
    weight.readers.iter().all(|kind| LOOKUPS.contains(&kind.as_str()))
}

/// Whether sessions can share it: it is not changed, and every kernel that packs it can share what it packs.
pub(super) fn is_shareable(weight: &Weight) -> bool {
    let is_known = |kind: &String| PACKING.iter().chain(&LOOKUPS).any(|known| known == kind);
    weight.readers.iter().all(is_known)
}

/// Writes the contents to a file, and returns them as parts of its mapping.
fn write(list: &[&mut Weight]) -> io::Result<(StoredFile, Vec<TensorData>)> {
    let (file, stored) = StoredFile::write(list.iter().map(|weight| weight.content.bytes().as_ref()))?;
    let content = |(weight, bytes): (&&mut Weight, _)| {
        let data = &weight.content;
        TensorData::new(data.dtype(), data.shape(), bytes).map_err(io::Error::other)
    };
    let contents = list.iter().zip(stored).map(content).collect::<io::Result<_>>()?;
    Ok((file, contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn contents_survive_in_a_file_and_after_their_release() {
        let weight = |fill: u8, bytes: usize, reader: &str| Weight {
            name: reader.to_string(),
            content: TensorData::new(DType::U8, [bytes as u64], vec![fill; bytes]).unwrap(),
            readers: vec![reader.to_string()],
        };
        let weights =
            Weights::store(vec![weight(1, 1 << 20, "Conv"), weight(2, 100, "Gather"), weight(3, 77, "Gemm")], None);
        assert_eq!(weights.files.len(), 1);
        assert_eq!((weights.packed, weights.unpacked), ((1 << 20) + 77, 100));
        for _ in 0..2 {
            for (weight, fill) in weights.list.iter().zip(1..) {
                let bytes = weight.content.bytes();
                assert!((bytes.as_ptr() as u64).is_multiple_of(64) && bytes.iter().all(|byte| *byte == fill));
            }
            weights.release();
        }
        assert!(Weights::store(vec![weight(1, 10, "Conv")], None).files.is_empty());
    }

    #[test]
    fn sessions_that_share_weights_store_each_once() {
        // Needs ONNX Runtime, which packs what they share.
        if super::super::library::library(None).is_err() {
            return;
        }
        let weight = |name: &str, fill: u8| Weight {
            name: name.to_string(),
            content: TensorData::new(DType::U8, [1 << 20], vec![fill; 1 << 20]).unwrap(),
            readers: vec!["Gather".to_string()],
        };
        let shared = SharedWeights::new();
        let mut first = Weights::store(vec![weight("a", 1), weight("b", 2)], Some(&shared));
        assert_eq!(Weights::store(vec![weight("d", 2)], Some(&shared)).unpacked, 1 << 20, "no session has it yet");
        first.share(&shared);
        let second = Weights::store(vec![weight("c", 3), weight("d", 2)], Some(&shared));
        assert_eq!((first.unpacked, second.unpacked), (2 << 20, 1 << 20));
        let content = |weights: &Weights, name: &str| {
            let found = weights.list.iter().find(|weight| weight.name == name);
            found.unwrap().content.bytes().as_ptr()
        };
        assert_eq!(content(&first, "b"), content(&second, "d"));
        assert_eq!((first.files.len(), second.files.len()), (1, 2), "all are released");
        assert!(second.list.iter().any(|weight| weight.name == "c" && weight.content.bytes()[0] == 3));
    }
}
