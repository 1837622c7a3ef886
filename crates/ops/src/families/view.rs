//! Views: `reshape`, `squeeze`, `expand_dims`, `nn.batch_flatten` and their variants. The result shares its operand's
//! storage; nothing is computed or copied.

use crate::rules::unify;
use crate::split::{Linearity, SplitAxis, gcd, with_entry};
use crate::{Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Attr, Dim, Shape, TensorType, Type};

pub(crate) const RESHAPE_ATTRS: &[AttrDef] =
    &[AttrDef::required("newshape", AttrKind::Ints), AttrDef::new("allowzero", AttrKind::Bool, "False")];

pub(crate) static OPS: &[OpDef] = &[
    view("reshape", &["data"], |call| reshaped(call, false))
        .attrs("relay.attrs.ReshapeAttrs", RESHAPE_ATTRS)
        .split(|call| common_axes(call, Some("newshape"))),
    view("contrib_reverse_reshape", &["data"], |call| reshaped(call, true))
        .attrs("relay.attrs.ReshapeAttrs", RESHAPE_ATTRS)
        .split(|call| common_axes(call, Some("newshape"))),
    view("reshape_like", &["data", "shape_like"], reshaped_like).attrs(
        "relay.attrs.ReshapeLikeAttrs",
        &[
            AttrDef::new("lhs_begin", AttrKind::Int, "0"),
            AttrDef::new("lhs_end", AttrKind::OptionalInt, "None"),
            AttrDef::new("rhs_begin", AttrKind::Int, "0"),
            AttrDef::new("rhs_end", AttrKind::OptionalInt, "None"),
        ],
    ),
    view("squeeze", &["data"], squeezed)
        .attrs("relay.attrs.SqueezeAttrs", &[AttrDef::new("axis", AttrKind::OptionalInts, "None")])
        .split(squeeze_axes),
    view("expand_dims", &["data"], expanded)
        .class(FusionClass::Broadcast)
        .attrs(
            "relay.attrs.ExpandDimsAttrs",
            &[AttrDef::required("axis", AttrKind::Int), AttrDef::new("num_newaxis", AttrKind::Int, "1")],
        )
        .split(|call| common_axes(call, None)),
    view("nn.batch_flatten", &["data"], flattened).split(|call| common_axes(call, None)),
];

const fn view(
    name: &'static str,
    operands: &'static [&'static str],
    infer: fn(&Call<'_>) -> Result<Type, TypeError>,
) -> OpDef {
    OpDef::new(name, operands, infer)
        .class(FusionClass::Injective)
        .alias(Alias::View)
        .linearity(Linearity::Linear(&[0]))
        .wire(kernel!(reshape))
}

/// The axes of the result whose slices are slices of the operand: those that begin where an axis of the operand begins.
/// Merged and divided axes can be cut where both shapes have a boundary. A shard has its own shape in the attribute `key`.
fn common_axes(call: &Typed<'_>, key: Option<&'static str>) -> Result<Vec<SplitAxis>, TypeError> {
    let (from, to) = (&call.tensor(0)?.shape, &call.result()?.shape);
    let (Some(from), Some(to)) = (from.fixed(), to.fixed()) else { return Ok(Vec::new()) };
    if from.contains(&0) {
        return Ok(Vec::new());
    }
    let before = |dims: &[u64], axis: usize| dims[..axis].iter().product::<u64>();
    let within = |dims: &[u64], axis: usize| dims[axis + 1..].iter().product::<u64>();
    let axis = |axis: usize| {
        let source = (0..from.len()).find(|i| from[*i] > 1 && before(&from, *i) == before(&to, axis))?;
        let (ours, theirs) = (within(&to, axis), within(&from, source));
        let common = gcd(ours, theirs);
        let split = SplitAxis::along(call, axis).scaled(0, source, ours / common, theirs / common);
        let sizes: Vec<i64> = to.iter().map(|n| *n as i64).collect();
        Some(match key {
            Some(key) => split.attr(key, move |range| with_entry(&sizes, axis, (range.end - range.start) as i64)),
            None => split,
        })
    };
    Ok((0..to.len()).filter(|axis| to[*axis] > 1).filter_map(axis).collect())
}

/// As [`common_axes`], with an explicit attribute `axis`, because a shard may have further axes of length 1.
fn squeeze_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let axes = match call.ints("axis")? {
        Some(axes) => axes,
        None => (0i64..).zip(shape.iter()).filter(|(_, d)| d.get() == Some(1)).map(|(axis, _)| axis).collect(),
    };
    let written = Attr::List(axes.into_iter().map(Attr::Int).collect());
    let named = |split: SplitAxis| {
        let written = written.clone();
        split.attr("axis", move |_| written.clone())
    };
    Ok(common_axes(call, None)?.into_iter().map(named).collect())
}

