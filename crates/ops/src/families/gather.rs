//! Reads at computed indices: `take`, `gather`, `gather_nd`, `adv_index`.

use crate::split::SplitAxis;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("take", &["data", "indices"], take_type)
        .attrs(
            "relay.attrs.TakeAttrs",
            &[
                AttrDef::new("batch_dims", AttrKind::OptionalInt, "0"),
                AttrDef::new("axis", AttrKind::OptionalInt, "None"),
                AttrDef::new("mode", AttrKind::Str, "\"clip\""),
            ],
        )
        .class(FusionClass::Injective)
        .split(taken_axes)
        .onnx()
        .wire(kernel!(take))
        .recipe(kernel!(|call| take_dims(call).ok().map(Recipe::Take))),
    OpDef::new("gather", &["data", "indices"], gather_type)
        .attrs("relay.attrs.GatherAttrs", &[AttrDef::new("axis", AttrKind::OptionalInt, "None")])
        .class(FusionClass::Injective)
        .split(gathered_axes)
        .host(kernel!(gather)),
    OpDef::new("gather_nd", &["data", "indices"], gather_nd_type)
        .attrs(
            "relay.attrs.GatherNDAttrs",
            &[
                AttrDef::new("batch_dims", AttrKind::OptionalInt, "0"),
                AttrDef::new("index_rank", AttrKind::OptionalInt, "None"),
            ],
        )
        .class(FusionClass::Injective)
        .host(kernel!(gather_nd)),
    OpDef::new("adv_index", &["inputs"], adv_index_type).class(FusionClass::Injective).host(kernel!(adv_index)),
];

/// # Errors
/// If `indices` are not integers.
pub(crate) fn integer(call: &Call<'_>, indices: &TensorType) -> Result<(), TypeError> {
    match indices.dtype.is_integer() {
        true => Ok(()),
        false => Err(call.error(format!("indices are {}, expected integers", indices.dtype))),
    }
}

/// How `take` treats an index out of bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfBounds {
    /// Clamped; also in mode `fast`, where indices are promised to be in bounds.
    Clip,
    /// Modulo the length of the axis.
    Wrap,
    /// An error; negative indices count from the end. ONNX's.
    Refuse,
}

impl OutOfBounds {
    fn of(call: &Call<'_>) -> Result<OutOfBounds, TypeError> {
        match call.text("mode", "clip")? {
            _ if call.is_onnx() => Ok(OutOfBounds::Refuse),
            "clip" | "fast" => Ok(OutOfBounds::Clip),
            "wrap" => Ok(OutOfBounds::Wrap),
            other => Err(call.error(format!("mode is \"{other}\", expected clip, wrap or fast"))),
        }
    }
}

/// The axis and the number of batch dimensions; `None` if the data is flattened.
fn take_axes(call: &Call<'_>, data: &Shape, indices: &Shape) -> Result<Option<(usize, usize)>, TypeError> {
    let Some(axis) = call.optional_int("axis")? else { return Ok(None) };
    let axis = call.axis_in(axis, data)?;
    let batch = call.int("batch_dims", 0)?;
    let batch = if batch < 0 { batch + indices.rank() as i64 } else { batch };
    match usize::try_from(batch) {
        Ok(batch) if batch <= axis && batch <= indices.rank() => Ok(Some((axis, batch))),
        _ => {
            Err(call
                .error(format!("batch_dims {batch} is incompatible with axis {axis} and indices of shape {indices}")))
        }
    }
}

fn take_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    OutOfBounds::of(call)?;
    integer(call, indices)?;
    let shape = match take_axes(call, &data.shape, &indices.shape)? {
        None => indices.shape.clone(),
        Some((axis, batch)) => {
            data.shape[..axis].iter().chain(&indices.shape[batch..]).chain(&data.shape[axis + 1..]).copied().collect()
        }
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

/// The axes of the data except the indexed one, and those of the indices.
fn taken_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (data, indices) = (&call.tensor(0)?.shape, &call.tensor(1)?.shape);
    let Some((axis, batch)) = take_axes(call, data, indices)? else {
        return Ok((0..indices.rank()).map(|a| SplitAxis::along(call, a).operand(1, a)).collect());
    };
    let behind = axis + indices.rank() - batch;
    let split = |at: usize| {
        let split = SplitAxis::along(call, at);
        match at {
            _ if at < batch => split.operand(0, at).operand(1, at),
            _ if at < axis => split.operand(0, at),
            _ if at < behind => split.operand(1, batch + at - axis),
            _ => split.operand(0, axis + 1 + at - behind),
        }
    };
    Ok((0..call.result()?.shape.rank()).map(split).collect())
}

