//! `nn.deformable_conv2d`: a convolution whose sampling positions are offset by an operand.
//!
//! Dai et al., "Deformable Convolutional Networks" (2017), as in `topi/nn/deformable_conv2d.py` of TVM 0.14.

use super::geometry::Convolution;
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, rules::per_output};
use edgecut_graph::{Dim, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("nn.deformable_conv2d", &["data", "offset", "weight"], deformable_type)
    .attrs(
        "relay.attrs.DeformableConv2DAttrs",
        &[
            AttrDef::new("strides", AttrKind::Ints, "[1, 1]"),
            AttrDef::new("padding", AttrKind::Ints, "[0, 0]"),
            AttrDef::new("dilation", AttrKind::Ints, "[1, 1]"),
            AttrDef::new("deformable_groups", AttrKind::Int, "1"),
            AttrDef::new("groups", AttrKind::Int, "1"),
            AttrDef::new("channels", AttrKind::OptionalInt, "None"),
            AttrDef::new("kernel_size", AttrKind::OptionalInts, "None"),
            AttrDef::new("data_layout", AttrKind::Str, "\"NCHW\""),
            AttrDef::new("kernel_layout", AttrKind::Str, "\"OIHW\""),
            AttrDef::new("out_layout", AttrKind::Str, "\"\""),
            AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
        ],
    )
    .operand_types(operands)
    .class(FusionClass::OutFusable)
    .flops(|call| {
        let taps = convolution(call).map_or(0, |conv| conv.taps());
        per_output::<2>(call).saturating_mul(taps)
    })
    .wire(kernel!(deformable))];

/// The convolution without offsets.
fn convolution(call: &Call<'_>) -> Result<Convolution<2>, TypeError> {
    Convolution::read(call, call.tensor(0)?, Some(call.tensor(2)?))
}

fn deformable_groups(call: &Call<'_>) -> Result<u64, TypeError> {
    let groups = u64::try_from(call.int("deformable_groups", 1)?).ok();
    groups.filter(|g| *g > 0).ok_or_else(|| call.error("deformable_groups must be at least 1"))
}

/// The type of the offsets: two per tap and deformable group at each element of the result.
fn offset_type(call: &Call<'_>, data: &TensorType, conv: &Convolution<2>) -> Result<TensorType, TypeError> {
    let taps = conv.windows.iter().map(|w| w.size).fold(2, u64::saturating_mul);
    let taps = Dim::Known(taps.saturating_mul(deformable_groups(call)?));
    let out = conv.out_type(call)?;
    let sizes = call.sizes_in(&conv.out, &out, Convolution::<2>::DATA)?;
    let shape = conv.data.shape(Convolution::<2>::DATA, &[conv.batch, taps, sizes[2], sizes[3]]);
    Ok(TensorType::new(data.dtype, shape.ok_or_else(|| call.error("data_layout has other axes"))?))
}

fn deformable_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, found) = (call.tensor(0)?, call.tensor(1)?);
    let conv = convolution(call)?;
    let want = offset_type(call, data, &conv)?;
    let fits = |(a, b): (&Dim, &Dim)| a.get().is_none() || b.get().is_none() || a.same(*b);
    if want.shape.rank() != found.shape.rank() || !want.shape.iter().zip(found.shape.iter()).all(fits) {
        return Err(call.error(format!("the offsets are {found}, expected {want}")));
    }
    Ok(conv.out_type(call)?.into())
}

