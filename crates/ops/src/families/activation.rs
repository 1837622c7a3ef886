//! Activations, `nn.bias_add` and `nn.dropout`.

use crate::{
    Alias, AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError,
    rules::{per_output, same_type, unify},
    split::{Linearity, along_vectors, elementwise, off},
};
use edgecut_graph::{Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.relu", &["data"], same_type)
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(elementwise)
        .onnx()
        .wire(kernel!(relu)),
    OpDef::new("nn.leaky_relu", &["data"], same_type)
        .attrs("relay.attrs.LeakyReluAttrs", &[AttrDef::new("alpha", AttrKind::Float, "0.25f")])
        .class(FusionClass::Elementwise)
        .alias(Alias::InPlace)
        .flops(per_output::<2>)
        .split(elementwise)
        .wire(kernel!(leaky)),
    OpDef::new("nn.prelu", &["data", "alpha"], |call| with_vector(call, "alpha"))
        .attrs("relay.attrs.PReluAttrs", &[AttrDef::new("axis", AttrKind::Int, "1")])
        .operand_types(vector_type)
        .class(FusionClass::Broadcast)
        .alias(Alias::InPlace)
        .flops(per_output::<2>)
        .split(|call| along_vectors(call, call.axis("axis", 1, &call.tensor(0)?.shape)?, &[]))
        .wire(kernel!(prelu)),
    OpDef::new("nn.bias_add", &["data", "bias"], |call| with_vector(call, "bias"))
        .attrs("relay.attrs.BiasAddAttrs", &[AttrDef::new("axis", AttrKind::Int, "1")])
        .operand_types(vector_type)
        .class(FusionClass::Broadcast)
        .alias(Alias::InPlace)
        .flops(per_output::<1>)
        .split(|call| along_vectors(call, call.axis("axis", 1, &call.tensor(0)?.shape)?, &[]))
        .linearity(Linearity::Offset(&[0]))
        .wire(kernel!(bias_add)),
    OpDef::new("nn.dropout", &["data"], |call| {
        let data = Type::from(call.tensor(0)?.clone());
        Ok(Type::Tuple(vec![data.clone(), data]))
    })
    .attrs("relay.attrs.DropoutAttrs", &[AttrDef::new("rate", AttrKind::Float, "0.5f")])
    .alias(Alias::View)
    .split(|call| off(call, &[]))
    .wire(kernel!(dropout)),
];

/// The type of data combined with a vector along the attribute `axis`.
fn with_vector(call: &Call<'_>, what: &str) -> Result<Type, TypeError> {
    let (data, vector) = (call.tensor(0)?, call.tensor(1)?);
    let size = data.shape[call.axis("axis", 1, &data.shape)?];
    match vector.shape[..] {
        [n] if unify(n, size).is_some() => Ok(data.clone().into()),
        _ => Err(call.error(format!("{what} is {vector}, expected a vector of {size}"))),
    }
}

