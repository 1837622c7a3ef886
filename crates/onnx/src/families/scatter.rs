//! Writing elements by indices.

use edgecut_graph::Attr;

use crate::{
    compose::{one, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] =
    &[("Scatter", elements), ("ScatterElements", elements), ("ScatterND", by_tuples)];

fn reduction(call: &Call<'_, '_>) -> Result<&'static str> {
    Ok(match call.text("reduction", "none") {
        "none" => "update",
        "add" => "add",
        "mul" => "mul",
        "max" => "max",
        "min" => "min",
        other => return Err(format!("reduction `{other}` is not supported")),
    })
}

fn elements(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at, updates) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let axis = call.axis(call.int("axis", 0), x)?;
    let attrs = vec![("axis", Attr::Int(axis as i64)), ("reduction", text(reduction(call)?))];
    one(call.op("scatter_elements", &[x, at, updates], attrs)?)
}

/// The graph's operator has the axis of the tuples first.
fn by_tuples(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at, updates) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let rank = call.rank(at);
    let order: Vec<usize> = [rank.saturating_sub(1)].into_iter().chain(0..rank.saturating_sub(1)).collect();
    let at = call.transpose(at, &order)?;
    one(call.op("scatter_nd", &[x, at, updates], vec![("mode", text(reduction(call)?))])?)
}
