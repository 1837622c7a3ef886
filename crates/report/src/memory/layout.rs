//! The data of memory figures: buffers as rectangles over steps and addresses.

use edgecut_graph::{
    Graph, OperatorId, Origin, TensorId,
    units::{Bytes, Micros},
};
use edgecut_memory::{Placement, bound};

use crate::class::class;

/// An arena with the steps that use it.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    pub title: String,
    pub steps: Vec<LayoutStep>,
    pub blocks: Vec<Block>,
    /// The size of the arena.
    pub height: Bytes,
    /// Lower bound on the size of any arena.
    pub bound: Bytes,
    /// The memory of the device, if known.
    pub capacity: Option<Bytes>,
    /// Stored outside the arena.
    pub parameters: Bytes,
    /// Live bytes from a step until the next entry.
    pub loads: Vec<bound::Load>,
}

/// The execution of one operator.
#[derive(Debug, Clone, PartialEq)]
pub struct LayoutStep {
    pub name: String,
    pub time: Micros,
}

/// A buffer: a range of addresses over a range of steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub name: String,
    pub kind: BlockKind,
    /// The class of the operator that makes its largest tensor; `None` for inputs and workspaces.
    pub class: Option<usize>,
    /// The tensors that it holds over time, with types and producers.
    pub detail: String,
    /// Its lifetime `lower..upper` in steps.
    pub lower: u64,
    pub upper: u64,
    pub offset: Bytes,
    pub size: Bytes,
}

/// The contents of a block, which determine its border; inputs and workspaces have colours of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    Input,
    Activation,
    /// Several tensors in the same storage: views, in-place results, elided concatenations.
    InPlace,
    Output,
    Workspace,
}

impl BlockKind {
    pub const ALL: [BlockKind; 5] =
        [BlockKind::Input, BlockKind::Activation, BlockKind::InPlace, BlockKind::Output, BlockKind::Workspace];

    /// Its name, which is also its CSS class.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Input => "input",
            BlockKind::Activation => "activation",
            BlockKind::InPlace => "in-place",
            BlockKind::Output => "output",
            BlockKind::Workspace => "workspace",
        }
    }
}

impl Layout {
    /// The layout of a graph with a placed arena.
    pub fn new(title: &str, graph: &Graph, placed: &Placement, time: &dyn Fn(OperatorId) -> Micros) -> Layout {
        let step = |&id: &OperatorId| LayoutStep { name: graph.operator(id).name.to_string(), time: time(id) };
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
            // The first of the largest tensors names the block.
            let size = |tensor: TensorId| graph.tensor(tensor).ty.bytes();
            let largest = held.iter().copied().reduce(|a, b| if size(b) > size(a) { b } else { a });
            let (name, kind) = match (largest, workspace) {
                (Some(largest), _) => (graph.tensor(largest).name.to_string(), kind(graph, held)),
                (None, Some(id)) => (format!("workspace of {}", graph.operator(id).name), BlockKind::Workspace),
                (None, None) => continue,
            };
            let place = |tensor: TensorId| placed.lifetimes.offset[tensor.0 as usize];
            let detail: Vec<String> =
                held.iter().map(|&tensor| describe(graph, tensor, place(tensor), buffer.size)).collect();
            let producer = largest.and_then(|tensor| graph.producer(tensor));
            blocks.push(Block {
                name,
                kind,
                class: producer.map(|id| class(&graph.operator(id).name)),
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

    /// The first step of the peak load, and that load.
    pub fn peak(&self) -> bound::Load {
        let none = bound::Load { from: 0, bytes: Bytes::ZERO };
        self.loads.iter().rev().copied().max_by_key(|load| load.bytes).unwrap_or(none)
    }

    /// The live blocks at a step, largest first.
    pub fn live(&self, step: u64) -> Vec<&Block> {
        let mut alive: Vec<&Block> = self.blocks.iter().filter(|b| b.lower <= step && step < b.upper).collect();
        alive.sort_by_key(|block| std::cmp::Reverse((block.size, block.offset)));
        alive
    }

    /// One past the last step, where results are returned.
    pub fn end(&self) -> u64 {
        self.blocks.iter().map(|b| b.upper).max().unwrap_or(0).max(self.steps.len() as u64).max(1)
    }
}

fn kind(graph: &Graph, held: &[TensorId]) -> BlockKind {
    let is_output = held.iter().any(|tensor| graph.outputs.contains(tensor));
    let mut producers: Vec<_> = held.iter().map(|&tensor| graph.producer(tensor)).collect();
    producers.dedup();
    match (is_output, held.first().map(|&first| &graph.tensor(first).origin)) {
        (true, _) => BlockKind::Output,
        (_, Some(Origin::Input)) => BlockKind::Input,
        _ if producers.len() > 1 => BlockKind::InPlace,
        _ => BlockKind::Activation,
    }
}

/// One line about a tensor, with its address if it is a part of its block.
fn describe(graph: &Graph, id: TensorId, place: Bytes, block: Bytes) -> String {
    let tensor = graph.tensor(id);
    let producer = graph.producer(id).map_or("input".to_string(), |id| graph.operator(id).name.to_string());
    let is_part = tensor.ty.bytes().is_some_and(|bytes| bytes < block);
    let from = if is_part { format!(" from {place}") } else { String::new() };
    format!("{} {} by {producer}{from}", tensor.name, tensor.ty)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two buffers that overlap in the second of three steps.
    pub(crate) fn layout() -> Layout {
        let block = |name: &str, lower, upper, offset, size| Block {
            name: name.into(),
            kind: BlockKind::Activation,
            class: Some(class("nn.relu")),
            detail: String::new(),
            lower,
            upper,
            offset: Bytes(offset),
            size: Bytes(size),
        };
        let load = |from, bytes| bound::Load { from, bytes: Bytes(bytes) };
        Layout {
            title: "model".into(),
            steps: [1.0, 2.0, 4.0].map(|time| LayoutStep { name: "nn.relu".into(), time: Micros(time) }).to_vec(),
            blocks: vec![block("a", 0, 2, 0, 100), block("b", 1, 3, 100, 200)],
            height: Bytes(300),
            bound: Bytes(300),
            capacity: None,
            parameters: Bytes::ZERO,
            loads: vec![load(0, 100), load(1, 300), load(2, 200)],
        }
    }

    #[test]
    fn the_peak_and_its_live_blocks() {
        let layout = layout();
        assert_eq!((layout.peak().from, layout.peak().bytes, layout.end()), (1, Bytes(300), 3));
        let live = |step| layout.live(step).iter().map(|block| block.name.as_str()).collect::<Vec<_>>();
        assert_eq!([live(0), live(1), live(2)], [vec!["a"], vec!["b", "a"], vec!["b"]]);
    }
}