fn reshaped(call: &Call<'_>, reverse: bool) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let codes = call.ints("newshape")?.ok_or_else(|| call.error("newshape is missing"))?;
    let shape = new_shape(call, &data.shape, &codes, reverse)?;
    same_elements(call, &data.shape, &shape)?;
    Ok(TensorType::new(data.dtype, shape).into())
}

/// The shape that `reshape`'s codes specify, as in TVM's `InferNewShape`: a positive number is a dimension, 0 copies the
/// source's, -1 is inferred, -2 copies the remaining ones, -3 merges two, -4 splits one.
pub(crate) fn new_shape(call: &Call<'_>, source: &Shape, codes: &[i64], reverse: bool) -> Result<Shape, TypeError> {
    let allow_zero = call.flag("allowzero", false)?;
    let mut source = source.to_vec();
    let mut codes = codes.to_vec();
    if reverse {
        source.reverse();
        codes.reverse();
    }
    let mut out: Vec<Dim> = Vec::new();
    let (mut copied_in, mut copied_out) = (vec![false; source.len()], Vec::new());
    let (mut at, mut inferred) = (0, None);
    let take = |at: &mut usize, copied_in: &mut Vec<bool>, code: i64| -> Result<Dim, TypeError> {
        let dim = source.get(*at).copied().ok_or_else(|| {
            call.error(format!("code {code} refers to dimension {at} of a tensor of rank {}", source.len()))
        })?;
        copied_in[*at] = true;
        *at += 1;
        Ok(dim)
    };
    let mut rest = codes.iter().copied();
    while let Some(code) = rest.next() {
        match code {
            0 if !allow_zero => {
                copied_out.push(out.len());
                out.push(take(&mut at, &mut copied_in, 0)?);
            }
            -1 => {
                if inferred.replace(out.len()).is_some() {
                    return Err(call.error("newshape has more than one -1"));
                }
                out.push(Dim::Known(1));
                at += 1;
            }
            -2 => {
                while at < source.len() {
                    copied_out.push(out.len());
                    out.push(take(&mut at, &mut copied_in, -2)?);
                }
            }
            -3 => {
                let (a, b) = (take(&mut at, &mut copied_in, -3)?, take(&mut at, &mut copied_in, -3)?);
                copied_out.push(out.len());
                out.push(a.get().zip(b.get()).and_then(|(a, b)| times(a, b)).into());
            }
            -4 => {
                let whole = take(&mut at, &mut copied_in, -4)?;
                let (Some(left), Some(right)) = (rest.next(), rest.next()) else {
                    return Err(call.error("code -4 must be followed by two dimensions"));
                };
                copied_out.extend([out.len(), out.len() + 1]);
                out.extend(split_dim(whole, left, right).ok_or_else(|| {
                    call.error(format!("code -4 cannot split a dimension of {whole} into {left} and {right}"))
                })?);
            }
            size => {
                let size = u64::try_from(size).map_err(|_| call.error(format!("{size} is not a reshape code")))?;
                out.push(Dim::Known(size));
                at += 1;
            }
        }
    }
    if let Some(place) = inferred {
        let left_in = (0..source.len()).filter(|i| !copied_in[*i]).map(|i| source[i].get());
        let left_out = (0..out.len()).filter(|i| !copied_out.contains(i)).map(|i| out[i].get());
        out[place] = match (product(left_in), product(left_out)) {
            (Some(_), Some(0)) => return Err(call.error("-1 cannot be inferred next to a dimension of 0")),
            (Some(total), Some(known)) => Dim::Known(total / known),
            _ => Dim::Any,
        };
    }
    if reverse {
        out.reverse();
    }
    Ok(out.into_iter().collect())
}

/// The product, if it is a valid dimension: at most 2⁶³ − 1.
fn times(a: u64, b: u64) -> Option<u64> {
    a.checked_mul(b).filter(|n| i64::try_from(*n).is_ok())
}

fn product(mut dims: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    dims.try_fold(1u64, |n, d| times(n, d?))
}

