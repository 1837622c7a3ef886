//! Aidge's `memory_info.txt`: for each operator in order, the address ranges and lifetimes of its results.

use std::fmt::Write;

use edgecut_graph::{Graph, OperatorId};
use edgecut_memory::{Lifetimes, Packing};

/// The text for operators that run in `order`; `name` is what an operator is called in the file.
pub fn memory_info(
    graph: &Graph,
    order: &[OperatorId],
    lifetimes: &Lifetimes,
    packing: &Packing,
    name: &dyn Fn(OperatorId) -> String,
) -> String {
    let mut text = String::new();
    let steps = order.len() as u64;
    for (step, &id) in (0u64..).zip(order) {
        let _ = writeln!(text, "{}:", name(id));
        for (index, output) in graph.operator(id).outputs.iter().enumerate() {
            let Some(storage) = lifetimes.storage[output.0 as usize] else { continue };
            let buffer = &lifetimes.buffers[storage];
            let size = graph.tensor(*output).ty.bytes().unwrap_or(buffer.size).0;
            let from = packing.offsets[storage].0 + lifetimes.offset[output.0 as usize].0;
            let to = from + size;
            let _ = write!(text, "  {index} {from} (0x{from:08X}U) -> {to} (0x{to:08X}U) [{size}] @ {step}");
            // What is handed out at the end is never released.
            if buffer.upper <= steps && !graph.outputs.contains(output) {
                let _ = write!(text, " to {}", buffer.upper - 1);
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}
