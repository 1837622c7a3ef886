//! Writes to computed indices: `scatter_elements`, `scatter_nd`, `strided_set`, `one_hot`, `sparse_to_dense`.

use crate::families::gather::integer;
use crate::rules::same_type;
use crate::split::SplitAxis;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

pub(crate) const ONE_HOT_ATTRS: &[AttrDef] = &[
    AttrDef::new("depth", AttrKind::Int, "1"),
    AttrDef::new("axis", AttrKind::Int, "-1"),
    AttrDef::new("dtype", AttrKind::DType, "\"\""),
];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("scatter_elements", &["data", "indices", "updates"], scatter_type)
        .attrs(
            "relay.attrs.ScatterElementsAttrs",
            &[AttrDef::new("axis", AttrKind::OptionalInt, "0"), AttrDef::new("reduction", AttrKind::Str, "\"update\"")],
        )
        .attrs_in_metadata()
        .class(FusionClass::Opaque)
        .flops(per_update)
        .host(kernel!(scatter_elements)),
    OpDef::new("scatter_nd", &["data", "indices", "updates"], scatter_type)
        .attrs("relay.attrs.ScatterNDAttrs", &[AttrDef::new("mode", AttrKind::Str, "\"update\"")])
        .attrs_in_metadata()
        .class(FusionClass::Opaque)
        .flops(per_update)
        .host(kernel!(scatter_nd)),
    OpDef::new("strided_set", &["data", "v", "begin", "end", "strides"], same_type)
        .class(FusionClass::Injective)
        .host(kernel!(strided_set)),
    OpDef::new("one_hot", &["indices", "on_value", "off_value"], |call| {
        one_hot_type(call, Some(call.int("depth", 1)?))
    })
    .attrs("relay.attrs.OneHotAttrs", ONE_HOT_ATTRS)
    .class(FusionClass::OutFusable)
    .split(one_hot_axes)
    .host(kernel!(one_hot)),
    OpDef::new("sparse_to_dense", &["sparse_indices", "sparse_values", "default_value"], |call| {
        let shape = call.shape("output_shape")?.ok_or_else(|| call.error("output_shape is missing"))?;
        dense_type(call, &shape)
    })
    .attrs("relay.attrs.SparseToDenseAttrs", &[AttrDef::required("output_shape", AttrKind::Ints)])
    .class(FusionClass::Opaque)
    .host(kernel!(sparse_to_dense)),
];

fn per_update(call: &Typed<'_>) -> u64 {
    call.tensor(2).ok().and_then(|updates| updates.shape.elements()).unwrap_or(0)
}

fn scatter_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, indices, updates) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    integer(call, indices)?;
    call.same_dtype(data, updates)?;
    Ok(data.clone().into())
}

/// The type of a one-hot encoding of depth `depth`, which may be unknown.
pub(crate) fn one_hot_type(call: &Call<'_>, depth: Option<i64>) -> Result<Type, TypeError> {
    let indices = call.tensor(0)?;
    integer(call, indices)?;
    let mut shape = indices.shape.clone();
    let depth =
        depth.map(|d| u64::try_from(d).map_err(|_| call.error(format!("depth {d} is negative")))).transpose()?;
    shape.insert(one_hot_axis(call, &indices.shape)?, depth.map_or(Dim::Any, Dim::Known));
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), shape).into())
}

/// The axes of the indices.
fn one_hot_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let new = one_hot_axis(call, &call.tensor(0)?.shape)?;
    let kept = (0..call.result()?.shape.rank()).filter(|axis| *axis != new);
    Ok(kept.map(|axis| SplitAxis::along(call, axis).operand(0, axis - usize::from(axis > new))).collect())
}

fn one_hot_axis(call: &Call<'_>, indices: &Shape) -> Result<usize, TypeError> {
    let (axis, rank) = (call.int("axis", -1)?, indices.rank() as i64);
    let at = if axis < 0 { axis + rank + 1 } else { axis };
    match (0..=rank).contains(&at) {
        true => Ok(at as usize),
        false => Err(call.error(format!("axis {axis} cannot be inserted into indices of rank {rank}"))),
    }
}

