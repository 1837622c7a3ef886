//! Reading elements at computed places: take.

use tract_core::internal::*;
use tract_core::ops::array::Slice;

use super::kernel::Wiring;
use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use crate::graph::{Shape, TensorType, Type};

pub(super) const OPS: &[OpDef] = &[OpDef::new("take", &["data", "indices"], take_type)
    .attrs(
        "relay.attrs.TakeAttrs",
        &[
            AttrDef::new("batch_dims", AttrKind::OptionalInt, "0"),
            AttrDef::new("axis", AttrKind::OptionalInt, "None"),
            AttrDef::new("mode", AttrKind::Str, "\"clip\""),
        ],
    )
    .class(FusionClass::Injective)
    .wire(take)];

/// How take treats an index outside of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// The nearest element; also for `fast`, which promises that it does not happen.
    Clip,
    /// Modulo the length of the axis.
    Wrap,
}

impl Outside {
    fn of(call: &Call<'_>) -> Result<Outside, TypeError> {
        match call.text("mode", "clip")? {
            "clip" | "fast" => Ok(Outside::Clip),
            "wrap" => Ok(Outside::Wrap),
            other => Err(call.error(format!("mode is \"{other}\", expected clip, wrap or fast"))),
        }
    }

    /// `index` brought into an axis of `len` > 0.
    fn settle(self, index: i64, len: i64) -> i64 {
        match self {
            Outside::Clip => index.min(len - 1).max(0),
            Outside::Wrap => index.rem_euclid(len),
        }
    }
}

/// Axis and number of batch dimensions; no axis means that the data is flattened.
fn take_axes(call: &Call<'_>, data: &Shape, indices: &Shape) -> Result<Option<(usize, usize)>, TypeError> {
    let Some(axis) = call.optional_int("axis")? else { return Ok(None) };
    let axis = call.axis_in(axis, data)?;
    let batch = call.int("batch_dims", 0)?;
    let batch = if batch < 0 { batch + indices.rank() as i64 } else { batch };
    match usize::try_from(batch) {
        Ok(batch) if batch <= axis && batch <= indices.rank() => Ok(Some((axis, batch))),
        _ => Err(call.error(format!("batch_dims {batch} does not fit axis {axis} and indices of shape {indices}"))),
    }
}

fn take_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    Outside::of(call)?;
    if !indices.dtype.is_integer() {
        return Err(call.error(format!("indices are {}, expected integers", indices.dtype)));
    }
    let shape = match take_axes(call, &data.shape, &indices.shape)? {
        None => indices.shape.clone(),
        Some((axis, batch)) => {
            data.shape[..axis].iter().chain(&indices.shape[batch..]).chain(&data.shape[axis + 1..]).copied().collect()
        }
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

fn take(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    let known = wiring.known(inputs[1]).filter(|_| indices.shape.rank() == 0);
    if let (Some(index), Some((axis, 0))) = (known, take_axes(call, &data.shape, &indices.shape)?) {
        let len = data.shape[axis].get().filter(|n| *n > 0).context("the axis to take from is empty")?;
        let at = Outside::of(call)?.settle(index.cast_to_scalar::<i64>()?, len as i64) as usize;
        let one = wiring.one(Slice::new(axis, at, at + 1), &inputs[..1])?;
        return wiring.wire(AxisOp::Rm(axis), &[one]);
    }
    wiring.host(call, take_on_host, inputs)
}

/// Data is (batch, outer, axis, block), indices are (batch, n), the result is (batch, outer, n, block): blocks are
/// copied whole.
fn take_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
    let (data, indices) = (&inputs[0], inputs[1].cast_to::<i64>()?);
    let indices = indices.try_as_plain_ram()?;
    let indices = indices.as_slice::<i64>()?;
    let outside = Outside::of(call)?;
    let dims = data.shape();
    let product = |dims: &[usize]| dims.iter().product::<usize>();
    let (batch, outer, len, block) = match take_axes(call, &call.tensor(0)?.shape, &call.tensor(1)?.shape)? {
        Some((axis, b)) => (product(&dims[..b]), product(&dims[b..axis]), dims[axis], product(&dims[axis + 1..])),
        None => (1, 1, data.len(), 1),
    };
    let block = block * data.datum_type().size_of();
    let mut out = Tensor::zero_dt(data.datum_type(), &call.dims()?)?;
    if out.len() == 0 {
        return Ok(tvec!(out));
    }
    ensure!(len > 0, "the axis to take from is empty");
    let (from, per_batch) = (data.as_bytes(), indices.len() / batch);
    let mut to = out.as_bytes_mut().chunks_exact_mut(block);
    for b in 0..batch {
        for o in 0..outer {
            let rows = &from[(b * outer + o) * len * block..][..len * block];
            for (index, to) in indices[b * per_batch..][..per_batch].iter().zip(&mut to) {
                let at = outside.settle(*index, len as i64) as usize;
                to.copy_from_slice(&rows[at * block..][..block]);
            }
        }
    }
    Ok(tvec!(out))
}
