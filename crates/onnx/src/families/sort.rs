//! Sorting.

use edgecut_graph::{Arg, Attr};

use crate::{
    compose::{many, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("TopK", top)];

fn top(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let k = match call.optional_int("k") {
        Some(k) => k,
        None => call.content_ints(1, "k")?.and_then(|k| k.first().copied()).ok_or("k is missing")?,
    };
    let attrs = vec![
        ("k", Attr::Int(k)),
        ("axis", Attr::Int(call.axis(call.int("axis", -1), x)? as i64)),
        ("ret_type", text("both")),
        ("is_ascend", Attr::Bool(call.int("largest", 1) == 0)),
        ("dtype", text("int64")),
    ];
    let found = call.lowering.add("topk", vec![Arg::Tensor(x)], attrs)?;
    if k > 0 {
        return many(found);
    }
    // None, where the graph's operator takes all.
    let axis = call.axis(call.int("axis", -1), x)?;
    let none = found.into_iter().map(|all| call.slice(all, axis, 0, 0)).collect::<Result<Vec<_>>>()?;
    many(none)
}
