//! Shapes and views: what moves no element.

use crate::{
    call::axis_in,
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Shape", shape),
    ("Size", size),
    ("Reshape", reshape),
    ("Flatten", flatten),
    ("Squeeze", squeeze),
    ("Unsqueeze", unsqueeze),
    ("Transpose", transpose),
    ("Expand", expand),
    ("Identity", |call| {
        call.inputs.first().cloned().flatten().map(|value| vec![value]).ok_or_else(|| "input 0 is missing".into())
    }),
];

fn shape(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dims: Vec<i64> = call.dims(x)?.iter().map(|dim| *dim as i64).collect();
    let rank = dims.len() as i64;
    let clamp = |at: i64| (if at < 0 { at + rank } else { at }).clamp(0, rank) as usize;
    let (begin, end) = (clamp(call.int("start", 0)), clamp(call.int("end", rank)));
    one(call.vector(dims.get(begin..end).unwrap_or_default())?)
}

fn size(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let count = call.dims(x)?.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim)).ok_or("too many elements")?;
    one(call.ints_of_shape(&[count as i64], &[])?)
}

/// -1 stands for what the other sizes leave, 0 for the size of the operand unless `allowzero`.
fn reshape(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let wanted = match call.content_ints(1, "the shape")? {
        Some(wanted) => wanted,
        None => call.ints("shape").ok_or("the shape is missing")?,
    };
    let dims = call.dims(x)?;
    let copies = call.int("allowzero", 0) == 0;
    let mut shape = Vec::with_capacity(wanted.len());
    for (axis, size) in wanted.iter().enumerate() {
        shape.push(match size {
            0 if copies => Some(*dims.get(axis).ok_or_else(|| format!("0 at axis {axis} copies no size"))?),
            -1 => None,
            size => Some(u64::try_from(*size).map_err(|_| format!("{size} is not a size"))?),
        });
    }
    let known = shape.iter().flatten().try_fold(1u64, |n, size| n.checked_mul(*size)).ok_or("too many elements")?;
    let total: u64 = dims.iter().product();
    let rest = total.checked_div(known).unwrap_or(0);
    let shape: Vec<u64> = shape.into_iter().map(|size| size.unwrap_or(rest)).collect();
    if shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size)) != Some(total) {
        return Err(format!("{} elements cannot be reshaped to {wanted:?}", total));
    }
    one(call.reshape(x, &shape)?)
}

fn flatten(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dims = call.dims(x)?;
    let axis = call.int("axis", 1);
    let axis = if axis == dims.len() as i64 { dims.len() } else { axis_in(axis, dims.len().max(1))? };
    one(call.reshape(x, &[dims[..axis].iter().product(), dims[axis..].iter().product()])?)
}

/// Axes are an attribute until operator set 12.
fn axes(call: &Call<'_, '_>) -> Result<Option<Vec<i64>>> {
    match call.ints("axes") {
        Some(axes) => Ok(Some(axes)),
        None => call.content_ints(1, "the axes"),
    }
}

fn squeeze(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dims = call.dims(x)?;
    let axes: Vec<usize> = match axes(call)? {
        Some(axes) => axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?,
        None => (0..dims.len()).filter(|axis| dims[*axis] == 1).collect(),
    };
    one(call.squeeze(x, &axes)?)
}

fn unsqueeze(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axes = axes(call)?.ok_or("the axes are missing")?;
    let rank = call.rank(x) + axes.len();
    let mut axes: Vec<usize> = axes.iter().map(|axis| axis_in(*axis, rank)).collect::<Result<_>>()?;
    axes.sort_unstable();
    let mut made = x;
    for axis in axes {
        made = call.expand(made, axis, 1)?;
    }
    one(made)
}

fn transpose(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let rank = call.rank(x);
    let axes: Vec<usize> = match call.ints("perm") {
        Some(axes) => axes.iter().map(|axis| axis_in(*axis, rank)).collect::<Result<_>>()?,
        None => (0..rank).rev().collect(),
    };
    one(call.transpose(x, &axes)?)
}

/// Broadcasting in both directions.
fn expand(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let wanted = call.content_ints(1, "the shape")?.ok_or("the shape is missing")?;
    let dims = call.dims(x)?;
    let rank = wanted.len().max(dims.len());
    let at = |list: &[u64], axis: usize| (axis + list.len()).checked_sub(rank).map_or(1, |at| list[at]);
    let wanted: Vec<u64> = wanted
        .iter()
        .map(|size| u64::try_from(*size))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| "a size is negative".to_string())?;
    let shape: Vec<u64> = (0..rank)
        .map(|axis| match (at(&dims, axis), at(&wanted, axis)) {
            (1, size) | (size, 1) => Ok(size),
            (a, b) if a == b => Ok(a),
            (a, b) => Err(format!("sizes {a} and {b} of axis {axis} cannot be broadcast")),
        })
        .collect::<Result<_>>()?;
    one(call.broadcast(x, &shape)?)
}
