//! layout_transform: the same tensor stored in another layout.

use tract_core::internal::tvec;

use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, layout::Layout};
use crate::graph::{TensorType, Type};

pub(super) const OPS: &[OpDef] = &[OpDef::new("layout_transform", &["data"], transformed_type)
    .attrs(
        "relay.attrs.LayoutTransformAttrs",
        &[AttrDef::required("src_layout", AttrKind::Str), AttrDef::required("dst_layout", AttrKind::Str)],
    )
    .class(FusionClass::Opaque)
    .wire(|wiring, call, inputs| {
        let (from, to) = transformation(call)?;
        Ok(tvec![from.wire(&to, wiring, inputs[0])?])
    })];

fn transformation(call: &Call<'_>) -> Result<(Layout, Layout), TypeError> {
    let read = |key| {
        let text = call.text(key, "")?;
        Layout::parse(text).map_err(|e| call.error(format!("{key}: {e}")))
    };
    let (from, to) = (read("src_layout")?, read("dst_layout")?);
    match to.has_exactly(&from.letters()) {
        true => Ok((from, to)),
        false => Err(call.error("the two layouts are about other axes")),
    }
}

fn transformed_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (from, to) = transformation(call)?;
    let letters = from.letters();
    let shape = to.shape(&letters, &call.sizes_in(&from, data, &letters)?);
    let shape = shape.ok_or_else(|| call.error("the two layouts are about other axes"))?;
    Ok(TensorType::new(data.dtype, shape).into())
}