/// The type of a dense tensor of `shape` from sparse values.
pub(crate) fn dense_type(call: &Call<'_>, shape: &Shape) -> Result<Type, TypeError> {
    let (indices, values) = (call.tensor(0)?, call.tensor(1)?);
    integer(call, indices)?;
    match indices.shape.rank() <= 2 && values.shape.rank() <= 1 {
        true => Ok(TensorType::new(values.dtype, shape.clone()).into()),
        false => Err(call.error(format!("indices {indices} or values {values} have too many dimensions"))),
    }
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::slice::{Bounds, kernel::place_in};
    use crate::kernel::datum_type;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::indexing::{each_place, flat, index_in, integers, strides};

    /// How an update combines with the present element.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Reduction {
        Update,
        Add,
        Multiply,
        Mean,
        Least,
        Greatest,
    }

    impl Reduction {
        fn of(call: &Call<'_>, key: &str) -> Result<Reduction, TypeError> {
            Ok(match call.text(key, "update")? {
                "update" => Reduction::Update,
                "add" => Reduction::Add,
                "mul" => Reduction::Multiply,
                "mean" => Reduction::Mean,
                "min" => Reduction::Least,
                "max" => Reduction::Greatest,
                other => {
                    return Err(
                        call.error(format!("{key} is \"{other}\", expected update, add, mul, mean, min or max"))
                    );
                }
            })
        }

        /// A mean is the average of the present element and each update in turn.
        fn combine<T: Number>(self, old: T, new: T) -> T {
            match self {
                Reduction::Update => new,
                Reduction::Add => old.add(new),
                Reduction::Multiply => old.mul(new),
                Reduction::Mean => old.add(new).div(T::of_i64(2)),
                Reduction::Least => old.smaller(new),
                Reduction::Greatest => old.larger(new),
            }
        }
    }

    /// Combines `updates`, in order, with the elements of a copy of `data` at the row-major indices `to`.
    /// `updates` combined with the elements of `data` at `to`, in the type of `data`.
    fn scatter(data: &Tensor, updates: &Tensor, to: &[usize], reduction: Reduction) -> TractResult<TVec<Tensor>> {
        let mut out = data.clone();
        let updates = &updates.cast_to_dt(out.datum_type())?;
        match out.datum_type() {
            DatumType::Bool => write::<bool>(&mut out, updates, to, |_, new| new)?,
            dt => {
                for_dtype!(dt, T in number => write::<T>(&mut out, updates, to, |old, new| reduction.combine(old, new))?)
            }
        }
        Ok(tvec!(out))
    }

    fn write<T: Datum + Copy>(
        out: &mut Tensor,
        updates: &Tensor,
        to: &[usize],
        join: impl Fn(T, T) -> T,
    ) -> TractResult<()> {
        let updates = updates.try_as_plain_ram()?;
        let mut plain = out.try_as_plain_ram_mut()?;
        let elements = plain.as_slice_mut::<T>()?;
        for (at, update) in to.iter().zip(updates.as_slice::<T>()?) {
            elements[*at] = join(elements[*at], *update);
        }
        Ok(())
    }

    pub(super) fn scatter_elements(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (dims, indices) = (inputs[0].shape(), integers(&inputs[1])?);
        let axis = call.axis("axis", 0, &call.tensor(0)?.shape)?;
        ensure!(inputs[1].shape() == inputs[2].shape(), "indices and updates have different shapes");
        ensure!(inputs[1].rank() == dims.len(), "data and indices have different ranks");
        ensure!((0..dims.len()).all(|i| i == axis || inputs[1].shape()[i] <= dims[i]), "updates are larger than data");
        let strides = strides(dims);
        let (mut to, mut indices) = (Vec::with_capacity(indices.len()), indices.into_iter());
        let mut outside = Ok(());
        each_place(inputs[1].shape(), |place| match index_in(indices.next().unwrap_or(0), dims[axis]) {
            Ok(at) => to.push(flat(&strides, place) - place[axis] * strides[axis] + at * strides[axis]),
            Err(e) => outside = Err(e),
        });
        outside?;
        scatter(&inputs[0], &inputs[2], &to, Reduction::of(call, "reduction")?)
    }

    /// Column j of the (M, …) indices addresses the first M dimensions of the data; updates are sub-tensors.
    pub(super) fn scatter_nd(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (dims, indices) = (inputs[0].shape(), integers(&inputs[1])?);
        let addressed = *inputs[1].shape().first().context("indices must have rank 1 or more")?;
        ensure!(addressed <= dims.len(), "indices address more dimensions than the data has");
        let columns: usize = inputs[1].shape()[1..].iter().product();
        let block: usize = dims[addressed..].iter().product();
        ensure!(inputs[2].len() == columns * block, "the updates do not match the indexed sub-tensors");
        let strides = strides(dims);
        let mut to = Vec::with_capacity(columns * block);
        for column in 0..columns {
            let mut at = 0;
            for i in 0..addressed {
                at += index_in(indices[i * columns + column], dims[i])? * strides[i];
            }
            to.extend(at..at + block);
        }
        scatter(&inputs[0], &inputs[2], &to, Reduction::of(call, "mode")?)
    }

    /// Overwrites the slice of the data given by begin, end and strides with `v`.
    pub(super) fn strided_set(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let dims = inputs[0].shape();
        let bounds = Bounds {
            begin: integers(&inputs[2])?,
            end: integers(&inputs[3])?,
            strides: integers(&inputs[4])?,
            ..Bounds::default()
        };
        let shape = Shape::of(&dims.iter().map(|d| *d as u64).collect::<Vec<_>>());
        let spans: Vec<_> = bounds.spans(call, &shape)?.into_iter().flatten().collect();
        let target: TVec<usize> = spans.iter().map(|span| span.len as usize).collect();
        let values = inputs[1].broadcast_to_shape(&target)?;
        let strides = strides(dims);
        let mut to = Vec::with_capacity(values.len());
        each_place(&target, |place| to.push(place_in(&spans, &strides, place)));
        scatter(&inputs[0], &values, &to, Reduction::Update)
    }

    /// An index out of range yields off values only.
    pub(crate) fn one_hot(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (dims, indices) = (call.dims()?, integers(&inputs[0])?);
        let axis = one_hot_axis(call, &call.tensor(0)?.shape)?;
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let (on, off) = (inputs[1].cast_to_dt(to)?, inputs[2].cast_to_dt(to)?);
        let inner: usize = dims[axis + 1..].iter().product();
        let mut out = off.broadcast_scalar_to_shape(&dims)?;
        for_dtype!(to, T in any => {
            let on = *on.try_as_plain_ram()?.to_scalar::<T>()?;
            let mut plain = out.try_as_plain_ram_mut()?;
            let elements = plain.as_slice_mut::<T>()?;
            for (i, index) in indices.into_iter().enumerate() {
                if (0..dims[axis] as i64).contains(&index) {
                    elements[(i / inner * dims[axis] + index as usize) * inner + i % inner] = on;
                }
            }
        });
        Ok(tvec!(out))
    }

    /// Indices are a scalar, a vector (for a vector) or the rows of a matrix; values are one for all or one each.
    pub(crate) fn sparse_to_dense(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (dims, indices) = (call.dims()?, integers(&inputs[0])?);
        let strides = strides(&dims);
        let width = if inputs[0].rank() == 2 { inputs[0].shape()[1] } else { 1 };
        ensure!(width <= dims.len() && width > 0, "the indices address more dimensions than the result has");
        let to = indices
            .chunks_exact(width)
            .map(|row| {
                let terms =
                    row.iter().zip(&dims).zip(&strides).map(|((i, dim), stride)| Ok(index_in(*i, *dim)? * stride));
                terms.sum::<TractResult<usize>>()
            })
            .collect::<TractResult<Vec<usize>>>()?;
        let data = match inputs.get(2) {
            Some(default) => default.cast_to_dt(inputs[1].datum_type())?.broadcast_scalar_to_shape(&dims)?,
            None => Tensor::zero_dt(inputs[1].datum_type(), &dims)?,
        };
        let values = match inputs[1].len() == 1 {
            true => inputs[1].clone().into_tensor().into_shape(&[])?.broadcast_scalar_to_shape(&[to.len()])?,
            false => inputs[1].clone().into_tensor(),
        };
        ensure!(values.len() == to.len(), "{} values for {} indices", values.len(), to.len());
        scatter(&data, &values, &to, Reduction::Update)
    }
}