/// Every axis: along axes other than the gathered one, an element is read at its own position.
fn gathered_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let data = &call.tensor(0)?.shape;
    let along = call.axis("axis", 0, data)?;
    let split = |at: usize| {
        let split = SplitAxis::along(call, at).operand(1, at);
        if at == along { split } else { split.operand(0, at) }
    };
    Ok((0..data.rank()).map(split).collect())
}

fn gather_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    integer(call, indices)?;
    let axis = call.axis("axis", 0, &data.shape)?;
    if data.shape.rank() != indices.shape.rank() {
        return Err(call.error(format!("data {data} and indices {indices} have different ranks")));
    }
    let larger = |i: &usize| indices.shape[*i].get().zip(data.shape[*i].get()).is_some_and(|(n, d)| n > d);
    if (0..data.shape.rank()).filter(|i| *i != axis).any(|i| larger(&i)) {
        return Err(call.error(format!("indices {indices} are larger than data {data}")));
    }
    Ok(TensorType::new(data.dtype, indices.shape.clone()).into())
}

/// The number of dimensions of the data that one column of `gather_nd`'s indices addresses, and of batch dimensions
/// before them.
fn gather_nd_dims(call: &Call<'_>) -> Result<(usize, usize), TypeError> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    let addressed = indices.shape.first().and_then(|d| d.get());
    let addressed = match (addressed, call.optional_int("index_rank")?) {
        (Some(n), _) => n as usize,
        (None, Some(n)) if n >= 0 => n as usize,
        _ => return Err(call.error("the first dimension of the indices must be known")),
    };
    let batch = usize::try_from(call.int("batch_dims", 0)?).unwrap_or(usize::MAX);
    match batch.checked_add(addressed) {
        Some(used) if used <= data.shape.rank() && batch < indices.shape.rank() => Ok((addressed, batch)),
        _ => Err(call.error(format!("indices {indices} index more dimensions than data {data} has"))),
    }
}

fn gather_nd_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
    integer(call, indices)?;
    let (addressed, batch) = gather_nd_dims(call)?;
    let shape = indices.shape[1..].iter().chain(&data.shape[batch + addressed..]).copied().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

