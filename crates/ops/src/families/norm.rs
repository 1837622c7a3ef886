//! Normalisations: with given statistics (batch), with statistics of the data (layer, instance, group), by norm
//! (`l2_normalize`) and by neighbouring channels (`lrn`).

use crate::{
    Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed,
    families::activation::vector_type,
    rules::{per_output, same_type, unify},
    split::{Join, SplitAxis, along_vectors, off},
};
use edgecut_graph::{Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.batch_norm", &["data", "gamma", "beta", "moving_mean", "moving_var"], batch_type)
        .attrs("relay.attrs.BatchNormAttrs", &affine("1"))
        .operand_types(vector_type)
        .class(FusionClass::OutFusable)
        .alias(Alias::InPlace)
        .flops(|call| call.tensor(0).ok().and_then(|t| t.shape.elements()).map_or(0, |n| n.saturating_mul(2)))
        .split(batch_axes)
        .wire(kernel!(batch_norm)),
    define("nn.layer_norm", "relay.attrs.LayerNormAttrs", &affine("-1"))
        .split(|call| {
            let axis = call.axis("axis", -1, &call.tensor(0)?.shape)?;
            along_vectors(call, axis, &[axis])
        })
        .wire(kernel!(layer_norm)),
    define("nn.instance_norm", "relay.attrs.InstanceNormAttrs", &affine("1"))
        .split(instance_axes)
        .wire(kernel!(instance_norm)),
    define(
        "nn.group_norm",
        "relay.attrs.GroupNormAttrs",
        &[
            AttrDef::new("num_groups", AttrKind::Int, "0"),
            AttrDef::new("axis", AttrKind::Int, "1"),
            AttrDef::new("epsilon", AttrKind::Float, "1e-05f"),
            AttrDef::new("center", AttrKind::Bool, "True"),
            AttrDef::new("scale", AttrKind::Bool, "True"),
        ],
    )
    .split(group_axes)
    .wire(kernel!(group_norm)),
    OpDef::new("nn.l2_normalize", &["data"], same_type)
        .attrs(
            "relay.attrs.L2NormalizeAttrs",
            &[AttrDef::required("eps", AttrKind::Float), AttrDef::required("axis", AttrKind::OptionalInts)],
        )
        .class(FusionClass::Opaque)
        .flops(per_output::<3>)
        .split(|call| {
            let shape = &call.tensor(0)?.shape;
            let axes = call.ints("axis")?.unwrap_or_default();
            match axes.is_empty() {
                true => Ok(Vec::new()),
                false => off(call, &axes.iter().map(|a| call.axis_in(*a, shape)).collect::<Result<Vec<_>, _>>()?),
            }
        })
        .wire(kernel!(l2_normalize)),
    OpDef::new("nn.lrn", &["data"], |call| {
        let data = call.tensor(0)?;
        call.axis("axis", 1, &data.shape)?;
        Ok(data.clone().into())
    })
    .attrs(
        "relay.attrs.LRNAttrs",
        &[
            AttrDef::new("size", AttrKind::Int, "5"),
            AttrDef::new("axis", AttrKind::Int, "1"),
            AttrDef::new("bias", AttrKind::Float, "2f"),
            AttrDef::new("alpha", AttrKind::Float, "0.0001f"),
            AttrDef::new("beta", AttrKind::Float, "0.75f"),
        ],
    )
    .flops(|call| {
        let window = call.int("size", 5).ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        per_output::<1>(call).saturating_mul(window.saturating_add(crate::rules::FUNCTION_COST))
    })
    .split(|call| off(call, &[call.axis("axis", 1, &call.tensor(0)?.shape)?]))
    .onnx()
    .wire(kernel!(lrn)),
];

const fn affine(axis: &'static str) -> [AttrDef; 4] {
    [
        AttrDef::new("axis", AttrKind::Int, axis),
        AttrDef::new("epsilon", AttrKind::Float, "1e-05f"),
        AttrDef::new("center", AttrKind::Bool, "True"),
        AttrDef::new("scale", AttrKind::Bool, "True"),
    ]
}

/// A normalisation with statistics of the data.
const fn define(name: &'static str, attrs_key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
    OpDef::new(name, &["data", "gamma", "beta"], |call| {
        checked(call, 2)?;
        Ok(call.tensor(0)?.clone().into())
    })
    .attrs(attrs_key, attrs)
    .operand_types(vector_type)
    .flops(per_output::<8>)
}

/// The axis of the data along which the `count` operands after it must be vectors.
fn checked(call: &Call<'_>, count: usize) -> Result<usize, TypeError> {
    let data = call.tensor(0)?;
    let default = if call.def.name == "nn.layer_norm" { -1 } else { 1 };
    let axis = call.axis("axis", default, &data.shape)?;
    for index in 1..=count {
        match call.tensor(index)?.shape[..] {
            [n] if unify(n, data.shape[axis]).is_some() => {}
            _ => {
                let (name, found) = (call.def.operands[index], call.tensor(index)?);
                return Err(call.error(format!("{name} is {found}, expected a vector of {}", data.shape[axis])));
            }
        }
    }
    Ok(axis)
}

