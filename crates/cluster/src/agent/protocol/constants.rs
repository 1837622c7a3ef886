//! Constants of graphs, whose contents follow the document that has the graphs: a document is text, which takes weights
//! several times their size, and has a limit.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    chunks::{Assembler, DocumentBuffer, chunks, document},
    error::MessageError,
    wire,
};
use edgecut_graph::{Graph, Origin, TensorData, TensorId, TensorType, units::Bytes};

/// Constants of at least this many bytes are streamed: a chunk costs about as much as this many bytes of JSON.
const MIN_STREAMED: usize = 1 << 10;

/// Where the contents of constants are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstantTransport {
    /// In the document.
    Inline,
    /// After the document.
    Streamed,
}

impl ConstantTransport {
    /// What an agent of protocol version `protocol` reads.
    pub fn of(protocol: u32) -> ConstantTransport {
        if protocol < 8 { ConstantTransport::Inline } else { ConstantTransport::Streamed }
    }
}

/// A constant whose content follows the document, once for all places that have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamedConstant {
    pub ty: TensorType,
    /// The graph, in the order of the document, and the tensor in it.
    pub places: Vec<(u32, TensorId)>,
}

/// Takes the contents of large constants out of `graphs`, where they become parameters.
pub(super) fn detach<'g>(
    transport: ConstantTransport,
    graphs: impl Iterator<Item = &'g mut Graph>,
) -> (Vec<StreamedConstant>, Vec<TensorData>) {
    if transport == ConstantTransport::Inline {
        return Default::default();
    }
    let (mut announced, mut contents): (Vec<StreamedConstant>, Vec<TensorData>) = Default::default();
    // Graphs of one model share the memory of their constants.
    let mut known: HashMap<(*const u8, TensorType), usize> = HashMap::new();
    for (number, graph) in (0u32..).zip(graphs) {
        let ids: Vec<TensorId> = graph.tensors().map(|(id, _)| id).collect();
        for id in ids {
            let tensor = graph.tensor_mut(id);
            let Origin::Constant(data) = &tensor.origin else { continue };
            if data.bytes().len() < MIN_STREAMED || !data.is_of(&tensor.ty) {
                continue;
            }
            let index = *known.entry((data.bytes().as_ptr(), tensor.ty.clone())).or_insert_with(|| {
                announced.push(StreamedConstant { ty: tensor.ty.clone(), places: Vec::new() });
                contents.push(data.clone());
                contents.len() - 1
            });
            announced[index].places.push((number, id));
            tensor.origin = Origin::Parameter;
        }
    }
    (announced, contents)
}

/// The messages that announce constants, and those with their contents.
pub(super) fn messages<R>(
    announced: Vec<StreamedConstant>,
    contents: Vec<TensorData>,
    announcement: impl Fn(wire::Document) -> R,
    content: impl Fn(wire::TensorChunk) -> R,
) -> Result<(impl Iterator<Item = R>, impl Iterator<Item = R>), serde_json::Error> {
    // Documents without constants are as they were before constants were streamed.
    let json = if announced.is_empty() { None } else { Some(serde_json::to_vec(&announced)?) };
    let tensors = (0u32..).zip(contents);
    let chunks =
        tensors.flat_map(|(tensor, data)| chunks(data.bytes()).map(move |data| wire::TensorChunk { tensor, data }));
    Ok((json.into_iter().flat_map(document).map(announcement), chunks.map(content)))
}

/// Reads announced constants, and puts them back into their graphs.
#[derive(Debug)]
pub(super) struct ConstantReader {
    document: DocumentBuffer,
    announced: Vec<StreamedConstant>,
    tensors: Assembler<u32>,
    complete: usize,
}

impl ConstantReader {
    /// For an announcement of at most `limit` as JSON.
    pub(super) fn new(limit: Bytes) -> ConstantReader {
        let document = DocumentBuffer::new(limit);
        ConstantReader { document, announced: Vec::new(), tensors: Assembler::default(), complete: 0 }
    }

    /// Whether all announced constants are in their graphs.
    pub(super) fn is_complete(&self) -> bool {
        self.complete == self.announced.len()
    }

