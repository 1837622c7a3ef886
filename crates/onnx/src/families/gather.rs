//! Reading elements by indices. Kernels count negative ones from the end and refuse those out of bounds.

use edgecut_graph::{Attr, DType};

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Gather", gather), ("GatherElements", elements), ("GatherND", by_tuples)];

fn gather(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", 0), x)?;
    one(call.op("take", &[x, at], vec![("axis", Attr::Int(axis as i64))])?)
}

fn elements(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let axis = call.axis(call.int("axis", 0), x)?;
    one(call.op("gather", &[x, at], vec![("axis", Attr::Int(axis as i64))])?)
}

/// The graph's operator has the axis of the tuples first.
fn by_tuples(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, at) = (call.input(0)?, call.input(1)?);
    let (batch, rank) = (call.int("batch_dims", 0), call.rank(at));
    let length = call.dims(at)?.last().copied().ok_or("the indices are a scalar")?;
    let at = call.cast(at, DType::I64)?;
    let order: Vec<usize> = [rank - 1].into_iter().chain(0..rank - 1).collect();
    let at = call.transpose(at, &order)?;
    let attrs = vec![("batch_dims", Attr::Int(batch)), ("index_rank", Attr::Int(length as i64))];
    one(call.op("gather_nd", &[x, at], attrs)?)
}
