//! `sort`, `argsort` and `topk` along an axis. All are stable in both directions; NaN is the greatest value.

use crate::split::off;
use crate::{AttrDef, AttrKind, Call, OpDef, TypeError, Typed};
use edgecut_graph::{DType, Dim, Shape, TensorType, Type};

const SORT_ATTRS: &[AttrDef] = &[
    AttrDef::new("axis", AttrKind::Int, "-1"),
    AttrDef::new("is_ascend", AttrKind::Bool, "True"),
    AttrDef::new("dtype", AttrKind::DType, "\"\""),
];

pub(crate) const TOPK_ATTRS: &[AttrDef] = &[
    AttrDef::required("k", AttrKind::OptionalInt),
    AttrDef::new("axis", AttrKind::Int, "-1"),
    AttrDef::new("ret_type", AttrKind::Str, "\"both\""),
    AttrDef::new("is_ascend", AttrKind::Bool, "False"),
    AttrDef::new("dtype", AttrKind::DType, "\"\""),
];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("sort", &["data"], sort_type)
        .attrs("relay.attrs.ArgsortAttrs", SORT_ATTRS)
        .flops(comparisons)
        .split(|call| off(call, &[call.axis("axis", -1, &call.tensor(0)?.shape)?]))
        .host(kernel!(|call, inputs| ordered(call, &inputs[0], true, Returned::Values))),
    OpDef::new("argsort", &["data"], argsort_type)
        .attrs("relay.attrs.ArgsortAttrs", SORT_ATTRS)
        .flops(comparisons)
        .split(|call| off(call, &[call.axis("axis", -1, &call.tensor(0)?.shape)?]))
        .host(kernel!(|call, inputs| ordered(call, &inputs[0], true, Returned::Indices))),
    OpDef::new("topk", &["data"], |call| topk_type(call, count(call)?))
        .attrs("relay.attrs.TopkAttrs", TOPK_ATTRS)
        .flops(comparisons)
        .split(|call| off(call, &[call.axis("axis", -1, &call.tensor(0)?.shape)?]))
        .host(kernel!(topk)),
];

/// The results of `topk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    Both,
    Values,
    Indices,
}

impl Returned {
    fn of(call: &Call<'_>) -> Result<Returned, TypeError> {
        match call.text("ret_type", "both")? {
            "both" => Ok(Returned::Both),
            "values" => Ok(Returned::Values),
            "indices" => Ok(Returned::Indices),
            other => Err(call.error(format!("ret_type is \"{other}\", expected both, values or indices"))),
        }
    }
}

/// n·log₂(n) comparisons for an axis of length n.
fn comparisons(call: &Typed<'_>) -> u64 {
    let Ok(data) = call.tensor(0) else { return 0 };
    let len = call.axis("axis", -1, &data.shape).ok().and_then(|axis| data.shape[axis].get()).unwrap_or(1);
    data.shape.elements().unwrap_or(0).saturating_mul(u64::from(len.max(2).ilog2()))
}

fn sort_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    call.axis("axis", -1, &data.shape)?;
    Ok(data.clone().into())
}

fn argsort_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    call.axis("axis", -1, &data.shape)?;
    Ok(TensorType::new(index_dtype(call)?, data.shape.clone()).into())
}

fn index_dtype(call: &Call<'_>) -> Result<DType, TypeError> {
    Ok(call.dtype("dtype")?.unwrap_or(DType::I32))
}

fn count(call: &Call<'_>) -> Result<Option<i64>, TypeError> {
    call.optional_int("k")
}

