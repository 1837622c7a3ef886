//! Sequences of tensors, whose lengths are known during the import.

use edgecut_graph::TensorId;

use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("SequenceEmpty", |_| Ok(vec![Value::Sequence(Vec::new())])),
    ("SequenceConstruct", |call| Ok(vec![Value::Sequence(call.all()?)])),
    ("SequenceLength", |call| {
        let length = call.sequence(0)?.len() as i64;
        one(call.ints_of_shape(&[length], &[])?)
    }),
    ("SequenceAt", |call| {
        let list = call.sequence(0)?;
        let at = position(call, list.len(), 1)?.ok_or("the position is missing")?;
        one(*list.get(at).ok_or("the position is past the end")?)
    }),
    ("SequenceInsert", |call| {
        let (mut list, tensor) = (call.sequence(0)?, call.input(1)?);
        let at = position(call, list.len(), 2)?.unwrap_or(list.len());
        list.insert(at.min(list.len()), tensor);
        Ok(vec![Value::Sequence(list)])
    }),
    ("SequenceErase", |call| {
        let mut list = call.sequence(0)?;
        let at = position(call, list.len(), 1)?.unwrap_or(list.len().saturating_sub(1));
        if at >= list.len() {
            return Err("the position is past the end".to_string());
        }
        list.remove(at);
        Ok(vec![Value::Sequence(list)])
    }),
    ("ConcatFromSequence", |call| {
        let list = call.sequence(0)?;
        let first = *list.first().ok_or("the sequence is empty")?;
        let is_new = call.int("new_axis", 0) != 0;
        let rank = call.rank(first) + usize::from(is_new);
        let axis = crate::call::axis_in(call.int("axis", 0), rank)?;
        let list = match is_new {
            true => list.iter().map(|tensor| call.expand(*tensor, axis, 1)).collect::<Result<Vec<TensorId>>>()?,
            false => list,
        };
        one(call.concat(&list, axis)?)
    }),
    ("SplitToSequence", split),
];

/// The position that input `index` gives; negative ones count from the end.
fn position(call: &Call<'_, '_>, length: usize, index: usize) -> Result<Option<usize>> {
    let Some(at) = call.content_ints(index, "the position")?.and_then(|at| at.first().copied()) else {
        return Ok(None);
    };
    let at = if at < 0 { at + length as i64 } else { at };
    usize::try_from(at).map(Some).map_err(|_| "the position is before the begin".to_string())
}

fn split(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis", 0), x)?;
    let size = call.dims(x)?[axis];
    let given = call.content(1, "the sizes of the parts")?;
    let sizes = given.as_ref().and_then(|data| data.to_i64s());
    let parts: Vec<u64> = match (&given, sizes) {
        (Some(data), Some(sizes)) if data.shape().is_empty() => {
            let each = sizes
                .first()
                .and_then(|n| u64::try_from(*n).ok())
                .filter(|n| *n > 0)
                .ok_or("a size must be positive")?;
            let count = size.div_ceil(each);
            call.lowering.check_operators(count)?;
            (0..count).map(|part| (size - part * each).min(each)).collect()
        }
        (_, Some(sizes)) => {
            sizes.iter().map(|n| u64::try_from(*n).map_err(|_| format!("{n} is not a size"))).collect::<Result<_>>()?
        }
        _ => {
            call.lowering.check_operators(size)?;
            vec![1; usize::try_from(size).map_err(|error| error.to_string())?]
        }
    };
    if parts.iter().try_fold(0u64, |n, part| n.checked_add(*part)) != Some(size) {
        return Err(format!("parts of {parts:?} of an axis of {size}"));
    }
    let mut list = call.split(x, axis, &parts)?;
    if given.is_none() && call.int("keepdims", 1) == 0 {
        list = list.iter().map(|tensor| call.squeeze(*tensor, &[axis])).collect::<Result<_>>()?;
    }
    Ok(vec![Value::Sequence(list)])
}
