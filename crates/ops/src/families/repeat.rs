//! Repetition and reversal: `repeat`, `tile`, `meshgrid`, `sliding_window`, `reverse`, `reverse_sequence`.

use crate::rules::same_type;
use crate::split::{SplitAxis, aligned, off};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("repeat", &["data"], repeat_type)
        .attrs(
            "relay.attrs.RepeatAttrs",
            &[AttrDef::required("repeats", AttrKind::OptionalInt), AttrDef::new("axis", AttrKind::OptionalInt, "None")],
        )
        .class(FusionClass::Broadcast)
        .split(repeat_axes)
        .host(kernel!(repeat)),
    OpDef::new("tile", &["data"], |call| {
        let reps = call.ints("reps")?.ok_or_else(|| call.error("reps is missing"))?;
        tile_type(call, &reps.into_iter().map(Some).collect::<Vec<_>>())
    })
    .attrs("relay.attrs.TileAttrs", &[AttrDef::required("reps", AttrKind::Ints)])
    .class(FusionClass::Broadcast)
    .split(tile_axes)
    .host(kernel!(tile)),
    OpDef::new("meshgrid", &["data"], meshgrid_type)
        .attrs("relay.attrs.MeshgridAttrs", &[AttrDef::new("indexing", AttrKind::Str, "\"ij\"")])
        .class(FusionClass::Injective)
        .wire(kernel!(meshgrid)),
    OpDef::new("sliding_window", &["data"], window_type)
        .attrs(
            "relay.attrs.SlidingWindowAttrs",
            &[
                AttrDef::required("axis", AttrKind::Int),
                AttrDef::required("window_shape", AttrKind::Ints),
                AttrDef::required("strides", AttrKind::Ints),
            ],
        )
        .host(kernel!(sliding_window)),
    OpDef::new("reverse", &["data"], same_type)
        .attrs("relay.attrs.ReverseAttrs", &[AttrDef::new("axis", AttrKind::OptionalInt, "None")])
        .class(FusionClass::Injective)
        .split(reverse_axes)
        .host(kernel!(reverse)),
    OpDef::new("reverse_sequence", &["data", "seq_lengths"], same_type)
        .attrs(
            "relay.attrs.ReverseSequenceAttrs",
            &[
                AttrDef::new("seq_axis", AttrKind::OptionalInt, "1"),
                AttrDef::new("batch_axis", AttrKind::OptionalInt, "0"),
            ],
        )
        .class(FusionClass::Injective)
        .split(reverse_sequence_axes)
        .host(kernel!(reverse_sequence)),
];

/// All axes; along the repeated one at multiples of the repetitions.
fn repeat_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let Some(axis) = call.optional_int("axis")? else { return Ok(Vec::new()) };
    let axis = call.axis_in(axis, &call.tensor(0)?.shape)?;
    let mut axes = off(call, &[axis])?;
    axes.push(SplitAxis::along(call, axis).scaled(0, axis, 1, repeats(call)?));
    Ok(axes)
}

/// The axes that are not repeated.
fn tile_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (data, shape) = (call.tensor(0)?, &call.result()?.shape);
    let kept = |axis: usize| {
        let at = aligned(data, shape.rank(), axis, shape[axis])?;
        Some(SplitAxis::along(call, axis).operand(0, at))
    };
    Ok((0..shape.rank()).filter_map(kept).collect())
}

/// All axes; along the reversed one a shard reads the mirrored range.
fn reverse_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let axis = call.axis("axis", 0, shape)?;
    let mut axes = off(call, &[axis])?;
    if let Some(n) = shape[axis].get() {
        axes.push(SplitAxis::along(call, axis).access(0, axis, move |range| n - range.end..n - range.start));
    }
    Ok(axes)
}

/// All but the sequence axis; along the batch axis, a shard gets the lengths of its own sequences.
fn reverse_sequence_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let (along, batch) = (call.axis("seq_axis", 1, shape)?, call.axis("batch_axis", 0, shape)?);
    let mut axes = off(call, &[along, batch])?;
    if along != batch {
        axes.push(SplitAxis::along(call, batch).operand(0, batch).operand(1, 0));
    }
    Ok(axes)
}