/// The two dimensions into which code -4 splits `whole`; one of them may be -1.
fn split_dim(whole: Dim, left: i64, right: i64) -> Option<[Dim; 2]> {
    let given = |n: i64| u64::try_from(n).ok();
    let other = |n: u64| (n != 0).then(|| whole.get().map(|w| w / n).into());
    match (left, right) {
        (-1, -1) => None,
        (-1, right) => Some([other(given(right)?)?, Dim::Known(given(right)?)]),
        (left, -1) => Some([Dim::Known(given(left)?), other(given(left)?)?]),
        (left, right) => Some([Dim::Known(given(left)?), Dim::Known(given(right)?)]),
    }
}

fn same_elements(call: &Call<'_>, from: &Shape, to: &Shape) -> Result<(), TypeError> {
    match (from.elements(), to.elements()) {
        (Some(a), Some(b)) if a != b => Err(call.error(format!("shape {from} has {a} elements, shape {to} has {b}"))),
        _ => Ok(()),
    }
}

fn reshaped_like(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, like) = (call.tensor(0)?, call.tensor(1)?);
    let (left, right) = (&data.shape, &like.shape);
    let lhs = (bound(call, "lhs_begin", 0, left)?, bound(call, "lhs_end", left.rank() as i64, left)?);
    let rhs = (bound(call, "rhs_begin", 0, right)?, bound(call, "rhs_end", right.rank() as i64, right)?);
    if lhs.0 > lhs.1 || rhs.0 > rhs.1 {
        return Err(call.error("a range of dimensions is empty"));
    }
    let shape: Shape = left[..lhs.0].iter().chain(&right[rhs.0..rhs.1]).chain(&left[lhs.1..]).copied().collect();
    same_elements(call, left, &shape)?;
    Ok(TensorType::new(data.dtype, shape).into())
}

/// The attribute `key` as a position between dimensions; negative counts from the end.
fn bound(call: &Call<'_>, key: &str, default: i64, shape: &Shape) -> Result<usize, TypeError> {
    let (value, rank) = (call.int(key, default)?, shape.rank() as i64);
    let index = if value < 0 { value + rank } else { value };
    usize::try_from(index)
        .ok()
        .filter(|i| *i <= shape.rank())
        .ok_or_else(|| call.error(format!("{key}={value} is out of range for rank {rank}")))
}

fn squeezed(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let drop: Vec<bool> = match call.ints("axis")? {
        Some(axes) => drop_axes(call, &data.shape, &axes)?,
        None if data.shape.contains(&Dim::Any) => {
            return Err(call.error("axis is required where a dimension is unknown"));
        }
        None => data.shape.iter().map(|d| d.get() == Some(1)).collect(),
    };
    let kept = data.shape.iter().zip(drop).filter(|(_, drop)| !drop).map(|(dim, _)| *dim);
    Ok(TensorType::new(data.dtype, kept.collect()).into())
}

/// By dimension: whether `axes` drops it. A dropped dimension must be 1 or unknown.
pub(crate) fn drop_axes(call: &Call<'_>, shape: &Shape, axes: &[i64]) -> Result<Vec<bool>, TypeError> {
    let mut drop = vec![false; shape.rank()];
    for &axis in axes {
        let index = call.axis_in(axis, shape)?;
        if unify(shape[index], Dim::Known(1)).is_none() {
            return Err(call.error(format!("axis {axis} of shape {shape} is not 1, so it cannot be squeezed")));
        }
        drop[index] = true;
    }
    Ok(drop)
}

fn expanded(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let rank = data.shape.rank() as i64;
    let axis = call.optional_int("axis")?.ok_or_else(|| call.error("axis is missing"))?;
    let count = call.int("num_newaxis", 1)?;
    let at = if axis < 0 { axis + rank + 1 } else { axis };
    if !(0..=rank).contains(&at) || !(0..=32).contains(&count) {
        return Err(call.error(format!("cannot insert {count} axes at {axis} into a tensor of rank {rank}")));
    }
    let mut shape = data.shape.clone();
    for _ in 0..count {
        shape.insert(at as usize, Dim::Known(1));
    }
    Ok(TensorType::new(data.dtype, shape).into())
}

fn flattened(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let Some((batch, rest)) = data.shape.split_first() else {
        return Err(call.error("a tensor of rank 0 has no batch axis"));
    };
    let rest = product(rest.iter().map(|d| d.get()));
    Ok(TensorType::new(data.dtype, [*batch, rest.into()].into_iter().collect()).into())
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::Wiring;

    /// Reshapes the first operand to the shape of the result.
    pub(crate) fn reshape(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        Ok(tvec!(wiring.reshape(inputs[0], &call.dims()?)?))
    }
}
