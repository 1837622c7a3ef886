//! Constants of graphs, whose contents follow the document that has the graphs: a document is text, which takes weights
//! several times their size, and has a limit. Large ones are announced by their hashes, and the agent asks for those that it
//! does not hold from before: a model is profiled, planned and run with the same weights.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{
    chunks::{self, Assembler, DocumentBuffer},
    error::MessageError,
    frame::Frame,
};
use edgecut_graph::{ContentHash, Graph, Origin, TensorData, TensorId, TensorType, units::Bytes};

/// Constants of at least this many bytes are streamed: a chunk costs about as much as this many bytes of JSON.
const MIN_STREAMED: usize = 1 << 10;

/// Constants of at least this many bytes have a hash: to send fewer takes no longer than to ask for them.
const MIN_HASHED: usize = 64 << 10;

/// A constant whose content follows the document, once for all places that have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamedConstant {
    pub ty: TensorType,
    /// The graph, in the order of the document, and the tensor in it.
    pub places: Vec<(u32, TensorId)>,
    /// Where the agent is asked first whether it holds the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<ContentHash>,
}

/// The constants that an agent holds for its client.
pub trait HeldConstants: fmt::Debug + Send {
    /// The content with this hash.
    fn get(&self, hash: ContentHash) -> Option<bytes::Bytes>;

    /// Holds a content that has this hash, as far as there is room. Returns it, where it is from now on.
    fn keep(&mut self, hash: ContentHash, content: &bytes::Bytes) -> bytes::Bytes;
}

/// Holds nothing.
#[derive(Debug)]
pub struct NothingHeld;

impl HeldConstants for NothingHeld {
    fn get(&self, _: ContentHash) -> Option<bytes::Bytes> {
        None
    }

    fn keep(&mut self, _: ContentHash, content: &bytes::Bytes) -> bytes::Bytes {
        content.clone()
    }
}

/// Takes the contents of large constants out of `graphs`, where they become parameters.
pub(super) fn detach<'g>(graphs: impl Iterator<Item = &'g mut Graph>) -> (Vec<StreamedConstant>, Vec<TensorData>) {
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
                let hash = (data.bytes().len() >= MIN_HASHED).then(|| data.content_hash());
                announced.push(StreamedConstant { ty: tensor.ty.clone(), places: Vec::new(), hash });
                contents.push(data.clone());
                contents.len() - 1
            });
            announced[index].places.push((number, id));
            tensor.origin = Origin::Parameter;
        }
    }
    (announced, contents)
}

/// The messages of a request whose graphs have constants.
pub struct Messages<H> {
    /// The announcement of constants, and the document.
    pub head: Box<dyn Iterator<Item = Frame<H>> + Send>,
    /// Whether the agent says then which constants it wants.
    pub is_answered: bool,
    /// By their numbers in the announcement.
    contents: Box<dyn Iterator<Item = (u32, TensorData)> + Send>,
    /// The header of a chunk of a content.
    content: fn(u32) -> H,
    /// What follows the constants.
    tail: Box<dyn Iterator<Item = Frame<H>> + Send>,
}

/// The headers of constants: of a chunk of the announcement, by whether it is the last, and of one of a content, by its
/// number.
pub(super) struct ConstantHeaders<H> {
    pub announcement: fn(bool) -> H,
    pub content: fn(u32) -> H,
}

impl<H: Clone + Send + 'static> Messages<H> {
    /// Those that announce constants, `document` and the contents, then `tail`.
    ///
    /// # Errors
    /// If the announcement cannot be written as JSON.
    pub(super) fn new(
        (announced, contents): (Vec<StreamedConstant>, Vec<TensorData>),
        ConstantHeaders { announcement, content }: ConstantHeaders<H>,
        document: impl Iterator<Item = Frame<H>> + Send + 'static,
        tail: impl Iterator<Item = Frame<H>> + Send + 'static,
    ) -> Result<Self, serde_json::Error> {
        // Without constants, there is no announcement.
        let json = if announced.is_empty() { None } else { Some(serde_json::to_vec(&announced)?) };
        let announcement = json.into_iter().flat_map(move |json| chunks::document(json, announcement));
        Ok(Messages {
            head: Box::new(announcement.chain(document)),
            is_answered: announced.iter().any(|constant| constant.hash.is_some()),
            contents: Box::new((0u32..).zip(contents)),
            content,
            tail: Box::new(tail),
        })
    }

    /// The messages after the head, for an agent that wants these constants; all of them if it was not asked.
    pub fn rest(self, wanted: Option<Vec<u32>>) -> impl Iterator<Item = Frame<H>> + Send {
        let wanted: Option<HashSet<u32>> = wanted.map(HashSet::from_iter);
        let sent = self.contents.filter(move |(number, _)| wanted.as_ref().is_none_or(|list| list.contains(number)));
        sent.flat_map(move |(number, data)| chunks::tensor((self.content)(number), &data)).chain(self.tail)
    }

    /// All messages, for an agent that holds nothing.
    pub fn all(mut self) -> impl Iterator<Item = Frame<H>> + Send {
        let head = std::mem::replace(&mut self.head, Box::new(std::iter::empty()));
        head.chain(self.rest(None))
    }
}

