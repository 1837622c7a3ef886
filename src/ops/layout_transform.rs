//! layout_transform: the same tensor stored in another layout.

use tract_core::internal::tvec;

use super::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed, layout::Layout, split::SplitAxis};
use crate::graph::{TensorType, Type};

pub(super) const OPS: &[OpDef] = &[OpDef::new("layout_transform", &["data"], transformed_type)
    .attrs(
        "relay.attrs.LayoutTransformAttrs",
        &[AttrDef::required("src_layout", AttrKind::Str), AttrDef::required("dst_layout", AttrKind::Str)],
    )
    .class(FusionClass::Opaque)
    .split(outer_axes)
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

/// The whole axes, where blocks of both layouts begin.
fn outer_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (from, to) = transformation(call)?;
    let data = call.tensor(0)?;
    let sizes = call.sizes_in(&from, data, &from.letters())?;
    let axis = |(letter, size): (char, &crate::graph::Dim)| {
        let filled = size.get()? % to.block(letter) == 0;
        let split = SplitAxis::along(call, to.position(letter)?);
        filled.then(|| split.scaled(0, from.position(letter).unwrap_or(0), to.block(letter), from.block(letter)))
    };
    Ok(from.letters().chars().zip(&sizes).filter_map(axis).collect())
}

fn transformed_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let (from, to) = transformation(call)?;
    let letters = from.letters();
    let shape = to.shape(&letters, &call.sizes_in(&from, data, &letters)?);
    let shape = shape.ok_or_else(|| call.error("the two layouts are about other axes"))?;
    Ok(TensorType::new(data.dtype, shape).into())
}
