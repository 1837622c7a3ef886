//! `nn.correlation`: correlation of the patches of two images over a range of displacements.
//!
//! Dosovitskiy et al., "FlowNet" (2015), as in `topi/nn/correlation.py` of TVM 0.14.

use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, layout::map_dim, rules::per_output};
use edgecut_graph::{Dim, Shape, TensorType, Type};

pub(crate) static OPS: &[OpDef] = &[OpDef::new("nn.correlation", &["data1", "data2"], correlation_type)
    .attrs(
        "relay.attrs.CorrelationAttrs",
        &[
            AttrDef::new("kernel_size", AttrKind::Int, "1"),
            AttrDef::new("max_displacement", AttrKind::Int, "1"),
            AttrDef::new("stride1", AttrKind::Int, "1"),
            AttrDef::new("stride2", AttrKind::Int, "1"),
            AttrDef::new("padding", AttrKind::Ints, "[0, 0]"),
            AttrDef::new("is_multiply", AttrKind::Bool, "True"),
            AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
        ],
    )
    .class(FusionClass::OutFusable)
    .flops(|call| {
        let channels = call.tensor(0).ok().and_then(|t| t.shape.get(1)?.get()).unwrap_or(0);
        let patch = Correlation::read(call).map_or(0, |c| c.patch * c.patch);
        per_output::<2>(call).saturating_mul(channels.saturating_mul(patch as u64))
    })
    .wire(kernel!(correlation))];

/// The attributes of a correlation.
#[derive(Debug, Clone)]
struct Correlation {
    /// Side length of a patch; odd.
    patch: usize,
    displacement: usize,
    /// Strides of the patches in the first image and of the displacements in the second.
    strides: [usize; 2],
    padding: Vec<(u64, u64)>,
    multiply: bool,
}

impl Correlation {
    fn read(call: &Call<'_>) -> Result<Correlation, TypeError> {
        let positive = |key| {
            let value = usize::try_from(call.int(key, 1)?).ok().filter(|n| (1..1 << 16).contains(n));
            value.ok_or_else(|| call.error(format!("{key} must be positive")))
        };
        let displacement = usize::try_from(call.int("max_displacement", 1)?).ok().filter(|n| *n < 1 << 16);
        match call.text("layout", "NCHW")? {
            "NCHW" => {}
            other => return Err(call.error(format!("layout is {other:?}, expected NCHW"))),
        }
        Ok(Correlation {
            patch: positive("kernel_size")?,
            displacement: displacement.ok_or_else(|| call.error("max_displacement must not be negative"))?,
            strides: [positive("stride1")?, positive("stride2")?],
            padding: call.padding(2)?,
            multiply: call.flag("is_multiply", true)?,
        })
    }

    /// Maximum displacement in units of the second stride.
    fn radius(&self) -> usize {
        self.displacement / self.strides[1]
    }

    /// Total width of the margin, on both sides, in which no patch starts.
    fn border(&self) -> usize {
        2 * (self.displacement + (self.patch - 1) / 2)
    }
}

fn correlation_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let c = Correlation::read(call)?;
    let (&[images, _, height, _], &[_, _, _, width]) = (&a.shape[..], &b.shape[..]) else {
        return Err(call.error(format!("operands are {a} and {b}, expected rank 4")));
    };
    let along = |dim: Dim, axis: usize| match dim.get() {
        None => Ok(Dim::Any),
        Some(n) => {
            let padded = n + c.padding[axis].0 + c.padding[axis].1;
            let inner = padded.checked_sub(c.border() as u64);
            let inner =
                inner.ok_or_else(|| call.error(format!("max_displacement is too large for an axis of {padded}")))?;
            Ok(map_dim(dim, |_| inner.div_ceil(c.strides[0] as u64)))
        }
    };
    let channels = (2 * c.radius() as u64 + 1).pow(2);
    let shape: Shape = [images, channels.into(), along(height, 0)?, along(width, 1)?].into_iter().collect();
    Ok(TensorType::new(a.dtype, shape).into())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::{
        Typed,
        kernel::{
            Wiring,
            custom::{numbers, tensor_of},
        },
    };

    pub(super) fn correlation(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let c = Correlation::read(call)?;
        let shape = wiring.concrete(inputs[0])?;
        ensure!(wiring.concrete(inputs[1])? == shape, "both images must have the same shape");
        let (out, dtype) = (call.dims()?, wiring.fact(inputs[0])?.datum_type);
        wiring.custom("Correlation", tvec![dtype.fact(&*out)], inputs, move |inputs| {
            let (a, b) = (numbers(&inputs[0])?, numbers(&inputs[1])?);
            let at = |all: &[f64], image: usize, channel: usize, y: i64, x: i64| {
                let (y, x) = (y - c.padding[0].0 as i64, x - c.padding[1].0 as i64);
                let inside = (0..shape[2] as i64).contains(&y) && (0..shape[3] as i64).contains(&x);
                let plane = (image * shape[1] + channel) * shape[2] * shape[3];
                if inside { all[plane + y as usize * shape[3] + x as usize] } else { 0.0 }
            };
            let side = 2 * c.radius() + 1;
            let shift = |index: usize| (index as i64 - c.radius() as i64) * c.strides[1] as i64;
            let start = |index: usize| (index * c.strides[0] + c.displacement) as i64;
            let mut made = Vec::with_capacity(out.iter().product());
            for (image, q) in (0..out[0]).flat_map(|image| (0..out[1]).map(move |q| (image, q))) {
                let (down, right) = (shift(q / side), shift(q % side));
                for (i, j) in (0..out[2]).flat_map(|i| (0..out[3]).map(move |j| (i, j))) {
                    let mut sum = 0.0;
                    for channel in 0..shape[1] {
                        for (dy, dx) in (0..c.patch as i64).flat_map(|dy| (0..c.patch as i64).map(move |dx| (dy, dx))) {
                            let (y, x) = (start(i) + dy, start(j) + dx);
                            let (first, second) =
                                (at(&a, image, channel, y, x), at(&b, image, channel, y + down, x + right));
                            sum += if c.multiply { first * second } else { (first - second).abs() };
                        }
                    }
                    made.push(sum / (c.patch * c.patch * shape[1]) as f64);
                }
            }
            Ok(tvec![tensor_of(&made, &out, dtype)?])
        })
    }
}