/// Reads announced constants, and puts them back into their graphs.
#[derive(Debug)]
pub(super) struct ConstantReader {
    document: DocumentBuffer,
    announced: Vec<StreamedConstant>,
    tensors: Assembler<u32>,
    /// Of the chunks so far of constants with a hash.
    hashers: HashMap<u32, blake3::Hasher>,
    held: Box<dyn HeldConstants>,
    /// By constant.
    is_complete: Vec<bool>,
    left: usize,
}

impl ConstantReader {
    /// For an announcement of at most `limit` as JSON, of constants that may be among those `held`.
    pub(super) fn new(limit: Bytes, held: Box<dyn HeldConstants>) -> ConstantReader {
        let (tensors, hashers) = Default::default();
        let (announced, is_complete) = Default::default();
        let document = DocumentBuffer::new(limit);
        ConstantReader { document, announced, tensors, hashers, held, is_complete, left: 0 }
    }

    /// Whether all announced constants are in their graphs.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Reads the next chunk of the announcement.
    ///
    /// # Errors
    /// If it is too large, or not valid.
    pub(super) fn announce(&mut self, piece: &bytes::Bytes, last: bool) -> Result<(), MessageError> {
        if let Some(json) = self.document.push(piece, last)? {
            let announced = serde_json::from_slice(&json);
            self.announced =
                announced.map_err(|e| MessageError::Malformed(format!("invalid announcement of constants: {e}")))?;
            self.is_complete = vec![false; self.announced.len()];
            self.left = self.announced.len();
        }
        Ok(())
    }

    /// Puts those that are held into `graphs`, the document's, and returns the numbers of the others; `None` if no constant
    /// has a hash, since then the client does not wait for an answer.
    ///
    /// # Errors
    /// If a constant has no place in the graphs.
    pub(super) fn request(&mut self, graphs: &mut [&mut Graph]) -> Result<Option<Vec<u32>>, MessageError> {
        if self.announced.iter().all(|constant| constant.hash.is_none()) {
            return Ok(None);
        }
        let mut wanted = Vec::new();
        for number in 0..self.announced.len() {
            let StreamedConstant { ty, hash, .. } = &self.announced[number];
            let content = hash.and_then(|hash| self.held.get(hash)).zip(ty.shape.fixed());
            // A content of another size has another hash, unless the client says what is not so.
            match content.and_then(|(content, shape)| TensorData::new(ty.dtype, shape.to_vec(), content).ok()) {
                Some(data) => self.complete(number, &data, graphs)?,
                None => wanted.push(number as u32),
            }
        }
        Ok(Some(wanted))
    }

    /// Reads the next chunk of constant `number`; a complete one is put into `graphs`, the document's.
    ///
    /// # Errors
    /// If the chunk is of no announced constant, or the constant has another hash or no place in the graphs.
    pub(super) fn read(
        &mut self,
        number: u32,
        piece: &bytes::Bytes,
        graphs: &mut [&mut Graph],
    ) -> Result<(), MessageError> {
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let index = number as usize;
        let constant = self.announced.get(index);
        let constant = constant.ok_or_else(|| wrong("a constant that the document does not announce"))?;
        if self.is_complete[index] {
            return Err(wrong("a constant that is complete"));
        }
        if constant.hash.is_some() {
            self.hashers.entry(number).or_default().update(piece);
        }
        let Some(mut data) = self.tensors.push(number, &constant.ty, piece)?.complete() else { return Ok(()) };
        let hash = constant.hash;
        if let (Some(hash), Some(hasher)) = (hash, self.hashers.remove(&number)) {
            if ContentHash::from(hasher.finalize()) != hash {
                return Err(wrong("a constant with another content than its hash says"));
            }
            let held = self.held.keep(hash, data.bytes());
            data = TensorData::new(data.dtype(), data.shape(), held).map_err(|error| wrong(&error.to_string()))?;
        }
        self.complete(index, &data, graphs)
    }

