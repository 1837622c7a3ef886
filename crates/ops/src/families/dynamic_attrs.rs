//! Padding and resizing whose widths, sizes and factors are operands (`dyn.nn.pad`, `dyn.image.resize2d`, …). Once the
//! operand values are known, the call is delegated to the static operator with these as attributes.

use crate::families::image::resize::{self, RESIZE2D, UPSAMPLING, UPSAMPLING3D};
use crate::families::pad::{self, PAD};
use crate::{AttrDef, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{Attr, Attrs, Dim, TensorData, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[
    dynamic("dyn.nn.pad", &["data", "pad_width", "pad_val"], "relay.attrs.PadAttrs", PAD),
    dynamic("dyn.nn.upsampling", &["data", "scale_h", "scale_w"], "relay.attrs.UpSamplingAttrs", UPSAMPLING),
    dynamic(
        "dyn.nn.upsampling3d",
        &["data", "scale_d", "scale_h", "scale_w"],
        "relay.attrs.UpSampling3DAttrs",
        UPSAMPLING3D,
    ),
    dynamic("dyn.image.resize2d", &["data", "size", "roi"], "relay.attrs.Resize2DAttrs", RESIZE2D),
];

const fn dynamic(
    name: &'static str,
    operands: &'static [&'static str],
    attrs_key: &'static str,
    attrs: &'static [AttrDef],
) -> OpDef {
    OpDef::new(name, operands, infer)
        .attrs(attrs_key, attrs)
        .class(FusionClass::Injective)
        .flops(flops)
        .wire(kernel!(wire))
}

/// The equivalent call of the static operator.
struct StaticCall {
    def: &'static OpDef,
    attrs: Attrs,
    /// The operands that are not attributes of the static operator.
    operands: &'static [usize],
}

/// `None` until the values of all operands that become attributes are known.
fn static_call(call: &Call<'_>) -> Result<Option<StaticCall>, TypeError> {
    let name = call.def.name.trim_start_matches("dyn.");
    let def =
        OpDef::find(&[pad::OPS, resize::OPS], name).ok_or_else(|| call.error(format!("{name} is not defined")))?;
    let operands: &[usize] = if name == "nn.pad" { &[0, 2] } else { &[0] };
    let mut attrs = call.attrs.clone();
    for (index, operand) in call.def.operands.iter().enumerate() {
        if operands.contains(&index) {
            continue;
        }
        let Some(value) = call.value(index) else { return Ok(None) };
        let attr = match *operand {
            "pad_width" => pairs(value),
            "size" => value.to_i64s().map(|sizes| Attr::List(sizes.into_iter().map(Attr::Int).collect())),
            "roi" => value.to_f64s().map(|roi| Attr::List(roi.into_iter().map(Attr::Float).collect())),
            _ => value.to_f64s().and_then(|scale| scale.first().copied()).map(Attr::Float),
        };
        attrs.set(*operand, attr.ok_or_else(|| call.error(format!("{operand} is not numeric")))?);
    }
    Ok(Some(StaticCall { def, attrs, operands }))
}

fn pairs(value: &TensorData) -> Option<Attr> {
    let pairs = value.to_i64s()?;
    Some(Attr::List(pairs.chunks(2).map(|pair| Attr::List(pair.iter().copied().map(Attr::Int).collect())).collect()))
}

impl StaticCall {
    fn args(&self, call: &Call<'_>) -> Vec<Type> {
        self.operands.iter().filter_map(|i| call.args.get(*i).cloned()).collect()
    }
}

/// Until the values are known, all dimensions of a padding and the spatial dimensions of an image are unknown.
fn infer(call: &Call<'_>) -> Result<Type, TypeError> {
    if let Some(target) = static_call(call)? {
        let args = target.args(call);
        return (target.def.infer)(&Call { def: target.def, attrs: &target.attrs, args: &args, values: &[] });
    }
    let data = call.tensor(0)?;
    let mut shape = data.shape.clone();
    let layout = match call.def.attrs.iter().find(|attr| attr.name == "layout").and_then(|attr| attr.default) {
        Some(default) => call.text("layout", default.trim_matches('"'))?,
        None => "",
    };
    // A padding has no layout: every axis may be padded.
    let spatial = |axis: usize| layout.as_bytes().get(axis).is_none_or(|letter| b"DHW".contains(letter));
    for axis in (0..shape.rank()).filter(|axis| spatial(*axis)) {
        shape[axis] = Dim::Any;
    }
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(data.dtype), shape).into())
}

fn flops(call: &Typed<'_>) -> u64 {
    let Ok(Some(target)) = static_call(call) else { return 0 };
    let args = target.args(call);
    let plain = Call { def: target.def, attrs: &target.attrs, args: &args, values: &[] };
    (target.def.flops)(&Typed { call: plain, out: call.out })
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::Wiring;

    pub(super) fn wire(wiring: &mut Wiring<'_>, call: &Typed<'_>, inputs: &[OutletId]) -> TractResult<TVec<OutletId>> {
        let target = static_call(call)?.context("the operand values are unknown")?;
        let args = target.args(call);
        let kept: TVec<OutletId> = target.operands.iter().filter_map(|i| inputs.get(*i).copied()).collect();
        let plain = Call { def: target.def, attrs: &target.attrs, args: &args, values: &[] };
        wiring.call(&Typed { call: plain, out: call.out }, &kept)
    }
}