fn operands(call: &Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError> {
    let [Some(Type::Tensor(data)), offset, weight] = known else { return Ok(()) };
    let given = weight.as_ref().and_then(Type::tensor);
    if given.is_none() && (call.attr("channels").is_none() || call.attr("kernel_size").is_none()) {
        return Ok(());
    }
    let conv = Convolution::<2>::read(call, data, given)?;
    if weight.is_none() {
        *weight = conv.weight_type(data.dtype).map(Type::from);
    }
    if offset.is_none() {
        *offset = Some(offset_type(call, data, &conv)?.into());
    }
    Ok(())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::{internal::*, ops::einsum::EinSum};

    use crate::{
        Typed,
        kernel::{self, Wiring},
        layout::Layout,
        window::Window,
    };

    pub(super) fn deformable(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let conv = convolution(call)?;
        let parse = |text| Layout::parse(text).map_err(TractError::msg);
        let (plain, plain_kernel) = (parse(Convolution::<2>::DATA)?, parse(Convolution::<2>::KERNEL)?);
        let out = kernel::fact(call.result()?)?.datum_type;
        let wide = if out == DatumType::F64 { out } else { DatumType::F32 };
        let data = conv.data.wire(&plain, wiring, inputs[0])?;
        let offset = conv.data.wire(&plain, wiring, inputs[1])?;
        let weight = conv.kernel.wire(&plain_kernel, wiring, inputs[2])?;
        let (data, offset) = (wiring.cast(data, DatumType::F32)?, wiring.cast(offset, DatumType::F32)?);
        let weight = wiring.cast(weight, wide)?;
        let [images, channels, height, width] = wiring.concrete(data)?[..] else { bail!("the data must have rank 4") };
        let places = wiring.concrete(offset)?;
        let (groups, outputs) = (conv.groups as usize, wiring.concrete(weight)?[0]);
        let taps: usize = conv.windows.iter().map(|w| w.size as usize).product();
        let terms = channels / groups * taps;
        let displaced = Displaced {
            windows: [conv.windows[0], conv.windows[1]],
            image: [channels, height, width],
            groups: deformable_groups(call)? as usize,
            result: [places[2], places[3]],
        };
        ensure!(channels % displaced.groups == 0, "{channels} channels in {} deformable groups", displaced.groups);
        let count = places[2] * places[3];
        let fact = f32::fact([images, groups, terms, count]);
        let columns = wiring.custom("DisplacedTaps", tvec![fact], &[data, offset], move |inputs| {
            let (data, offset) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
            let (data, offset) = (data.as_slice::<f32>()?, offset.as_slice::<f32>()?);
            let mut columns = Vec::with_capacity(images * groups * terms * count);
            for image in 0..images {
                let of = |all: &'_ [f32]| all.len() / images.max(1);
                let (data, offset) =
                    (&data[image * of(data)..][..of(data)], &offset[image * of(offset)..][..of(offset)]);
                displaced.columns(data, offset, &mut columns);
            }
            Ok(tvec![Tensor::from_shape(&[images, groups, terms, count], &columns)?])
        })?[0];
        let columns = wiring.cast(columns, wide)?;
        let weight = wiring.reshape(weight, &[groups, outputs / groups, terms])?;
        let sums = wiring.one(EinSum::new("gok,ngkp->ngop".parse()?, wide), &[weight, columns])?;
        let made = wiring.reshape(sums, &[images, outputs, places[2], places[3]])?;
        let made = wiring.cast(made, out)?;
        Ok(tvec![plain.wire(&conv.out, wiring, made)?])
    }

    /// The geometry of deformable sampling on one image.
    struct Displaced {
        windows: [Window; 2],
        /// Channels, height and width of the data.
        image: [usize; 3],
        groups: usize,
        /// Height and width of the result.
        result: [usize; 2],
    }

    impl Displaced {
        /// Appends, for each channel and tap, the sampled data at each element of the result (im2col).
        fn columns(&self, data: &[f32], offset: &[f32], columns: &mut Vec<f32>) {
            let [channels, height, width] = self.image;
            let [rows, cells] = self.result;
            let [down, right] = self.windows;
            let taps = (down.size * right.size) as usize;
            for (channel, tap) in (0..channels).flat_map(|c| (0..taps).map(move |t| (c, t))) {
                let map = &data[channel * height * width..][..height * width];
                let group = channel / (channels / self.groups);
                let displacement =
                    |axis: usize| &offset[((group * taps + tap) * 2 + axis) * rows * cells..][..rows * cells];
                let (shift_y, shift_x) = (displacement(0), displacement(1));
                let (ky, kx) = (tap as u64 / right.size, tap as u64 % right.size);
                let base =
                    |at: usize, k: u64, w: &Window| (at as u64 * w.stride + k * w.dilation) as f32 - w.before as f32;
                for (y, x) in (0..rows).flat_map(|y| (0..cells).map(move |x| (y, x))) {
                    let at = y * cells + x;
                    let (y, x) = (base(y, ky, &down) + shift_y[at], base(x, kx, &right) + shift_x[at]);
                    columns.push(bilinear(map, height, width, y, x));
                }
            }
        }
    }

    /// Bilinear interpolation; zero outside the map, where neighbours have weight zero.
    fn bilinear(map: &[f32], height: usize, width: usize, y: f32, x: f32) -> f32 {
        if !(0.0..height as f32).contains(&y) || !(0.0..width as f32).contains(&x) {
            return 0.0;
        }
        let (top, left) = (y.floor(), x.floor());
        let (dy, dx) = (y - top, x - left);
        let (top, left) = (top as usize, left as usize);
        let at = |i: usize, j: usize| if i < height && j < width { map[i * width + j] } else { 0.0 };
        (1.0 - dy) * ((1.0 - dx) * at(top, left) + dx * at(top, left + 1))
            + dy * ((1.0 - dx) * at(top + 1, left) + dx * at(top + 1, left + 1))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn with_zero_offsets_the_columns_are_the_taps() {
            let window = Window { size: 2, stride: 1, dilation: 1, before: 0, after: 0 };
            let displaced = Displaced { windows: [window; 2], image: [1, 2, 3], groups: 1, result: [1, 2] };
            let data = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
            let mut columns = Vec::new();
            displaced.columns(&data, &[0.0; 16], &mut columns);
            assert_eq!(columns, [0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0]);
            columns.clear();
            displaced.columns(&data, &[0.5; 16], &mut columns);
            assert_eq!(columns[..2], [2.0, 3.0]);
        }
    }
}
