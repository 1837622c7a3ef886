//! Tensors created from shapes and scalars: `zeros`, `ones`, `full` and their variants, `arange`, `shape_of`,
//! `ndarray_size`.

use crate::families::broadcast::{INIT_ATTRS, shape_attr};
use crate::rules::{per_output, same_type};
use crate::split::{SplitAxis, elementwise_on};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Attr, DType, Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("zeros", &[], init_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .split(filled_axes)
        .wire(kernel!(|w, c, _| uniform(w, c, 0))),
    OpDef::new("ones", &[], init_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .split(filled_axes)
        .wire(kernel!(|w, c, _| uniform(w, c, 1))),
    OpDef::new("zeros_like", &["data"], same_type)
        .class(FusionClass::Elementwise)
        .split(|call| elementwise_on(call, &[0]))
        .wire(kernel!(|w, c, _| uniform(w, c, 0))),
    OpDef::new("ones_like", &["data"], same_type)
        .class(FusionClass::Elementwise)
        .split(|call| elementwise_on(call, &[0]))
        .wire(kernel!(|w, c, _| uniform(w, c, 1))),
    OpDef::new("full", &["fill_value"], full_type)
        .attrs("relay.attrs.InitOpAttrs", INIT_ATTRS)
        .class(FusionClass::Elementwise)
        .split(filled_axes)
        .wire(kernel!(|w, c, i| filled(w, c, i[0]))),
    OpDef::new("full_like", &["data", "fill_value"], same_type)
        .class(FusionClass::Elementwise)
        .split(|call| elementwise_on(call, &[0]))
        .wire(kernel!(|w, c, i| filled(w, c, i[1]))),
    OpDef::new("arange", &["start", "end", "step"], arange_type)
        .attrs(
            "relay.attrs.ArangeAttrs",
            &[
                AttrDef::required("start", AttrKind::Object),
                AttrDef::required("stop", AttrKind::Object),
                AttrDef::required("step", AttrKind::Object),
                AttrDef::required("dtype", AttrKind::DType),
            ],
        )
        .flops(per_output::<2>)
        .host(kernel!(arange)),
    OpDef::new("shape_of", &["data"], shape_of_type)
        .attrs("relay.attrs.ShapeOfAttrs", &[AttrDef::new("dtype", AttrKind::DType, "\"\"")])
        .wire(kernel!(shape_of)),
    OpDef::new("vm.shape_of", &["tensor"], shape_of_type)
        .attrs("relay.attrs.ShapeOfAttrs", &[AttrDef::new("dtype", AttrKind::DType, "\"\"")])
        .wire(kernel!(shape_of)),
    OpDef::new("ndarray_size", &["data"], size_type)
        .attrs("relay.attrs.NdarraySizeAttrs", &[AttrDef::new("dtype", AttrKind::DType, "\"\"")])
        .class(FusionClass::Injective)
        .wire(kernel!(size)),
];

/// Every axis; a shard has its own attribute `shape`.
fn filled_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.result()?.shape;
    Ok((0..shape.rank()).map(|axis| SplitAxis::along(call, axis).attr("shape", shape_attr(shape, axis))).collect())
}

fn init_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(DType::F32), shape).into())
}

fn full_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let value = call.tensor(0)?;
    if value.shape.rank() != 0 {
        return Err(call.error(format!("fill_value is {value}, expected a scalar")));
    }
    let shape = call.shape("shape")?.ok_or_else(|| call.error("shape is missing"))?;
    Ok(TensorType::new(call.dtype("dtype")?.unwrap_or(value.dtype), shape).into())
}

/// Start, stop and step: the operands' values, else the attributes that duplicate them.
fn range(call: &Call<'_>) -> Option<[f64; 3]> {
    let number = |index: usize, key: &str| -> Option<f64> {
        let value = call.value(index).and_then(|v| v.to_f64s());
        let value = value.or_else(|| match call.attr(key)? {
            Attr::Tensor(tensor) => tensor.to_f64s(),
            other => other.float().map(|x| vec![x]),
        });
        value?.first().copied()
    };
    Some([number(0, "start")?, number(1, "stop")?, number(2, "step")?])
}