/// Types every unknown operand after the data as a vector along the attribute `axis`.
pub(crate) fn vector_type(call: &Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError> {
    let [Some(Type::Tensor(data)), vectors @ ..] = known else { return Ok(()) };
    let axis = call.axis("axis", default_axis(call), &data.shape)?;
    let vector = TensorType::new(data.dtype, [data.shape[axis]].into_iter().collect::<edgecut_graph::Shape>());
    if data.shape[axis] != Dim::Any {
        vectors.iter_mut().filter(|v| v.is_none()).for_each(|v| *v = Some(vector.clone().into()));
    }
    Ok(())
}

/// The schema's default of the attribute `axis`.
fn default_axis(call: &Call<'_>) -> i64 {
    let default = call.def.attrs.iter().find(|a| a.name == "axis").and_then(|a| a.default);
    default.and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[cfg(feature = "kernels")]
mod kernel {
    use tract_core::internal::*;
    use tract_core::ops::{array::MultiBroadcastTo, math, nn::leaky_relu};

    use crate::{
        Typed,
        kernel::{
            Wiring,
            element::{Number, for_dtype},
            pointwise::maximum,
        },
    };

    impl Wiring<'_> {
        /// A vector reshaped to rank `rank`, along `axis`, with length 1 elsewhere.
        pub(crate) fn along(&mut self, vector: OutletId, axis: usize, rank: usize) -> TractResult<OutletId> {
            let mut shape = vec![1; rank];
            *shape.get_mut(axis).context("the axis is out of range")? = self.concrete(vector)?.iter().product();
            self.reshape(vector, &shape)
        }
    }

    /// `max(x, 0)`; in ONNX NaN stays NaN.
    pub(super) fn relu(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?;
        let (rank, dtype) = (fact.rank(), fact.datum_type);
        let zero = Tensor::zero_dt(dtype, &vec![1; rank])?;
        let zero = wiring.constant(zero)?;
        let keeps_nan = call.is_onnx() && dtype.is_float();
        wiring.wire(if keeps_nan { maximum() } else { math::max() }, &[inputs[0], zero])
    }

    /// `x > 0 ? x : alpha · x`.
    pub(super) fn leaky(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let alpha = call.float("alpha", 0.25)?;
        let fact = wiring.fact(inputs[0])?.without_value();
        if matches!(fact.datum_type, DatumType::F32 | DatumType::F16) {
            return wiring.wire(leaky_relu(alpha as f32), inputs);
        }
        let dtype = fact.datum_type;
        wiring.custom(
            "LeakyRelu",
            tvec![fact],
            inputs,
            move |inputs| for_dtype!(dtype, T in number => sloped::<T>(&inputs[0], &[T::of_f64(alpha)], 1)),
        )
    }

    /// `x > 0 ? x : alpha · x` with one `alpha` per index of an axis.
    pub(super) fn prelu(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?.without_value();
        let axis = call.axis("axis", 1, &call.tensor(0)?.shape)?;
        let inner = wiring.concrete(inputs[0])?[axis + 1..].iter().product();
        let dtype = fact.datum_type;
        wiring.custom("PRelu", tvec![fact], inputs, move |inputs| {
            for_dtype!(dtype, T in number => {
                sloped::<T>(&inputs[0], inputs[1].try_as_plain_ram()?.as_slice::<T>()?, inner)
            })
        })
    }

    /// Consecutive runs of `inner` elements use consecutive slopes, cyclically.
    fn sloped<T: Number>(data: &Tensor, slopes: &[T], inner: usize) -> TractResult<TVec<Tensor>> {
        let mut result = data.clone();
        {
            let mut plain = result.try_as_plain_ram_mut()?;
            for (run, slope) in plain.as_slice_mut::<T>()?.chunks_mut(inner.max(1)).zip(slopes.iter().cycle()) {
                run.iter_mut().for_each(|x| *x = if *x > T::default() { *x } else { x.mul(*slope) });
            }
        }
        Ok(tvec![result])
    }

    pub(super) fn bias_add(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let axis = call.axis("axis", 1, &call.tensor(0)?.shape)?;
        let rank = wiring.fact(inputs[0])?.rank();
        let bias = wiring.along(inputs[1], axis, rank)?;
        wiring.wire(math::add(), &[inputs[0], bias])
    }

    /// The identity, in inference. The mask of ones is wired only if it is read.
    pub(super) fn dropout(
        wiring: &mut Wiring<'_>,
        _call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let fact = wiring.fact(inputs[0])?;
        let (dtype, shape) = (fact.datum_type, fact.shape.clone());
        let one = Tensor::zero_scalar_dt(dtype)?;
        let one = tensor0(1u8).cast_to_dt(dtype).map(|t| t.into_owned()).unwrap_or(one);
        let one = wiring.constant(one)?;
        let mask = wiring.one(MultiBroadcastTo { shape }, &[one])?;
        Ok(tvec![inputs[0], mask])
    }
}