fn repeats(call: &Call<'_>) -> Result<u64, TypeError> {
    let n = call.optional_int("repeats")?.ok_or_else(|| call.error("repeats is missing"))?;
    u64::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| call.error(format!("cannot repeat {n} times")))
}

/// A dimension `n` times as long.
fn times(dim: Dim, n: u64) -> Dim {
    match dim {
        Dim::Known(d) => d.checked_mul(n).into(),
        Dim::Wide(d) => d.checked_mul(n).map_or(Dim::Any, Dim::Wide),
        Dim::Any => Dim::Any,
    }
}

/// Without an axis the data is flattened, as in numpy.
fn repeat_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, n) = (call.tensor(0)?, repeats(call)?);
    let shape = match call.optional_int("axis")? {
        Some(axis) => {
            let mut shape = data.shape.clone();
            let axis = call.axis_in(axis, &shape)?;
            shape[axis] = times(shape[axis], n);
            shape
        }
        None => [times(data.shape.elements().into(), n)].into_iter().collect(),
    };
    Ok(TensorType::new(data.dtype, shape).into())
}

/// The type of a tile by `reps`, right-aligned with the dimensions; `None` is unknown.
pub(crate) fn tile_type(call: &Call<'_>, reps: &[Option<i64>]) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let rank = data.shape.rank().max(reps.len());
    let (lead_dims, lead_reps) = (rank - data.shape.rank(), rank - reps.len());
    let mut shape = Shape::default();
    for axis in 0..rank {
        let dim = if axis < lead_dims { Dim::Known(1) } else { data.shape[axis - lead_dims] };
        let n = if axis < lead_reps { Some(1) } else { reps[axis - lead_reps] };
        shape.push(match n.map(u64::try_from) {
            Some(Ok(n)) => times(dim, n),
            Some(Err(_)) => return Err(call.error("reps must not be negative")),
            None => Dim::Any,
        });
    }
    Ok(TensorType::new(data.dtype, shape).into())
}

fn meshgrid_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let fields = call.tuple(0)?;
    let mut shape = Shape::default();
    for field in &fields {
        call.same_dtype(fields[0], field)?;
        shape.push(match field.shape.rank() {
            0 => Dim::Known(1),
            1 => field.shape[0],
            _ => return Err(call.error(format!("{field} must be a vector or a scalar"))),
        });
    }
    if swaps_axes(call)? && shape.rank() > 1 {
        shape.swap(0, 1);
    }
    Ok(Type::Tuple(fields.iter().map(|f| TensorType::new(f.dtype, shape.clone()).into()).collect()))
}

/// Whether the first two axes are swapped (`indexing="xy"`).
fn swaps_axes(call: &Call<'_>) -> Result<bool, TypeError> {
    match call.text("indexing", "ij")? {
        "ij" => Ok(false),
        "xy" => Ok(true),
        other => Err(call.error(format!("indexing is \"{other}\", expected ij or xy"))),
    }
}

/// The first windowed axis, the window lengths and the strides.
fn window(call: &Call<'_>) -> Result<(usize, Vec<u64>, Vec<u64>), TypeError> {
    let data = call.tensor(0)?;
    let positive = |key: &str| -> Result<Vec<u64>, TypeError> {
        let values = call.ints(key)?.unwrap_or_default();
        let checked = values.into_iter().map(|n| u64::try_from(n).ok().filter(|n| *n > 0));
        checked.collect::<Option<_>>().ok_or_else(|| call.error(format!("{key} must be positive")))
    };
    let (lengths, strides) = (positive("window_shape")?, positive("strides")?);
    let axis = call.axis("axis", 0, &data.shape)?;
    match lengths.len() == strides.len() && axis + lengths.len() == data.shape.rank() {
        true => Ok((axis, lengths, strides)),
        false => Err(call
            .error(format!("window_shape and strides must have one entry for each axis of {data} from axis {axis}"))),
    }
}

