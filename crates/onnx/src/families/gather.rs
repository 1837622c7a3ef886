//! Reading elements by indices.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Gather", gather), ("GatherElements", elements), ("GatherND", by_tuples)];

/// Negative indices count from the end of the axis.
pub(super) fn from_the_front(call: &mut Call<'_, '_>, at: TensorId, size: u64) -> Result<TensorId> {
    if let Some(known) = call.lowering.known(at).and_then(|data| data.to_i64s())
        && known.iter().all(|index| *index >= 0)
    {
        return Ok(at);
    }
    let (zero, shifted) = (call.like(0.0, at)?, call.with("add", at, size as f64)?);
    let is_negative = call.map("less", &[at, zero])?;
    call.map("where", &[is_negative, shifted, at])
}

fn gather(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", 0), x)?;
    let size = call.dims(x)?[axis];
    let at = from_the_front(call, at, size)?;
    one(call.op("take", &[x, at], vec![("axis", Attr::Int(axis as i64))])?)
}

fn elements(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", 0), x)?;
    let size = call.dims(x)?[axis];
    let at = from_the_front(call, at, size)?;
    one(call.op("gather", &[x, at], vec![("axis", Attr::Int(axis as i64))])?)
}

/// The graph's operator has the axis of the tuples first.
fn by_tuples(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let (batch, rank) = (call.int("batch_dims", 0), call.rank(at));
    let dims = call.dims(x)?;
    let length = call.dims(at)?.last().copied().ok_or("the indices are a scalar")? as usize;
    let first = usize::try_from(batch).map_err(|_| "batch_dims is negative".to_string())?;
    let sizes: Vec<i64> =
        dims.get(first..first + length).ok_or("tuples longer than the rank")?.iter().map(|n| *n as i64).collect();
    let at = call.cast(at, DType::I64)?;
    let (zero, sizes) = (call.like(0.0, at)?, call.vector(&sizes)?);
    let (is_negative, shifted) = (call.map("less", &[at, zero])?, call.map("add", &[at, sizes])?);
    let at = call.map("where", &[is_negative, shifted, at])?;
    let order: Vec<usize> = [rank - 1].into_iter().chain(0..rank - 1).collect();
    let at = call.transpose(at, &order)?;
    let attrs = vec![("batch_dims", Attr::Int(batch)), ("index_rank", Attr::Int(length as i64))];
    one(call.op("gather_nd", &[x, at], attrs)?)
}
