//! What the figures show: buffers as rectangles over steps and addresses.

use crate::{
    graph::{Graph, OperatorId, Origin, TensorId},
    memory::{bound, place::Placed},
    units::{Bytes, Micros},
};

/// A placement, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub title: String,
    pub steps: Vec<Step>,
    pub blocks: Vec<Block>,
    /// Where the highest block ends.
    pub height: Bytes,
    /// No arena is smaller.
    pub bound: Bytes,
    /// What the device has, if that is known.
    pub capacity: Option<Bytes>,
    /// Held apart from the arena.
    pub parameters: Bytes,
    /// Bytes in use from each step on, until the next entry.
    pub loads: Vec<bound::Load>,
}

/// One operator that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    pub time: Micros,
}

/// Bytes that are taken for a while.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub name: String,
    pub kind: Kind,
    /// The tensors that lie in it one after the other, with types and makers.
    pub detail: String,
    /// Steps from its birth to before its death.
    pub lower: u64,
    pub upper: u64,
    pub offset: Bytes,
    pub size: Bytes,
}

/// What a block holds; its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Input,
    Activation,
    /// Several tensors in the same bytes: views, results written over operands, operands made where they are joined.
    InPlace,
    Output,
    Workspace,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Input, Kind::Activation, Kind::InPlace, Kind::Output, Kind::Workspace];

    /// As a word, which is also the name of its style.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::Activation => "activation",
            Kind::InPlace => "in-place",
            Kind::Output => "output",
            Kind::Workspace => "workspace",
        }
    }
}

impl Layout {
    /// The layout of a placed graph.
    pub fn new(title: &str, graph: &Graph, placed: &Placed, time: &dyn Fn(OperatorId) -> Micros) -> Layout {
        let step = |&id: &OperatorId| Step { name: graph.operator(id).name.to_string(), time: time(id) };
        let mut tensors: Vec<Vec<TensorId>> = vec![Vec::new(); placed.lifetimes.buffers.len()];
        for (id, _) in graph.tensors() {
            if let Some(storage) = placed.lifetimes.storage[id.0 as usize] {
                tensors[storage].push(id);
            }
        }
        let mut blocks = Vec::new();
        for (index, buffer) in placed.lifetimes.buffers.iter().enumerate() {
            let held = &tensors[index];
            let workspace = placed.lifetimes.workspace.iter().find(|w| w.1 == index).map(|w| w.0);
            // The first of the largest: what others lie in.
            let size = |tensor: TensorId| graph.tensor(tensor).ty.bytes();
            let largest = held.iter().copied().reduce(|a, b| if size(b) > size(a) { b } else { a });
            let (name, kind) = match (largest, workspace) {
                (Some(largest), _) => (graph.tensor(largest).name.to_string(), kind(graph, held)),
                (None, Some(id)) => (format!("workspace of {}", graph.operator(id).name), Kind::Workspace),
                (None, None) => continue,
            };
            let place = |tensor: TensorId| placed.lifetimes.place[tensor.0 as usize];
            let detail: Vec<String> =
                held.iter().map(|&tensor| describe(graph, tensor, place(tensor), buffer.size)).collect();
            blocks.push(Block {
                name,
                kind,
                detail: detail.join("\n"),
                lower: buffer.lower,
                upper: buffer.upper,
                offset: placed.packing.offsets[index],
                size: buffer.size,
            });
        }
        Layout {
            title: title.to_string(),
            steps: placed.order.iter().map(step).collect(),
            blocks,
            height: placed.packing.height,
            bound: placed.packing.bound,
            capacity: None,
            parameters: graph.parameters().filter_map(|t| graph.tensor(t).ty.bytes()).sum(),
            loads: placed.loads(),
        }
    }

    /// The fullest step and what is in use there.
    pub fn peak(&self) -> bound::Load {
        let none = bound::Load { from: 0, bytes: Bytes::ZERO };
        self.loads.iter().rev().copied().max_by_key(|load| load.bytes).unwrap_or(none)
    }

    /// What lives at a step, the largest first.
    pub fn alive(&self, step: u64) -> Vec<&Block> {
        let mut alive: Vec<&Block> = self.blocks.iter().filter(|b| b.lower <= step && step < b.upper).collect();
        alive.sort_by_key(|block| std::cmp::Reverse((block.size, block.offset)));
        alive
    }

    /// One past the last step, results being handed out there.
    pub fn end(&self) -> u64 {
        self.blocks.iter().map(|b| b.upper).max().unwrap_or(0).max(self.steps.len() as u64).max(1)
    }
}

fn kind(graph: &Graph, held: &[TensorId]) -> Kind {
    let is_output = held.iter().any(|tensor| graph.outputs.contains(tensor));
    let mut makers: Vec<_> = held.iter().map(|&tensor| graph.producer(tensor)).collect();
    makers.dedup();
    match (is_output, held.first().map(|&first| &graph.tensor(first).origin)) {
        (true, _) => Kind::Output,
        (_, Some(Origin::Input)) => Kind::Input,
        _ if makers.len() > 1 => Kind::InPlace,
        _ => Kind::Activation,
    }
}

/// A tensor in a line; where it begins if it lies in a part of its block.
fn describe(graph: &Graph, id: TensorId, place: Bytes, block: Bytes) -> String {
    let tensor = graph.tensor(id);
    let maker = graph.producer(id).map_or("input".to_string(), |id| graph.operator(id).name.to_string());
    let is_part = tensor.ty.bytes().is_some_and(|bytes| bytes < block);
    let from = if is_part { format!(" from {place}") } else { String::new() };
    format!("{} {} by {maker}{from}", tensor.name, tensor.ty)
}
