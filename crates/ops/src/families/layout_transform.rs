//! `layout_transform`: stores a tensor in another layout; and the auto-scheduler's variant for weights.

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed, layout::Layout, split::SplitAxis};
use edgecut_graph::{Shape, TensorType, Type};

const LAYOUTS: &[AttrDef] =
    &[AttrDef::required("src_layout", AttrKind::Str), AttrDef::required("dst_layout", AttrKind::Str)];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("layout_transform", &["data"], transformed_type)
        .attrs("relay.attrs.LayoutTransformAttrs", LAYOUTS)
        .class(FusionClass::Opaque)
        .split(outer_axes)
        .wire(kernel!(transform)),
    OpDef::new("auto_scheduler_layout_transform", &["data"], scheduled_type)
        .attrs("relay.attrs.AutoSchedulerLayoutTransformAttrs", LAYOUTS)
        .class(FusionClass::Opaque)
        .host(kernel!(reschedule)),
];

/// The axes of an auto-scheduler layout such as `1N32h32w3c`, outer parts before inner ones: size and name of each.
fn sized_axes<'a>(call: &Call<'a>, key: &str) -> Result<Vec<(u64, &'a str)>, TypeError> {
    let mut rest = call.text(key, "")?;
    let mut axes = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (size, named) = rest.split_at(digits);
        let (name, after) = named.split_at(named.find(|c: char| c.is_ascii_digit()).unwrap_or(named.len()));
        let size = size.parse().ok().filter(|n| (1..1 << 31).contains(n) && !name.is_empty());
        axes.push((size.ok_or_else(|| call.error(format!("{key}: expected a size and a name at `{rest}`")))?, name));
        rest = after;
    }
    Ok(axes)
}

fn scheduled_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, from, to) = (call.tensor(0)?, sized_axes(call, "src_layout")?, sized_axes(call, "dst_layout")?);
    let sizes = Shape::of(&from.iter().map(|axis| axis.0).collect::<Vec<_>>());
    if sizes != data.shape && data.shape.fixed().is_some() {
        return Err(call.error(format!("src_layout describes {sizes}, the data is {data}")));
    }
    Ok(TensorType::new(data.dtype, Shape::of(&to.iter().map(|axis| axis.0).collect::<Vec<_>>())).into())
}

fn transformation(call: &Call<'_>) -> Result<(Layout, Layout), TypeError> {
    let read = |key| {
        let text = call.text(key, "")?;
        Layout::parse(text).map_err(|e| call.error(format!("{key}: {e}")))
    };
    let (from, to) = (read("src_layout")?, read("dst_layout")?);
    match to.has_exactly(&from.letters()) {
        true => Ok((from, to)),
        false => Err(call.error("the layouts have different axes")),
    }
}

/// The outer axes, cut at block boundaries of both layouts.
fn outer_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (from, to) = transformation(call)?;
    let data = call.tensor(0)?;
    let sizes = call.sizes_in(&from, data, &from.letters())?;
    let axis = |(letter, size): (char, &edgecut_graph::Dim)| {
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
    let shape = shape.ok_or_else(|| call.error("the layouts have different axes"))?;
    Ok(TensorType::new(data.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::Wiring;
    use crate::kernel::indexing::{pick, strides};

    pub(super) fn transform(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (from, to) = transformation(call)?;
        Ok(tvec![from.wire(&to, wiring, inputs[0])?])
    }

    /// The index along an axis of the data is composed of the indices of its parts in the result.
    pub(super) fn reschedule(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (from, to) = (sized_axes(call, "src_layout")?, sized_axes(call, "dst_layout")?);
        let steps = strides(inputs[0].shape());
        let made = pick(&inputs[0], &call.dims()?, |place| {
            let along = |name: &str| {
                let parts = to.iter().zip(place).filter(|(axis, _)| axis.1 == name);
                parts.fold(0, |index, ((size, _), at)| index * *size as usize + at)
            };
            Ok(from.iter().zip(&steps).map(|((_, name), step)| along(name) * step).sum())
        })?;
        Ok(tvec![made])
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use edgecut_graph::{Attr, Attrs, DType};

        #[test]
        fn an_axis_splits_by_the_names_of_its_parts() {
            let mut attrs = Attrs::new();
            attrs.set("src_layout", Attr::Str("4o3i".into()));
            attrs.set("dst_layout", Attr::Str("2o3i2o".into()));
            let args = [Type::from(TensorType::of(DType::I32, &[4, 3]))];
            let def = crate::lookup("auto_scheduler_layout_transform").unwrap();
            let call = Call { def, attrs: &attrs, args: &args, values: &[] };
            let out = scheduled_type(&call).unwrap();
            assert_eq!(out, TensorType::of(DType::I32, &[2, 3, 2]).into());
            let data = Tensor::from_shape(&[4, 3], &(0..12).collect::<Vec<i32>>()).unwrap().into_tvalue();
            let made = reschedule(&Typed { call, out: &out }, &[data]).unwrap();
            assert_eq!(
                made[0].try_as_plain_ram().unwrap().as_slice::<i32>().unwrap(),
                [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
            );
            attrs.set("dst_layout", Attr::Str("2o3".into()));
            assert!(scheduled_type(&Call { def, attrs: &attrs, args: &args, values: &[] }).is_err());
        }
    }
}
