//! Optional inputs that an operator omits: which input of its schema each argument is.

use edgecut_graph::{Attr, Attrs};

/// The attribute of an opaque or composite operator that lists the indices of the optional inputs that are omitted.
pub const OMITTED_INPUTS: &str = "onnx.omitted";

/// By argument of `count`: the index of its input in the operator's schema.
pub(crate) fn present_inputs(attrs: &Attrs, count: usize) -> Vec<i64> {
    let omitted: Vec<i64> = match attrs.get(OMITTED_INPUTS) {
        Some(Attr::List(list)) => list.iter().filter_map(Attr::int).collect(),
        _ => Vec::new(),
    };
    let all = 0..(count + omitted.len()) as i64;
    all.filter(|index| !omitted.contains(index)).take(count).collect()
}