    /// Reads the next chunk of the announcement.
    ///
    /// # Errors
    /// If it is too large, or not valid.
    pub(super) fn announce(&mut self, piece: &wire::Document) -> Result<(), MessageError> {
        if let Some(json) = self.document.push(piece)? {
            let announced = serde_json::from_slice(&json);
            self.announced =
                announced.map_err(|e| MessageError::Malformed(format!("invalid announcement of constants: {e}")))?;
        }
        Ok(())
    }

    /// Reads the next chunk of a constant; a complete one is put into `graphs`, the document's.
    ///
    /// # Errors
    /// If the chunk is of no announced constant, or the constant has no place in the graphs.
    pub(super) fn read(&mut self, piece: &wire::TensorChunk, graphs: &mut [&mut Graph]) -> Result<(), MessageError> {
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let constant = self.announced.get(piece.tensor as usize);
        let constant = constant.ok_or_else(|| wrong("a constant that the document does not announce"))?;
        let Some(data) = self.tensors.push(piece.tensor, &constant.ty, &piece.data)?.complete() else { return Ok(()) };
        for (graph, id) in &constant.places {
            let graph = graphs.get_mut(*graph as usize).ok_or_else(|| wrong("a constant of an unknown graph"))?;
            if id.0 as usize >= graph.tensors().len() {
                return Err(wrong("a constant of an unknown tensor"));
            }
            let tensor = graph.tensor_mut(*id);
            if tensor.origin != Origin::Parameter || tensor.ty != constant.ty {
                return Err(wrong("a constant in the place of another tensor"));
            }
            tensor.origin = Origin::Constant(data.clone());
        }
        self.complete += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    fn constant(bytes: usize) -> TensorData {
        TensorData::new(DType::U8, [bytes as u64], vec![7; bytes]).unwrap()
    }

    fn reader(announced: &[StreamedConstant]) -> ConstantReader {
        let mut reader = ConstantReader::new(Bytes(1 << 20));
        document(serde_json::to_vec(announced).unwrap()).for_each(|piece| reader.announce(&piece).unwrap());
        reader
    }

    #[test]
    fn large_constants_are_sent_once_and_come_back() {
        let (large, small) = (constant(3 << 20), constant(8));
        let mut graph = Graph::new();
        for data in [&large, &small, &large] {
            graph.add_tensor("w", data.ty(), Origin::Constant(data.clone()));
        }
        let whole = [graph.clone(), graph];
        let mut detached = whole.clone();
        assert_eq!(detach(ConstantTransport::Inline, detached.iter_mut()).1, []);
        let (announced, contents) = detach(ConstantTransport::Streamed, detached.iter_mut());
        assert_eq!(contents, [large]);
        let places = [(0, TensorId(0)), (0, TensorId(2)), (1, TensorId(0)), (1, TensorId(2))];
        assert_eq!(announced[0].places, places);
        let mut reader = reader(&announced);
        for data in chunks(contents[0].bytes()) {
            assert!(!reader.is_complete());
            let mut graphs: Vec<&mut Graph> = detached.iter_mut().collect();
            reader.read(&wire::TensorChunk { tensor: 0, data }, &mut graphs).unwrap();
        }
        assert!(reader.is_complete());
        assert_eq!(detached, whole);
    }

    #[test]
    fn constants_without_a_place_are_refused() {
        let mut graph = Graph::new();
        let data = constant(2048);
        graph.add_tensor("w", data.ty(), Origin::Parameter);
        graph.add_tensor("x", data.ty(), Origin::Input);
        for (places, tensor) in [
            (vec![(0, TensorId(0))], 1),
            (vec![(1, TensorId(0))], 0),
            (vec![(0, TensorId(2))], 0),
            (vec![(0, TensorId(1))], 0),
        ] {
            let chunk = wire::TensorChunk { tensor, data: data.bytes().clone() };
            let mut reader = reader(&[StreamedConstant { ty: data.ty(), places }]);
            assert!(reader.read(&chunk, &mut [&mut graph.clone()]).is_err());
        }
    }
}
