//! Searches by value: `argwhere`, `searchsorted`, `unique`, `unravel_index`, `invert_permutation`.

use crate::families::gather::integer;
use crate::rules::{FUNCTION_COST, per_output, same_type};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError};
use edgecut_graph::{DType, Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("argwhere", &["condition"], argwhere_type).host(kernel!(argwhere)),
    OpDef::new("searchsorted", &["sorted_sequence", "values"], searchsorted_type)
        .attrs(
            "relay.attrs.SearchSortedAttrs",
            &[AttrDef::new("right", AttrKind::Bool, "False"), AttrDef::new("dtype", AttrKind::DType, "\"int32\"")],
        )
        .flops(per_output::<FUNCTION_COST>)
        .host(kernel!(searchsorted)),
    OpDef::new("unique", &["data"], unique_type)
        .attrs(
            "relay.attrs.UniqueAttrs",
            &[AttrDef::new("sorted", AttrKind::Bool, "True"), AttrDef::new("return_counts", AttrKind::Bool, "False")],
        )
        .attrs_in_metadata()
        .host(kernel!(unique)),
    OpDef::new("unravel_index", &["data", "shape"], unravel_type).class(FusionClass::Injective).host(kernel!(unravel)),
    OpDef::new("invert_permutation", &["data"], same_type).class(FusionClass::Injective).host(kernel!(invert)),
];

/// One row per nonzero element; the number of rows depends on the value.
fn argwhere_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let condition = call.tensor(0)?;
    let rows = call.value(0).and_then(|value| value.to_f64s()).map(|v| v.iter().filter(|x| **x != 0.0).count() as u64);
    let shape = [rows.into(), Dim::Known(condition.shape.rank() as u64)].into_iter().collect();
    Ok(TensorType::new(DType::I32, shape).into())
}

fn searchsorted_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (sequence, values) = (call.tensor(0)?, call.tensor(1)?);
    call.same_dtype(sequence, values)?;
    let (rank, lead) = (sequence.shape.rank(), sequence.shape.rank().saturating_sub(1));
    let fits = rank == 1
        || (rank == values.shape.rank()
            && rank > 0
            && (0..lead).all(|i| crate::rules::unify(sequence.shape[i], values.shape[i]).is_some()));
    match fits {
        true => Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::I32), values.shape.clone()).into()),
        false => Err(call.error(format!("values {values} are incompatible with the sorted sequences {sequence}"))),
    }
}

/// Unique values, the index of their first occurrence, the inverse mapping, their number, and their counts. All but the
/// number have the length of the data, with a valid prefix.
fn unique_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    if data.shape.rank() != 1 {
        return Err(call.error(format!("data is {data}, expected a vector")));
    }
    let places = Type::from(TensorType::new(DType::I32, data.shape.clone()));
    let mut fields = vec![data.clone().into(), places.clone(), places.clone(), TensorType::of(DType::I32, &[1]).into()];
    if call.flag("return_counts", false)? {
        fields.push(places);
    }
    Ok(Type::Tuple(fields))
}

fn unravel_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, shape) = (call.tensor(0)?, call.tensor(1)?);
    integer(call, data)?;
    let rank = *shape.shape.first().ok_or_else(|| call.error("shape must be a vector"))?;
    Ok(TensorType::new(data.dtype, [rank].into_iter().chain(data.shape.iter().copied()).collect()).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;

    use crate::Typed;
    use crate::families::sort::kernel::keys;
    use crate::kernel::datum_type;
    use crate::kernel::element::for_dtype;
    use crate::kernel::indexing::{index_in, integers, pick_flat, place};

    pub(super) fn argwhere(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (condition, rank) = (&inputs[0], inputs[0].rank());
        let found: Vec<usize> = for_dtype!(condition.datum_type(), T in any => {
            let plain = condition.try_as_plain_ram()?;
            let elements = plain.as_slice::<T>()?.iter().enumerate();
            elements.filter(|(_, x)| **x != T::default()).map(|(i, _)| i).collect()
        });
        let places: Vec<i32> = found.iter().flat_map(|i| place(condition.shape(), *i)).map(|at| at as i32).collect();
        Ok(tvec!(Tensor::from_shape(&[found.len(), rank], &places)?))
    }

    /// The index at which each value would be inserted into its sequence: before equal elements, or after them.
    pub(super) fn searchsorted(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (sequences, values, right) = (&inputs[0], &inputs[1], call.flag("right", false)?);
        let len = *sequences.shape().last().context("the sorted sequence has rank 0")?;
        let per_sequence = if sequences.rank() == 1 { values.len() } else { values.shape()[values.rank() - 1] };
        let sequences = keys(sequences)?;
        let position = |(i, value): (usize, &u64)| {
            let sequence = &sequences[i / per_sequence * len..][..len];
            sequence.partition_point(|x| x < value || (right && x == value)) as i64
        };
        let found: Vec<i64> = keys(values)?.iter().enumerate().map(position).collect();
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        Ok(tvec!(Tensor::from_shape(values.shape(), &found)?.cast_to_dt(to)?.into_owned()))
    }

    pub(super) fn unique(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (sorted, counted) = (call.flag("sorted", true)?, call.flag("return_counts", false)?);
        let data = &inputs[0];
        let len = data.len();
        let keys = keys(data)?;
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by_key(|i| keys[*i]);
        let mut groups: Vec<&[usize]> = order.chunk_by(|a, b| keys[*a] == keys[*b]).collect();
        if !sorted {
            groups.sort_by_key(|group| group[0]);
        }
        let (mut inverse, mut counts) = (vec![0i32; len], vec![0i32; len]);
        for (number, group) in groups.iter().enumerate() {
            counts[number] = group.len() as i32;
            group.iter().for_each(|i| inverse[*i] = number as i32);
        }
        let representatives: Vec<usize> = groups.iter().map(|group| group[0]).collect();
        let mut values = Tensor::zero_dt(data.datum_type(), &[len])?;
        let distinct = pick_flat(data, &[groups.len()], &representatives)?;
        values.assign_slice(..groups.len(), &distinct, .., 0)?;
        let mut firsts: Vec<i32> = representatives.iter().map(|i| *i as i32).collect();
        let found = firsts.len() as i32;
        firsts.resize(len, 0);
        let mut out = tvec!(values, tensor1(&firsts), tensor1(&inverse), tensor1(&[found]));
        if counted {
            out.push(tensor1(&counts));
        }
        Ok(out)
    }

    /// Row i of the result holds the indices along axis i.
    pub(super) fn unravel(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let dims: Vec<i64> = integers(&inputs[1])?;
        ensure!(dims.iter().all(|d| *d > 0), "the dimensions of shape must be positive");
        let flat = integers(&inputs[0])?;
        let mut rows = vec![0i64; dims.len() * flat.len()];
        for (i, index) in flat.iter().enumerate() {
            let mut rest = *index;
            for (axis, dim) in dims.iter().enumerate().rev() {
                rows[axis * flat.len() + i] = rest % dim;
                rest /= dim;
            }
        }
        let shape: TVec<usize> = [dims.len()].into_iter().chain(inputs[0].shape().iter().copied()).collect();
        Ok(tvec!(Tensor::from_shape(&shape, &rows)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }

    pub(super) fn invert(_call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let permutation = integers(&inputs[0])?;
        let mut inverse = vec![0i64; permutation.len()];
        for (i, to) in permutation.iter().enumerate() {
            inverse[index_in(*to, permutation.len())?] = i as i64;
        }
        Ok(tvec!(Tensor::from_shape(inputs[0].shape(), &inverse)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }
}