    /// Puts constant `number` into its graphs.
    fn complete(&mut self, number: usize, data: &TensorData, graphs: &mut [&mut Graph]) -> Result<(), MessageError> {
        let wrong = |what: &str| MessageError::Malformed(what.to_string());
        let constant = &self.announced[number];
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
        self.is_complete[number] = true;
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    /// Holds everything.
    #[derive(Debug, Default)]
    struct AllHeld(HashMap<ContentHash, bytes::Bytes>);

    impl HeldConstants for AllHeld {
        fn get(&self, hash: ContentHash) -> Option<bytes::Bytes> {
            self.0.get(&hash).cloned()
        }

        fn keep(&mut self, hash: ContentHash, content: &bytes::Bytes) -> bytes::Bytes {
            self.0.insert(hash, content.clone());
            content.clone()
        }
    }

    fn constant(bytes: usize) -> TensorData {
        TensorData::new(DType::U8, [bytes as u64], vec![7; bytes]).unwrap()
    }

    fn reader(announced: &[StreamedConstant], held: impl HeldConstants + 'static) -> ConstantReader {
        let mut reader = ConstantReader::new(Bytes(1 << 20), Box::new(held));
        let pieces = chunks::document(serde_json::to_vec(announced).unwrap(), |last| last);
        pieces.for_each(|piece| reader.announce(&piece.payload, piece.header).unwrap());
        reader
    }

    /// Two equal graphs of three constants, two of which are one of `size` bytes, and that one.
    fn graphs(size: usize) -> ([Graph; 2], TensorData) {
        let (large, small) = (constant(size), constant(8));
        let mut graph = Graph::new();
        for data in [&large, &small, &large] {
            graph.add_tensor("w", data.ty(), Origin::Constant(data.clone()));
        }
        ([graph.clone(), graph], large)
    }

    #[test]
    fn large_constants_are_sent_once_and_come_back() {
        let (whole, large) = graphs(MIN_HASHED - 1);
        let mut detached = whole.clone();
        let (announced, contents) = detach(detached.iter_mut());
        assert_eq!(contents, [large]);
        let places = [(0, TensorId(0)), (0, TensorId(2)), (1, TensorId(0)), (1, TensorId(2))];
        assert_eq!(announced[0].places, places);
        let mut reader = reader(&announced, NothingHeld);
        assert_eq!(reader.request(&mut []).unwrap(), None, "the client does not ask");
        for half in [0..MIN_HASHED / 2, MIN_HASHED / 2..MIN_HASHED - 1] {
            assert!(!reader.is_complete());
            let mut graphs: Vec<&mut Graph> = detached.iter_mut().collect();
            reader.read(0, &contents[0].bytes().slice(half), &mut graphs).unwrap();
        }
        assert!(reader.is_complete());
        assert_eq!(detached, whole);
    }

    #[test]
    fn constants_that_are_held_are_not_sent_again() {
        let (whole, large) = graphs(3 << 20);
        let mut detached = whole.clone();
        let detached_constants = detach(detached.iter_mut());
        let announced = detached_constants.0.clone();
        assert_eq!(announced[0].hash, Some(large.content_hash()));
        let held = AllHeld([(large.content_hash(), large.bytes().clone())].into());
        for (held, wanted) in [(AllHeld::default(), vec![0]), (held, vec![])] {
            let mut graphs = detached.clone();
            let mut graphs: Vec<&mut Graph> = graphs.iter_mut().collect();
            let mut reader = reader(&announced, held);
            assert_eq!(reader.request(&mut graphs).unwrap(), Some(wanted.clone()));
            let headers = ConstantHeaders { announcement: |_| unreachable!(), content: |number| number };
            let none = || std::iter::empty();
            let messages = Messages::new(detached_constants.clone(), headers, none(), none()).unwrap();
            assert!(messages.is_answered);
            for piece in messages.rest(Some(wanted)) {
                reader.read(piece.header, &piece.payload, &mut graphs).unwrap();
            }
            assert!(reader.is_complete() && graphs.into_iter().map(|graph| &*graph).eq(&whole));
            let again = reader.read(0, large.bytes(), &mut []);
            assert!(again.unwrap_err().to_string().contains("complete"));
        }
    }

    #[test]
    fn constants_without_a_place_or_with_another_hash_are_refused() {
        let mut graph = Graph::new();
        let data = constant(2048);
        graph.add_tensor("w", data.ty(), Origin::Parameter);
        graph.add_tensor("x", data.ty(), Origin::Input);
        let place = |graph, tensor| vec![(graph, TensorId(tensor))];
        let other = constant(2047).content_hash();
        for (places, number, hash) in [
            (place(0, 0), 1, None),
            (place(1, 0), 0, None),
            (place(0, 2), 0, None),
            (place(0, 1), 0, None),
            (place(0, 0), 0, Some(other)),
        ] {
            let mut reader = reader(&[StreamedConstant { ty: data.ty(), places, hash }], AllHeld::default());
            assert!(reader.read(number, data.bytes(), &mut [&mut graph.clone()]).is_err());
            assert!(hash.is_none_or(|hash| reader.held.get(hash).is_none()));
        }
    }
}