fn adv_index_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let fields = call.tuple(0)?;
    let (data, indices) = fields.split_first().ok_or_else(|| call.error("the tuple is empty"))?;
    if indices.len() > data.shape.rank() || indices.is_empty() {
        return Err(call.error(format!("{} index tensors for data {data}", indices.len())));
    }
    let mut shape = Shape::default();
    for index in indices {
        integer(call, index)?;
        shape = call.broadcast(&shape, &index.shape)?;
    }
    let shape = shape.iter().chain(&data.shape[indices.len()..]).copied().collect();
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::Slice;

    use crate::kernel::Wiring;
    use crate::kernel::indexing::{flat, index_in, integers, pick, strides};
    pub(super) use crate::kernel::recipe::Recipe;
    use crate::kernel::recipe::TakeDims;

    impl OutOfBounds {
        /// `index` mapped into an axis of length `len` > 0.
        fn map(self, index: i64, len: usize) -> TractResult<usize> {
            match self {
                OutOfBounds::Clip => Ok(index.clamp(0, len as i64 - 1) as usize),
                OutOfBounds::Wrap => Ok(index.rem_euclid(len as i64) as usize),
                OutOfBounds::Refuse => index_in(index, len),
            }
        }
    }

    pub(super) fn take(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let (data, indices) = (call.tensor(0)?, call.tensor(1)?);
        let known = wiring.known(inputs[1]).filter(|_| indices.shape.rank() == 0);
        if let (Some(index), Some((axis, 0))) = (known, take_axes(call, &data.shape, &indices.shape)?) {
            let len = data.shape[axis].get().filter(|n| *n > 0).context("the indexed axis is empty")?;
            let at = OutOfBounds::of(call)?.map(index.cast_to_scalar::<i64>()?, len as usize)?;
            let one = wiring.one(Slice::new(axis, at, at + 1), &inputs[..1])?;
            return wiring.wire(AxisOp::Rm(axis), &[one]);
        }
        wiring.host(call, take_on_host, inputs)
    }

    /// The dimensions of a `take`.
    pub(super) fn take_dims(call: &Typed<'_>) -> TractResult<TakeDims> {
        let (data, indices) = (&call.tensor(0)?.shape, &call.tensor(1)?.shape);
        let dims = data.fixed().context("the shape of the data is unknown")?;
        let product = |dims: &[u64]| dims.iter().product::<u64>() as usize;
        // Engines that cannot refuse an index at least count negative ones from the end.
        let wraps = matches!(OutOfBounds::of(call)?, OutOfBounds::Wrap | OutOfBounds::Refuse);
        Ok(match take_axes(call, data, indices)? {
            Some((axis, batch)) => TakeDims {
                batch: product(&dims[..batch]),
                outer: product(&dims[batch..axis]),
                length: dims[axis] as usize,
                block: product(&dims[axis + 1..]),
                wraps,
            },
            None => TakeDims { batch: 1, outer: 1, length: product(&dims), block: 1, wraps },
        })
    }

    /// Data is (batch, outer, axis, block), indices are (batch, n), the result is (batch, outer, n, block): blocks are
    /// copied whole.
    fn take_on_host(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (data, indices) = (&inputs[0], integers(&inputs[1])?);
        let mode = OutOfBounds::of(call)?;
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
        ensure!(len > 0, "the indexed axis is empty");
        let (from, per_batch) = (data.as_bytes(), indices.len() / batch);
        let mut to = out.as_bytes_mut().chunks_exact_mut(block);
        for b in 0..batch {
            for o in 0..outer {
                let rows = &from[(b * outer + o) * len * block..][..len * block];
                for (index, to) in indices[b * per_batch..][..per_batch].iter().zip(&mut to) {
                    let at = mode.map(*index, len)?;
                    to.copy_from_slice(&rows[at * block..][..block]);
                }
            }
        }
        Ok(tvec!(out))
    }

    pub(super) fn gather(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let axis = call.axis("axis", 0, &call.tensor(0)?.shape)?;
        let (dims, mut indices) = (inputs[0].shape(), integers(&inputs[1])?.into_iter());
        let strides = strides(dims);
        let out = pick(&inputs[0], &call.dims()?, |place| {
            let at = index_in(indices.next().unwrap_or(0), dims[axis])?;
            Ok(flat(&strides, place) - place[axis] * strides[axis] + at * strides[axis])
        })?;
        Ok(tvec!(out))
    }

    pub(super) fn gather_nd(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (addressed, batch) = gather_nd_dims(call)?;
        let (dims, indices) = (inputs[0].shape(), integers(&inputs[1])?);
        let columns = inputs[1].rank() - 1;
        let (strides, index_strides) = (strides(dims), strides(inputs[1].shape()));
        let out = pick(&inputs[0], &call.dims()?, |place| {
            let column = flat(&index_strides[1..], &place[..columns]);
            let mut at = flat(&strides[..batch], &place[..batch]);
            for i in 0..addressed {
                at += index_in(indices[i * index_strides[0] + column], dims[batch + i])? * strides[batch + i];
            }
            Ok(at + flat(&strides[batch + addressed..], &place[columns..]))
        })?;
        Ok(tvec!(out))
    }

    /// Each index tensor addresses one axis; the index tensors are broadcast against each other.
    pub(super) fn adv_index(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (data, indices) = inputs.split_first().context("the tuple is empty")?;
        let dims = call.dims()?;
        let joined = dims.len() - (data.rank() - indices.len());
        let strides = strides(data.shape());
        let indices = indices
            .iter()
            .map(|index| integers(&index.broadcast_to_shape(&dims[..joined])?))
            .collect::<TractResult<Vec<_>>>()?;
        let columns = crate::kernel::indexing::strides(&dims[..joined]);
        let out = pick(data, &dims, |place| {
            let column = flat(&columns, &place[..joined]);
            let mut at = flat(&strides[indices.len()..], &place[joined..]);
            for (axis, index) in indices.iter().enumerate() {
                at += index_in(index[column], data.shape()[axis])? * strides[axis];
            }
            Ok(at)
        })?;
        Ok(tvec!(out))
    }
}