/// Every axis of the data. Statistics are sliced by a split of the channels and pass through otherwise.
fn batch_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let axis = call.axis("axis", 1, &call.tensor(0)?.shape)?;
    let mut axes = along_vectors(call, axis, &[])?;
    for split in &mut axes {
        let Join::Axis(outputs) = &mut split.join else { continue };
        let vectors = if outputs.first() == Some(&Some(axis)) { Some(0) } else { None };
        outputs.iter_mut().skip(1).for_each(|output| *output = vectors);
    }
    Ok(axes)
}

/// The batch axis and the channels.
fn instance_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let axis = call.axis("axis", 1, shape)?;
    along_vectors(call, axis, &(1..shape.rank()).filter(|a| *a != axis).collect::<Vec<_>>())
}

/// The batch axis and groups of channels.
fn group_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    let axis = call.axis("axis", 1, shape)?;
    let groups = u64::try_from(call.int("num_groups", 0)?).ok().filter(|n| *n > 0);
    let size = groups.zip(shape[axis].get()).map_or(0, |(groups, channels)| channels / groups);
    let axes = along_vectors(call, axis, &(1..shape.rank()).filter(|a| *a != axis || size == 0).collect::<Vec<_>>())?;
    let grouped = |split: SplitAxis| match &split.join {
        Join::Axis(outputs) if outputs[..] == [Some(axis)] => split.grain(size).attr("num_groups", move |range| {
            edgecut_graph::Attr::Int(((range.end - range.start) / size.max(1)) as i64)
        }),
        _ => split,
    };
    Ok(axes.into_iter().map(grouped).collect())
}

