//! Bit-serial operators: `nn.bitpack`, bit-serial convolution and dense layer.
//!
//! TVM computes the products bit by bit on packed words; here they are computed on int32, with the same values. After
//! `topi/nn/bitserial_util.py`, `bitserial_conv2d.py` and `bitserial_dense.py` of TVM 0.14.

use crate::{
    AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed,
    families::{conv, dense},
    layout::map_dim,
    rules::per_output,
};
use edgecut_graph::{Attr, DType, Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("nn.bitpack", &["data"], packed_type)
        .attrs(
            "relay.attrs.BitPackAttrs",
            &[
                AttrDef::new("bits", AttrKind::Int, "1"),
                AttrDef::new("pack_axis", AttrKind::Int, "1"),
                AttrDef::new("bit_axis", AttrKind::Int, "-1"),
                AttrDef::new("pack_type", AttrKind::DType, "\"\""),
                AttrDef::new("name", AttrKind::Str, "\"BitPack\""),
            ],
        )
        .class(FusionClass::Injective)
        .flops(per_output::<1>)
        .host(kernel!(pack)),
    OpDef::new("nn.bitserial_conv2d", &["data", "weight"], |call| product_type(call, "nn.conv2d"))
        .attrs(
            "relay.attrs.BinaryConv2DAttrs",
            &[
                AttrDef::new("strides", AttrKind::Ints, "[1, 1]"),
                AttrDef::new("padding", AttrKind::Ints, "[0, 0]"),
                AttrDef::new("kernel_size", AttrKind::Ints, "[3, 3]"),
                AttrDef::new("channels", AttrKind::OptionalInt, "None"),
                AttrDef::new("activation_bits", AttrKind::Int, "1"),
                AttrDef::new("weight_bits", AttrKind::Int, "1"),
                AttrDef::new("data_layout", AttrKind::Str, "\"NCHW\""),
                AttrDef::new("kernel_layout", AttrKind::Str, "\"OIHW\""),
                AttrDef::new("pack_dtype", AttrKind::DType, "\"\""),
                AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
                AttrDef::new("unipolar", AttrKind::Bool, "True"),
            ],
        )
        .class(FusionClass::OutFusable)
        .flops(|call| product_flops(call, "nn.conv2d"))
        .wire(kernel!(|wiring, call, inputs| product(wiring, call, inputs, "nn.conv2d", "activation_bits"))),
    OpDef::new("nn.bitserial_dense", &["data", "weight"], |call| product_type(call, "nn.dense"))
        .attrs(
            "relay.attrs.BinaryDenseAttrs",
            &[
                AttrDef::required("units", AttrKind::OptionalInt),
                AttrDef::new("data_bits", AttrKind::Int, "1"),
                AttrDef::new("weight_bits", AttrKind::Int, "1"),
                AttrDef::new("pack_dtype", AttrKind::DType, "\"\""),
                AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
                AttrDef::new("unipolar", AttrKind::Bool, "True"),
            ],
        )
        .class(FusionClass::OutFusable)
        .flops(|call| product_flops(call, "nn.dense"))
        .wire(kernel!(|wiring, call, inputs| product(wiring, call, inputs, "nn.dense", "data_bits"))),
];

/// The attribute `key`, a number of bits from 1 to 8.
fn bits(call: &Call<'_>, key: &str) -> Result<u32, TypeError> {
    let bits = u32::try_from(call.int(key, 1)?).ok().filter(|n| (1..=8).contains(n));
    bits.ok_or_else(|| call.error(format!("{key} must be between 1 and 8")))
}

/// The packed axis, the bit axis of the result (if any), and the word type.
fn packing(call: &Call<'_>) -> Result<(usize, Option<usize>, DType), TypeError> {
    let data = call.tensor(0)?;
    let (axis, at) = (call.axis("pack_axis", 1, &data.shape)?, call.int("bit_axis", -1)?);
    let words = call.dtype("pack_type")?.filter(|dtype| dtype.is_integer());
    let words = words.ok_or_else(|| call.error("pack_type must be an integer type"))?;
    let at = usize::try_from(at).ok();
    match at.is_none_or(|at| at <= data.shape.rank()) {
        true => Ok((axis, at, words)),
        false => Err(call.error(format!("bit_axis is outside of a tensor of rank {}", data.shape.rank() + 1))),
    }
}

fn packed_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, (axis, at, words)) = (call.tensor(0)?, packing(call)?);
    let mut shape = data.shape.clone();
    let width = words.size() * 8;
    if shape[axis].get().is_some_and(|n| n % width != 0) {
        return Err(call.error(format!("axis {axis} of {data} is not a multiple of words of {width} bits")));
    }
    shape[axis] = map_dim(shape[axis], |n| n / width);
    if let Some(at) = at {
        shape.insert(at, Dim::Known(u64::from(bits(call, "bits")?)));
    }
    Ok(TensorType::new(words, shape).into())
}

