//! `image.dilation2d`: greyscale morphological dilation.

use crate::{
    AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError,
    rules::unify,
    window::{Rounding, Window},
};
use edgecut_graph::{TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("image.dilation2d", &["data", "weight"], dilation_type)
    .attrs(
        "relay.attrs.Dilation2DAttrs",
        &[
            AttrDef::new("strides", AttrKind::Ints, "[1, 1]"),
            AttrDef::new("padding", AttrKind::Ints, "[0, 0]"),
            AttrDef::new("dilations", AttrKind::Ints, "[1, 1]"),
            AttrDef::new("data_layout", AttrKind::Str, "\"NCHW\""),
            AttrDef::new("kernel_layout", AttrKind::Str, "\"IHW\""),
            AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
        ],
    )
    .class(FusionClass::Opaque)
    .flops(|call| {
        let window = call.tensor(1).ok().and_then(|w| w.shape.elements()).unwrap_or(0);
        let channels = call.tensor(1).ok().and_then(|w| structure(call, w).ok()).and_then(|s| s[0].get()).unwrap_or(1);
        let outputs = call.result().ok().and_then(|t| t.shape.elements()).unwrap_or(0);
        outputs.saturating_mul(2 * window / channels.max(1))
    })
    .wire(kernel!(dilation))];

fn structure(call: &Call<'_>, weight: &TensorType) -> Result<Vec<edgecut_graph::Dim>, TypeError> {
    call.sizes_in(&call.layout("kernel_layout", "IHW", "IHW")?, weight, "IHW")
}

fn windows(call: &Call<'_>) -> Result<[Window; 2], TypeError> {
    let sizes = call.known(&structure(call, call.tensor(1)?)?[1..], "the weight")?;
    let (strides, dilations) = (call.steps("strides", 2, 1)?, call.steps("dilations", 2, 1)?);
    let paddings = call.padding(2)?;
    let window = |axis: usize| {
        let (before, after) = paddings[axis];
        Window { size: sizes[axis], stride: strides[axis], dilation: dilations[axis], before, after }
    };
    Ok([window(0), window(1)])
}

fn dilation_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (data, weight) = (call.tensor(0)?, call.tensor(1)?);
    let layout = call.layout("data_layout", "NCHW", "NCHW")?;
    let mut sizes = call.sizes_in(&layout, data, "NCHW")?;
    sizes[1] = unify(sizes[1], structure(call, weight)?[0])
        .ok_or_else(|| call.error(format!("{weight} does not have the channels of {data}")))?;
    for (size, window) in sizes[2..].iter_mut().zip(windows(call)?) {
        *size = call.windowed(*size, &window, Rounding::Floor)?;
    }
    let shape = layout.shape("NCHW", &sizes).ok_or_else(|| call.error("data_layout has other axes"))?;
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(data.dtype), shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::{Pad, PadMode};

    use crate::{
        Typed,
        kernel::{
            self, Wiring,
            element::{Number, for_dtype},
            window_loops::{Channels, Rows},
        },
        layout::Layout,
    };

    /// Zero padding takes part in the maximum.
    pub(super) fn dilation(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let layout = call.layout("data_layout", "NCHW", "NCHW")?;
        let kernel_layout = call.layout("kernel_layout", "IHW", "IHW")?;
        let parse = |text| Layout::parse(text).map_err(TractError::msg);
        let (plain, plain_kernel) = (parse("NCHW")?, parse("IHW")?);
        let dtype = kernel::fact(call.result()?)?.datum_type;
        let data = layout.wire(&plain, wiring, inputs[0])?;
        let weight = kernel_layout.wire(&plain_kernel, wiring, inputs[1])?;
        let (mut data, weight) = (wiring.cast(data, dtype)?, wiring.cast(weight, dtype)?);
        let mut windows = windows(call)?;
        if windows.iter().any(|w| w.before + w.after > 0) {
            let mut pads = vec![(0, 0); 2];
            pads.extend(windows.iter().map(|w| (w.before as usize, w.after as usize)));
            let zero = Tensor::zero_scalar_dt(dtype)?.into_arc_tensor();
            data = wiring.one(Pad { pads, mode: PadMode::Constant(zero) }, &[data])?;
            windows.iter_mut().for_each(|w| (w.before, w.after) = (0, 0));
        }
        let shape = wiring.concrete(data)?;
        let mut out = shape.clone();
        for (size, window) in out[2..].iter_mut().zip(&windows) {
            *size = window.count(*size as u64, Rounding::Floor).context("no window fits")? as usize;
        }
        let rows = Rows::new(&windows, &out[2..], &shape[2..]);
        let channels = Channels { batch: shape[0], groups: shape[1], small: 1, large: 1 };
        let made = wiring.custom(
            "Dilation2d",
            tvec![dtype.fact(&out)],
            &[data, weight],
            move |inputs| for_dtype!(dtype, T in number => dilated::<T>(&rows, channels, inputs, &out)),
        )?[0];
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    fn dilated<T: Number>(
        rows: &Rows,
        channels: Channels,
        inputs: &[TValue],
        out: &[usize],
    ) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), out)?;
        {
            let (data, weight) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
            let mut made = result.try_as_plain_ram_mut()?;
            let made = made.as_slice_mut::<T>()?;
            made.fill(T::LOWEST);
            let fold = |best: T, x: T, w: T| best.larger(x.add(w));
            rows.gather_by(channels, data.as_slice::<T>()?, weight.as_slice::<T>()?, made, fold);
        }
        Ok(tvec![result])
    }
}