fn batch_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let axis = checked(call, 4)?;
    let vector = TensorType::new(data.dtype, Shape::from_iter([data.shape[axis]]));
    Ok(Type::Tuple(vec![data.clone().into(), vector.clone().into(), vector.into()]))
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::{
        math,
        nn::{Reduce, Reducer},
    };

    use crate::kernel::{
        Wiring,
        moments::{NormGroups, local_response, normalised},
        recipe::Recipe,
    };

    /// `x · s + t` with `s = gamma / √(var + ε)` and `t = beta − mean · s`, which tract constant-folds and, where possible,
    /// fuses into the preceding convolution. The statistics pass through.
    pub(super) fn batch_norm(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let &[data, gamma, beta, mean, variance] = inputs else { bail!("batch normalisation has five operands") };
        let axis = call.axis("axis", 1, &call.tensor(0)?.shape)?;
        let fact = wiring.fact(data)?;
        let (dtype, rank) = (fact.datum_type, fact.rank());
        let wide = if dtype == DatumType::F64 { DatumType::F64 } else { DatumType::F32 };
        let mut vector = |outlet| wiring.cast(outlet, wide);
        let (gamma, beta, mean, local_response) = (vector(gamma)?, vector(beta)?, vector(mean)?, vector(variance)?);
        let epsilon = tensor1(&[call.float("epsilon", 1e-5)?]).cast_to_dt(wide)?.into_owned();
        let epsilon = wiring.constant(epsilon)?;
        let local_response = wiring.one(math::add(), &[local_response, epsilon])?;
        let mut scale = wiring.one(math::rsqrt(), &[local_response])?;
        if call.flag("scale", true)? {
            scale = wiring.one(math::mul(), &[scale, gamma])?;
        }
        let shifted = wiring.one(math::mul(), &[mean, scale])?;
        let shift = match call.flag("center", true)? {
            true => wiring.one(math::sub(), &[beta, shifted])?,
            false => wiring.one(math::neg(), &[shifted])?,
        };
        let (scale, shift) = (wiring.cast(scale, dtype)?, wiring.cast(shift, dtype)?);
        let (scale, shift) = (wiring.along(scale, axis, rank)?, wiring.along(shift, axis, rank)?);
        let scaled = wiring.one(math::mul(), &[data, scale])?;
        Ok(tvec![wiring.one(math::add(), &[scaled, shift])?, inputs[3], inputs[4]])
    }

    pub(super) fn layer_norm(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let axis = checked(call, 2)?;
        let last = wiring.fact(inputs[0])?.rank() - 1;
        let channels = wiring.concrete(inputs[0])?[axis];
        by_statistics(wiring, call, inputs, (axis, last), NormGroups { count: 1, channels, inner: 1 })
    }

    pub(super) fn instance_norm(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let axis = checked(call, 2)?;
        let shape = wiring.concrete(inputs[0])?;
        let inner = shape.iter().enumerate().filter(|(i, _)| *i != axis && *i != 0).map(|(_, n)| n).product();
        by_statistics(wiring, call, inputs, (axis, 1), NormGroups { count: shape[axis], channels: 1, inner })
    }

    /// Statistics over a group of channels and all axes after the channels.
    pub(super) fn group_norm(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let axis = checked(call, 2)?;
        let shape = wiring.concrete(inputs[0])?;
        let count = usize::try_from(call.int("num_groups", 0)?).ok().filter(|n| *n > 0 && shape[axis] % n == 0);
        let count = count.with_context(|| format!("num_groups must divide the {} channels", shape[axis]))?;
        let inner = shape[axis + 1..].iter().product();
        by_statistics(wiring, call, inputs, (axis, axis), NormGroups { count, channels: shape[axis] / count, inner })
    }

    /// Moves axis `moved.0` to `moved.1`, which makes the groups contiguous, normalises them, and moves it back.
    fn by_statistics(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        moved: (usize, usize),
        groups: NormGroups,
    ) -> TractResult<TVec<OutletId>> {
        let (from, to) = moved;
        let given = wiring.fact(inputs[0])?.datum_type;
        let wide = if given == DatumType::F64 { DatumType::F64 } else { DatumType::F32 };
        let mut operands = tvec![];
        for (index, input) in inputs.iter().enumerate() {
            let mut at = wiring.cast(*input, wide)?;
            if index == 0 && from != to {
                at = wiring.one(AxisOp::Move(from, to), &[at])?;
            }
            operands.push(at);
        }
        let epsilon = call.float("epsilon", 1e-5)?;
        let (scale, center) = (call.flag("scale", true)?, call.flag("center", true)?);
        let fact = wiring.fact(operands[0])?.without_value();
        let recipe = Recipe::Normalise { groups, epsilon, scale, center };
        let mut made =
            wiring.with_recipe("Normalise", Some(recipe), tvec![fact], &operands, move |inputs| match wide {
                DatumType::F64 => normalised::<f64>(inputs, groups, epsilon, scale, center),
                _ => normalised::<f32>(inputs, groups, epsilon as f32, scale, center),
            })?[0];
        if from != to {
            made = wiring.one(AxisOp::Move(to, from), &[made])?;
        }
        Ok(tvec![wiring.cast(made, given)?])
    }

    /// `x / √max(Σx², ε)` over the given axes; over all if none is given.
    pub(super) fn l2_normalize(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let shape = &call.tensor(0)?.shape;
        let given = wiring.fact(inputs[0])?.datum_type;
        let axes = match call.ints("axis")? {
            Some(axes) => axes.iter().map(|a| call.axis_in(*a, shape)).collect::<Result<TVec<usize>, _>>()?,
            None => (0..shape.rank()).collect(),
        };
        let wide = if given == DatumType::F64 { DatumType::F64 } else { DatumType::F32 };
        let data = wiring.cast(inputs[0], wide)?;
        let squares = wiring.one(math::mul(), &[data, data])?;
        let sums = wiring.one(Reduce::new(axes, Reducer::Sum), &[squares])?;
        let mut least = tensor0(call.float("eps", 0.0)?).cast_to_dt(wide)?.into_owned();
        least.broadcast_to_rank(shape.rank())?;
        let least = wiring.constant(least)?;
        let bounded = wiring.one(math::max(), &[sums, least])?;
        let scale = wiring.one(math::rsqrt(), &[bounded])?;
        let made = wiring.one(math::mul(), &[data, scale])?;
        Ok(tvec![wiring.cast(made, given)?])
    }

    /// `x / (bias + alpha / size · Σx²)^beta`; the sum is over `size` neighbours along one axis.
    pub(super) fn lrn(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let axis = call.axis("axis", 1, &call.tensor(0)?.shape)?;
        let size = usize::try_from(call.int("size", 5)?).ok().filter(|n| *n > 0).context("size must be positive")?;
        // In ONNX the longer half of an even window follows the element.
        let window = (size, if call.is_onnx() { (size - 1) / 2 } else { size / 2 });
        let (bias, alpha, beta) = (call.float("bias", 2.0)?, call.float("alpha", 1e-4)?, call.float("beta", 0.75)?);
        let shape = wiring.concrete(inputs[0])?;
        let (channels, inner) = (shape[axis], shape[axis + 1..].iter().product());
        let given = wiring.fact(inputs[0])?.datum_type;
        let wide = if given == DatumType::F64 { DatumType::F64 } else { DatumType::F32 };
        let data = wiring.cast(inputs[0], wide)?;
        let fact = wiring.fact(data)?.without_value();
        let made = wiring.custom("Lrn", tvec![fact], &[data], move |inputs| match wide {
            DatumType::F64 => local_response::<f64>(&inputs[0], channels, inner, window, [bias, alpha, beta]),
            _ => local_response::<f32>(&inputs[0], channels, inner, window, [bias as f32, alpha as f32, beta as f32]),
        })?[0];
        Ok(tvec![wiring.cast(made, given)?])
    }
}
