//! `image.crop_and_resize`: crops boxes out of images and resizes them to one size.

use super::{
    AXES,
    interpolate::{Method, Nearest},
};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, rules::per_output};
use edgecut_graph::{Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("image.crop_and_resize", &["data", "boxes", "box_indices"], crop_type)
    .attrs(
        "relay.attrs.CropAndResizeAttrs",
        &[
            AttrDef::new("crop_size", AttrKind::OptionalInts, "None"),
            AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
            AttrDef::new("method", AttrKind::Str, "\"bilinear\""),
            AttrDef::new("extrapolation_value", AttrKind::Float, "0f"),
            AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
        ],
    )
    .class(FusionClass::Injective)
    .flops(per_output::<8>)
    .wire(kernel!(crop_and_resize))];

fn crop_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, boxes) = (call.tensor(0)?, call.tensor(1)?);
    let layout = call.layout("layout", AXES[2], AXES[2])?;
    let mut sizes = call.sizes_in(&layout, data, AXES[2])?;
    let size = call.steps("crop_size", 2, 1)?;
    match boxes.shape[..] {
        [count, four] if four.same(4.into()) || four == Dim::Any => sizes[0] = count,
        _ => return Err(call.error(format!("the boxes are {boxes}, expected rows of 4"))),
    }
    (sizes[2], sizes[3]) = (size[0].into(), size[1].into());
    method(call)?;
    let shape = layout.shape(AXES[2], &sizes).ok_or_else(|| call.error("the layout has other axes"))?;
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(data.dtype), shape).into())
}

fn method(call: &Call<'_>) -> Result<Method, TypeError> {
    match call.text("method", "bilinear")? {
        "bilinear" => Ok(Method::Linear),
        "nearest_neighbor" => Ok(Method::Nearest(Nearest::Round)),
        other => Err(call.error(format!("method is {other:?}, which is not a resize method"))),
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::image::interpolate::Coordinates;
    use crate::kernel::Wiring;
    use crate::{
        Typed,
        kernel::{
            self,
            custom::{numbers, tensor_of},
        },
        layout::Layout,
    };

    pub(super) fn crop_and_resize(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let layout = call.layout("layout", AXES[2], AXES[2])?;
        let plain = Layout::parse(AXES[2]).map_err(TractError::msg)?;
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let shape = wiring.concrete(data)?;
        let dtype = kernel::fact(call.result()?)?.datum_type;
        let size = call.steps("crop_size", 2, 1)?;
        let out = vec![wiring.concrete(inputs[1])?[0], shape[1], size[0] as usize, size[1] as usize];
        let (method, outside) = (method(call)?, call.float("extrapolation_value", 0.0)?);
        let operands = [data, inputs[1], inputs[2]];
        let made = wiring.custom("CropAndResize", tvec![dtype.fact(&out)], &operands, move |inputs| {
            let (data, boxes, indices) = (numbers(&inputs[0])?, numbers(&inputs[1])?, numbers(&inputs[2])?);
            let mut made = vec![outside; out.iter().product()];
            let (width, plane) = (shape[3], shape[2] * shape[3]);
            let rows =
                boxes.chunks_exact(4).zip(&indices).zip(made.chunks_exact_mut((out[1] * out[2] * out[3]).max(1)));
            for ((corners, image), made) in rows {
                ensure!(
                    (0.0..shape[0] as f64).contains(image),
                    "box index {image} is out of range for {} images",
                    shape[0]
                );
                let along = |axis: usize| {
                    let coordinates =
                        Coordinates::TfCropAndResize { start: corners[axis] as f32, end: corners[axis + 2] as f32 };
                    let (n, m) = (shape[2 + axis], out[2 + axis]);
                    (method.axis(coordinates, n, m, false, None), coordinates.inside(n, m, None))
                };
                let ((down, seen_down), (right, seen_right)) = (along(0), along(1));
                for (channel, made) in made.chunks_exact_mut(out[2] * out[3]).enumerate() {
                    let from = &data[(*image as usize * shape[1] + channel) * plane..][..plane];
                    for (y, x) in (0..out[2]).flat_map(|y| (0..out[3]).map(move |x| (y, x))) {
                        if seen_down[y].is_some() && seen_right[x].is_some() {
                            let value = down[y].iter().flat_map(|(i, v)| {
                                right[x].iter().map(move |(j, w)| from[i * width + j] * f64::from(*v) * f64::from(*w))
                            });
                            made[y * out[3] + x] = value.sum();
                        }
                    }
                }
            }
            Ok(tvec![tensor_of(&made, &out, dtype)?])
        })?[0];
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }
}