/// Length `⌈(stop − start) / step⌉` if the bounds are known.
fn arange_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let dtype = call.dtype("dtype")?.unwrap_or(call.tensor(0)?.dtype);
    let length = match range(call) {
        Some([start, stop, step]) => {
            let length = ((stop - start) / step).ceil();
            if !(0.0..9e15).contains(&length) {
                return Err(call.error(format!("{start} to {stop} by {step} is not a valid range")));
            }
            Dim::Known(length as u64)
        }
        None => Dim::Any,
    };
    Ok(TensorType::new(dtype, [length].into_iter().collect()).into())
}

fn shape_of_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let rank = call.tensor(0)?.shape.rank() as u64;
    Ok(TensorType::of(call.dtype("dtype")?.unwrap_or(DType::I32), &[rank]).into())
}

fn size_type(call: &Call<'_>) -> Result<Type, TypeError> {
    Ok(TensorType::of(call.dtype("dtype")?.unwrap_or(DType::I32), &[]).into())
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::broadcast::kernel::broadcast;
    use crate::families::cast::kernel::cast_to;
    use crate::kernel::element::{Number, for_dtype};
    use crate::kernel::{Wiring, datum_type};

    /// A constant of the result's type with all elements `value`.
    pub(crate) fn uniform(wiring: &mut Wiring<'_>, call: &Typed<'_>, value: u8) -> TractResult<TVec<OutletId>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let shape = call.dims()?;
        let scalar = match to {
            DatumType::Bool => tensor0(value != 0),
            _ => tensor0(value).cast_to_dt(to)?.into_owned(),
        };
        Ok(tvec!(wiring.constant(scalar.broadcast_scalar_to_shape(&shape)?)?))
    }

    /// start + i · step, computed in the operands' dtype, or in the widest of theirs; integers and floats meet in float64.
    pub(super) fn arange(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let length = call.dims()?[0];
        let computed = DatumType::super_type_for(inputs.iter().map(|input| input.datum_type()));
        let numbers = for_dtype!(computed.unwrap_or(DatumType::F64), T in number => {
            let scalar = |i: usize| -> TractResult<T> { inputs[i].cast_to_scalar::<T>() };
            let (start, step) = (scalar(0)?, scalar(2)?);
            let numbers: Vec<T> = (0..length as i64).map(|i| start.add(T::of_i64(i).mul(step))).collect();
            tensor1(&numbers)
        });
        Ok(tvec!(numbers.cast_to_dt(to)?.into_owned()))
    }

    pub(super) fn shape_of(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        _inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let shape = call.tensor(0)?.shape.fixed().context("the shape of the operand is unknown")?;
        let dims: Vec<i64> = shape.iter().map(|d| *d as i64).collect();
        integers(wiring, call, tensor1(&dims))
    }

    pub(super) fn size(wiring: &mut Wiring<'_>, call: &Typed<'_>, _inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let elements = call.tensor(0)?.shape.elements().context("the shape of the operand is unknown")?;
        integers(wiring, call, tensor0(elements as i64))
    }

    /// The constant `values` in the dtype of the result.
    fn integers(wiring: &mut Wiring<'_>, call: &Typed<'_>, values: Tensor) -> TractResult<TVec<OutletId>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        Ok(tvec!(wiring.constant(values.cast_to_dt(to)?.into_owned())?))
    }

    /// The scalar `value` in the dtype and shape of the result.
    pub(crate) fn filled(wiring: &mut Wiring<'_>, call: &Typed<'_>, value: OutletId) -> TractResult<TVec<OutletId>> {
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let value = cast_to(wiring, to, value)?;
        broadcast(wiring, call, &[value])
    }
}
