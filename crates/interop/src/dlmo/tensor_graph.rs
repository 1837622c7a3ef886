//! The second form of a file: tensors and operators, without deallocations.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value as Json;

use super::record::{Datum, FREE, Record};

/// A program as tensors and operators.
#[derive(Deserialize)]
pub(super) struct TensorGraph {
    tensors: Vec<GraphTensor>,
    ops: Vec<GraphOperator>,
}

#[derive(Deserialize)]
struct GraphTensor {
    id: u64,
    size: u64,
    kind: String,
}

#[derive(Deserialize)]
struct GraphOperator {
    name: String,
    ins: Vec<u64>,
    outs: Vec<u64>,
    #[serde(default)]
    ws: u64,
    #[serde(default)]
    time_us: f64,
}

impl TensorGraph {
    /// Records, tensors and output ids of the program, with every activation freed after its last use.
    pub(super) fn records(&self) -> (Vec<Record>, Vec<Datum>, Vec<u64>) {
        let kinds: HashMap<u64, &str> = self.tensors.iter().map(|t| (t.id, t.kind.as_str())).collect();
        let mut last: HashMap<u64, usize> = HashMap::new();
        for (index, op) in self.ops.iter().enumerate() {
            last.extend(op.ins.iter().chain(&op.outs).map(|id| (*id, index)));
        }
        let none = || Json::Object(serde_json::Map::new());
        let mut code = Vec::new();
        for (index, op) in self.ops.iter().enumerate() {
            let (ins, outs) = (op.ins.clone(), op.outs.clone());
            let (workspace, time) = (op.ws, op.time_us);
            code.push(Record { name: op.name.clone(), attr: none(), ins, outs, workspace, time });
            let mut freed: Vec<u64> = op.ins.iter().chain(&op.outs).copied().collect();
            freed.retain(|id| last[id] == index && kinds.get(id) == Some(&"act"));
            freed.sort_unstable();
            freed.dedup();
            if !freed.is_empty() {
                let (name, ins) = (FREE.to_string(), Vec::new());
                code.push(Record { name, attr: none(), ins, outs: freed, workspace: 0, time: 0.0 });
            }
        }
        let data = self.tensors.iter().map(|t| Datum { id: t.id, size: t.size, rest: serde_json::Map::new() });
        let written: HashMap<u64, ()> = self.ops.iter().flat_map(|op| &op.outs).map(|id| (*id, ())).collect();
        let is_output = |t: &&GraphTensor| matches!(t.kind.as_str(), "grad" | "output") && written.contains_key(&t.id);
        let outputs = self.tensors.iter().filter(is_output).map(|t| t.id).collect();
        (code, data.collect(), outputs)
    }
}