/// The type of a `topk` of `k` elements: all if `k` is less than one; unknown if `None`.
pub(crate) fn topk_type(call: &Call<'_>, k: Option<i64>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let axis = call.axis("axis", -1, &data.shape)?;
    let mut shape: Shape = data.shape.clone();
    match k.map(u64::try_from) {
        None => shape[axis] = Dim::Any,
        Some(Ok(0) | Err(_)) => {}
        Some(Ok(k)) => {
            if shape[axis].get().is_some_and(|n| n < k) {
                return Err(call.error(format!("k is {k}, which exceeds the axis of length {}", shape[axis])));
            }
            shape[axis] = Dim::Known(k);
        }
    }
    let values = Type::from(TensorType::new(data.dtype, shape.clone()));
    let indices = Type::from(TensorType::new(index_dtype(call)?, shape));
    Ok(match Returned::of(call)? {
        Returned::Both => Type::Tuple(vec![values, indices]),
        Returned::Values => values,
        Returned::Indices => indices,
    })
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::datum_type;
    use crate::kernel::indexing::{filled, integers, pick_flat, with_room};
    use std::cmp::Reverse;

    /// Also the kernel of `dyn.topk`: k follows from the result's type.
    pub(crate) fn topk(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        ordered(call, &inputs[0], call.flag("is_ascend", false)?, Returned::of(call)?)
    }

    pub(super) fn ordered(
        call: &Typed<'_>,
        data: &Tensor,
        ascend: bool,
        returned: Returned,
    ) -> TractResult<TVec<Tensor>> {
        let ascend = call.flag("is_ascend", ascend)?;
        let axis = call.axis("axis", -1, &call.tensor(0)?.shape)?;
        let results = call.out.tensors();
        let dims: TVec<usize> =
            results[0].shape.fixed().context("the shape is unknown")?.iter().map(|d| *d as usize).collect();
        let (len, keep) = (data.shape()[axis], dims[axis]);
        let inner: usize = dims[axis + 1..].iter().product();
        let outer: usize = dims[..axis].iter().product();
        let keys = keys(data)?;
        let mut places = filled(outer * keep * inner, 0i64)?;
        let mut sources = filled(places.len(), 0usize)?;
        let mut order: Vec<usize> = with_room(len)?;
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let source = |n: usize| (o * len + n) * inner + i;
            order.clear();
            order.extend(0..len);
            match ascend {
                true => order.sort_by_key(|n| keys[source(*n)]),
                false => order.sort_by_key(|n| Reverse(keys[source(*n)])),
            }
            for (rank, from) in order.iter().take(keep).enumerate() {
                let to = (o * keep + rank) * inner + i;
                (sources[to], places[to]) = (source(*from), *from as i64);
            }
        }
        let values = pick_flat(data, &dims, &sources)?;
        let indices = |dtype: DType| -> TractResult<Tensor> {
            let to = datum_type(dtype).context("the dtype is not supported")?;
            Ok(Tensor::from_shape(&dims, &places)?.cast_to_dt(to)?.into_owned())
        };
        Ok(match returned {
            Returned::Values => tvec!(values),
            Returned::Indices => tvec!(indices(results[0].dtype)?),
            Returned::Both => tvec!(values, indices(results[1].dtype)?),
        })
    }

    /// Integer keys that order as the elements do: zeros of both signs are equal, and NaN is equal to NaN and greater than
    /// everything else.
    pub(crate) fn keys(tensor: &Tensor) -> TractResult<Vec<u64>> {
        const SIGN: u64 = 1 << 63;
        let of_float = |x: &f64| match (x + 0.0).to_bits() {
            _ if x.is_nan() => u64::MAX,
            bits if bits & SIGN != 0 => !bits,
            bits => bits | SIGN,
        };
        let mut keys = with_room(tensor.len())?;
        match tensor.datum_type() {
            dt if dt.is_float() => {
                keys.extend(tensor.cast_to::<f64>()?.try_as_plain_ram()?.as_slice::<f64>()?.iter().map(of_float));
            }
            DatumType::U64 => keys.extend_from_slice(tensor.try_as_plain_ram()?.as_slice::<u64>()?),
            _ => keys.extend(integers(tensor)?.into_iter().map(|x| x as u64 ^ SIGN)),
        }
        Ok(keys)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn keys_compare_as_elements_do() {
            let floats = [f32::NEG_INFINITY, -1e30, -1.0, -1e-40, 0.0, 1e-40, 0.5, 3.0, f32::INFINITY, f32::NAN];
            assert!(keys(&tensor1(&floats)).unwrap().is_sorted_by(|a, b| a < b));
            assert!(keys(&tensor1(&[i64::MIN, -1, 0, 7, i64::MAX])).unwrap().is_sorted_by(|a, b| a < b));
            assert!(keys(&tensor1(&[0, 1, u64::MAX])).unwrap().is_sorted_by(|a, b| a < b));
            let zeros = keys(&tensor1(&[0.0f32, -0.0])).unwrap();
            assert_eq!(zeros[0], zeros[1]);
        }
    }
}