fn window_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (axis, lengths, strides) = window(call)?;
    let mut shape: Shape = data.shape[..axis].iter().copied().collect();
    for ((dim, length), stride) in data.shape[axis..].iter().zip(&lengths).zip(&strides) {
        shape.push(match dim.get() {
            Some(n) if n < *length => {
                return Err(call.error(format!("a window of {length} is longer than the axis, which is {n}")));
            }
            Some(n) => Dim::Known((n - length) / stride + 1),
            None => Dim::Any,
        });
    }
    lengths.iter().for_each(|n| shape.push(Dim::Known(*n)));
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::MultiBroadcastTo;

    use crate::kernel::Wiring;
    use crate::kernel::indexing::{flat, integers, pick, strides};

    pub(super) fn repeat(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let n = repeats(call)? as usize;
        let (axis, from) = match call.optional_int("axis")? {
            Some(axis) => (call.axis_in(axis, &call.tensor(0)?.shape)?, strides(inputs[0].shape())),
            None => (0, tvec!(1)),
        };
        let out = pick(&inputs[0], &call.dims()?, |place| {
            Ok(flat(&from, place) - place[axis] * from[axis] + place[axis] / n * from[axis])
        })?;
        Ok(tvec!(out))
    }

    /// Also the kernel of `dyn.tile`: the repetitions follow from the result's type.
    pub(crate) fn tile(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (out, data) = (call.dims()?, inputs[0].shape());
        let (lead, from) = (out.len() - data.len(), strides(data));
        let tiled = pick(&inputs[0], &out, |place| {
            Ok(place[lead..].iter().zip(data).zip(&from).map(|((at, dim), stride)| at % dim * stride).sum())
        })?;
        Ok(tvec!(tiled))
    }

    pub(super) fn meshgrid(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let grid = call.out.tensors().first().and_then(|t| t.shape.fixed()).context("the shape is unknown")?;
        let grid: TVec<usize> = grid.iter().map(|d| *d as usize).collect();
        let crosswise = swaps_axes(call)? && grid.len() > 1;
        let spread = |(i, input): (usize, &OutletId)| {
            let axis = if crosswise && i < 2 { 1 - i } else { i };
            let mut shape: TVec<usize> = grid.iter().map(|_| 1).collect();
            shape[axis] = grid[axis];
            let lifted = wiring.reshape(*input, &shape)?;
            wiring.one(MultiBroadcastTo::new(ShapeFact::from_dims(grid.clone())), &[lifted])
        };
        inputs.iter().enumerate().map(spread).collect()
    }

    pub(super) fn sliding_window(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (axis, lengths, steps) = window(call)?;
        let from = strides(inputs[0].shape());
        let windows = axis + lengths.len();
        let out = pick(&inputs[0], &call.dims()?, |place| {
            let mut at = flat(&from[..axis], &place[..axis]);
            for (i, step) in steps.iter().enumerate() {
                at += (place[axis + i] * *step as usize + place[windows + i]) * from[axis + i];
            }
            Ok(at)
        })?;
        Ok(tvec!(out))
    }

    pub(super) fn reverse(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let axis = call.axis("axis", 0, &call.tensor(0)?.shape)?;
        let (dims, from) = (inputs[0].shape(), strides(inputs[0].shape()));
        let out = pick(&inputs[0], dims, |place| {
            let mirrored = dims[axis] - 1 - place[axis];
            Ok(flat(&from, place) - place[axis] * from[axis] + mirrored * from[axis])
        })?;
        Ok(tvec!(out))
    }

    /// Reverses a prefix, of the given length, of each sequence of a batch.
    pub(super) fn reverse_sequence(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = &call.tensor(0)?.shape;
        let (along, batch) = (call.axis("seq_axis", 1, shape)?, call.axis("batch_axis", 0, shape)?);
        let (dims, from, lengths) = (inputs[0].shape(), strides(inputs[0].shape()), integers(&inputs[1])?);
        ensure!(lengths.len() == dims[batch], "expected one length per sequence");
        let out = pick(&inputs[0], dims, |place| {
            let length = lengths[place[batch]].min(dims[along] as i64);
            let at = place[along] as i64;
            let mirrored = if at < length { length - 1 - at } else { at } as usize;
            Ok(flat(&from, place) - place[along] * from[along] + mirrored * from[along])
        })?;
        Ok(tvec!(out))
    }
}