/// The equivalent call on int32: definition, attributes and types.
struct Int32Call {
    def: &'static OpDef,
    attrs: edgecut_graph::Attrs,
    args: [Type; 2],
    out: Type,
}

impl Int32Call {
    fn of(call: &Call<'_>, name: &str) -> Result<Int32Call, TypeError> {
        let def =
            OpDef::find(&[conv::OPS, dense::OPS], name).ok_or_else(|| call.error(format!("{name} is not defined")))?;
        let mut attrs = call.attrs.clone();
        attrs.set("out_dtype", Attr::Str("int32".into()));
        let whole = |ty: &TensorType| Type::from(TensorType::new(DType::I32, ty.shape.clone()));
        let mut known = [Some(whole(call.tensor(0)?)), None];
        if call.tensor(1)?.shape.rank() == call.tensor(0)?.shape.rank() {
            known[1] = Some(whole(call.tensor(1)?));
        } else if let Some(infer) = def.infer_operands {
            infer(&Call { def, attrs: &attrs, ..*call }, &mut known)?;
        }
        let [Some(data), Some(weight)] = known else { return Err(call.error("the weight's shape is unknown")) };
        let args = [data, weight];
        let out = (def.infer)(&Call { def, attrs: &attrs, args: &args, values: &[] })?;
        Ok(Int32Call { def, attrs, args, out })
    }
}

fn product_type(call: &Call<'_>, name: &str) -> Result<Type, TypeError> {
    let plain = Int32Call::of(call, name)?;
    let shape = plain.out.tensor().ok_or_else(|| call.error("a product is one tensor"))?.shape.clone();
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(DType::I16), shape).into())
}

fn product_flops(call: &Typed<'_>, name: &str) -> u64 {
    let Ok(plain) = Int32Call::of(call, name) else { return 0 };
    let inner = Call { def: plain.def, attrs: &plain.attrs, args: &plain.args, values: &[] };
    (plain.def.flops)(&Typed { call: inner, out: &plain.out })
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::{
        Wiring, datum_type,
        indexing::{each_place, flat, integers, strides},
    };

    /// Packs bit b of consecutive elements along the axis, the first one in the most significant bit.
    pub(super) fn pack(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (axis, at, words) = packing(call)?;
        let (dims, width) = (call.dims()?, words.size() as usize * 8);
        let (data, from) = (integers(&inputs[0])?, strides(inputs[0].shape()));
        let mut packed: Vec<i64> = Vec::with_capacity(dims.iter().product());
        each_place(&dims, |place| {
            let mut source: TVec<usize> = place.into();
            let bit = at.map_or(0, |at| source.remove(at));
            source[axis] *= width;
            let start = flat(&from, &source);
            packed.push((0..width).fold(0, |word, k| word << 1 | (data[start + k * from[axis]] >> bit & 1)));
        });
        let to = datum_type(words).context("the dtype is not supported")?;
        Ok(tvec![Tensor::from_shape(&dims, &packed)?.cast_to_dt(to)?.into_owned()])
    }

    pub(super) fn product(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        name: &str,
        data_bits: &str,
    ) -> TractResult<TVec<OutletId>> {
        let plain = Int32Call::of(call, name)?;
        if call.tensor(1)?.shape.rank() != call.tensor(0)?.shape.rank() {
            bail!("a pre-packed weight is not supported");
        }
        let mut masked = |outlet: OutletId, bits: u32, unipolar: bool| -> TractResult<OutletId> {
            let fact = i32::fact(wiring.concrete(outlet)?);
            let made = wiring.custom("Bits", tvec![fact], &[outlet], move |inputs| {
                let mask = (1i64 << bits) - 1;
                let value = |x: i64| if unipolar { 2 * (x & mask) - mask } else { x & mask };
                let values: Vec<i32> = integers(&inputs[0])?.into_iter().map(|x| value(x) as i32).collect();
                Ok(tvec![Tensor::from_shape(inputs[0].shape(), &values)?])
            })?;
            Ok(made[0])
        };
        let data = masked(inputs[0], bits(call, data_bits)?, false)?;
        // Each bit of a unipolar weight is +1 or −1 times its place value.
        let weight = masked(inputs[1], bits(call, "weight_bits")?, call.flag("unipolar", true)?)?;
        let inner = Call { def: plain.def, attrs: &plain.attrs, args: &plain.args, values: &[] };
        let made = wiring.call(&Typed { call: inner, out: &plain.out }, &[data, weight])?;
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        Ok(tvec![wiring.cast(made[0], to)?])
    }
}
